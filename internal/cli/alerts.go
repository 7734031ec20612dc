package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
)

func newAlerts(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Try out the receivers of notifications",
	}
	cmd.AddCommand(newAlertsTest(a))
	return cmd
}

func newAlertsTest(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a test notification to every receiver",
		Long: `test notifies alerts.webhook and alerts.command of a condition PostriderTest, and
of its end, whatever alerts.severity is. Run it where the relay runs, and as its user: what one
machine may reach and execute, another may not.

Exit status: 0 if every receiver took it, 69 if one did not, 78 if there is none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "alerts", "slot")
			if err != nil {
				return err
			}
			if !l.Config.Alerts.On() {
				return &exit.Error{
					Code: exit.Config,
					Err: errors.New("there is no receiver: neither alerts.webhook nor " +
						"alerts.command is set"),
					Next: "postrider config example   # section [alerts]",
				}
			}
			a.warn(l)
			for _, w := range l.Config.Alerts.Warnings() {
				fmt.Fprintf(a.Stderr, "postrider: warning: %s\n", w)
			}
			results := alerts.Test(cmd.Context(), l.Config.Alerts, daemon.AboutAlerts(l.Config))
			if asJSON {
				err = a.printJSON(struct {
					Receivers []alerts.Result `json:"receivers"`
				}{results})
			} else {
				err = writeResults(a.Stdout, results)
			}
			if err != nil {
				return err
			}
			if slices.ContainsFunc(results, func(r alerts.Result) bool { return !r.Taken }) {
				return exit.Status(exit.Unavailable)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, jsonHelp)
	return cmd
}

func writeResults(w io.Writer, results []alerts.Result) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, r := range results {
		result := "took it"
		if !r.Taken {
			result = terminal.OneLine(r.Error)
		}
		fmt.Fprintf(t, "%s\t%s\n", r.Receiver, result)
		if r.Next != "" {
			fmt.Fprintf(t, "\tnext: %s\n", terminal.IndentBy(r.Next, "\t      "))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
