package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
)

func newAlerts(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Try out who is told when something is not well",
	}
	cmd.AddCommand(newAlertsTest(a))
	return cmd
}

func newAlertsTest(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a test notification to every receiver",
		Long: `test tells alerts.webhook and alerts.command of a condition PostriderTest, and that it is over, whatever alerts.severity is. Run it
where the relay runs, and as its user: what one machine may reach and execute, another may not.

Exit status: 0 if every receiver took it, 69 if one did not, 78 if there is none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "alerts", "slot")
			if err != nil {
				return err
			}
			if !l.Config.Alerts.On() {
				return &failure{
					code: exitConfig, err: errors.New("nobody is told: neither alerts.webhook nor alerts.command is set"),
					next: "postrider config example   # section [alerts]",
				}
			}
			a.warn(l)
			for _, w := range l.Config.Alerts.Warnings() {
				fmt.Fprintf(a.Stderr, "postrider: warning: %s\n", w)
			}
			results := alerts.Test(cmd.Context(), l.Config.Alerts, aboutAlerts(l.Config))
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
				return exitStatus(exitUnavailable)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func writeResults(w io.Writer, results []alerts.Result) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, r := range results {
		said := "took it"
		if !r.Taken {
			said = oneLine(r.Error)
		}
		fmt.Fprintf(t, "%s\t%s\n", r.Receiver, said)
		if r.Next != "" {
			fmt.Fprintf(t, "\tnext: %s\n", indentBy(r.Next, "\t      "))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// aboutAlerts is what notifications say of where they come from. A connection setting that cannot be read leaves out the database: whoever
// needs it says so.
func aboutAlerts(cfg config.Config) alerts.About {
	about := alerts.About{Slot: cfg.Slot.Name, Version: version()}
	about.Instance, _ = os.Hostname()
	pc, err := postgres.ParseConfig(cfg.Postgres)
	if err != nil {
		return about
	}
	about.Database = cmp.Or(pc.Database, pc.User) // as the server takes it
	hosts := []string{net.JoinHostPort(pc.Host, strconv.Itoa(int(pc.Port)))}
	for _, f := range pc.Fallbacks { // there is one for each host, and for each way to it
		if host := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	about.Server = strings.Join(hosts, ",")
	return about
}
