package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/internal/watch"
)

const statusRefresh = 2 * time.Second

func newStatus(a *app) *cobra.Command {
	var asJSON, refresh bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show position, lag, retained WAL and a verdict",
		Long: `status shows the report of the relay that listens on http.listen. If none answers
it reads the slot from the database, and says so.

Exit status: 0 if the verdict is ok, standby or degraded, 1 if it is failing, 69 if the relay
does not answer and the database is not reachable. With --watch it goes on until a signal comes,
and then exits with 0. On a terminal it shows what the status page shows, on screens that the
keys 1 to 7 and tab choose; elsewhere it writes a line for each refresh.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "http", "slot")
			if err != nil {
				return err
			}
			if refresh {
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				if !asJSON && terminal.IsTerminal(a.Stdout) && a.env("TERM") != "dumb" {
					return watch.Screen(ctx, l, statusRefresh, a.Stdin, a.Stdout, a.Env)
				}
				return a.watchStatus(ctx, l, statusRefresh, asJSON)
			}
			r, err := a.readStatus(cmd.Context(), l)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(r)
			} else {
				err = status.Write(a.Stdout, r, time.Now(), a.colour(a.Stdout))
			}
			if err != nil {
				return err
			}
			if r.Verdict.State == health.Failing {
				return exit.Status(exit.Runtime)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object, with --watch one per line")
	cmd.Flags().BoolVar(&refresh, "watch", false,
		fmt.Sprintf("refresh every %s", health.Duration(statusRefresh)))
	a.keyFlags(cmd, "http.listen", "slot.name")
	return cmd
}

// watchStatus writes a line every so often until ctx ends.
func (a *app) watchStatus(ctx context.Context, l *config.Loaded, every time.Duration,
	asJSON bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		r, err := a.readStatus(ctx, l)
		if ctx.Err() != nil {
			return nil
		}
		if err := a.showStatus(r, err, asJSON); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showStatus writes one refresh. An unreachable relay and database are shown like a status: they
// may come back.
func (a *app) showStatus(r status.Report, unreachable error, asJSON bool) error {
	switch {
	case asJSON && unreachable != nil:
		return json.NewEncoder(a.Stdout).Encode(struct {
			Error string `json:"error"`
		}{unreachable.Error()})
	case asJSON:
		return json.NewEncoder(a.Stdout).Encode(r)
	case unreachable != nil:
		_, err := fmt.Fprintf(a.Stdout, "%s unreachable: %s\n",
			time.Now().UTC().Format(time.RFC3339), terminal.OneLine(unreachable.Error()))
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, status.Line(r, time.Now()))
	return err
}

// readStatus returns the status with the hints for this command: those of the daemon name the
// daemon's configuration.
func (a *app) readStatus(ctx context.Context, l *config.Loaded) (status.Report, error) {
	r, err := status.Status(ctx, l)
	if a.configPath != "" {
		r.Verdict.ChangeHints(func(hint string) string {
			return configOption.ReplaceAllString(hint, "")
		})
	}
	r.Verdict.ChangeHints(a.typed)
	return r, err
}
