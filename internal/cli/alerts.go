package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
)

func newAlerts(a *app) *cobra.Command {
	return group("alerts", "Try out the receivers of notifications", newAlertsTest(a))
}

func newAlertsTest(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a test notification to every receiver",
		Long: `test notifies alerts.webhook and alerts.command of a condition PostriderTest, and
of its end, whatever alerts.severity is. Run it where the relay runs, and as its user: what one
machine may reach and execute, another may not.

Exit status: 0 if every receiver took it, 69 if one did not, 78 if there is none.`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			if !l.Config.Alerts.On() {
				return &exit.Error{
					Code: exit.Config,
					Err: errors.New("there is no receiver: neither alerts.webhook nor " +
						"alerts.command is set"),
					Next: "postrider config example   # section [alerts]",
				}
			}
			a.warn(append(l.Warnings, l.Config.Alerts.Warnings()...))
			results := alerts.Test(ctx, l.Config.Alerts, daemon.AboutAlerts(l.Config))
			for i := range results {
				results[i].Next = a.typed(results[i].Next)
			}
			err := a.print(map[string]any{"receivers": results}, func(w io.Writer) error {
				return writeResults(w, results)
			})
			refused := slices.ContainsFunc(results, func(r alerts.Result) bool { return !r.Taken })
			return cmp.Or(err, statusUnless(!refused, exit.Unavailable))
		}, "alerts", "slot"),
	}
	a.jsonFlag(cmd, "")
	return cmd
}

func writeResults(w io.Writer, results []alerts.Result) error {
	var lines [][]string
	for _, r := range results {
		result := "took it"
		if !r.Taken {
			result = terminal.OneLine(r.Error)
		}
		lines = append(lines, []string{r.Receiver, result})
		for i, next := range strings.Split(strings.TrimRight(r.Next, "\n"), "\n") {
			switch {
			case r.Next == "":
			case i == 0:
				lines = append(lines, []string{"", "next: " + next})
			default:
				lines = append(lines, []string{"", "      " + next})
			}
		}
	}
	return writeTable(w, lines...)
}
