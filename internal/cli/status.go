package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	refresh := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show position, lag, retained WAL and a verdict",
		Long: `status shows the report of the relay that listens on http.listen. If none answers,
or that of another slot, it reads the slot from the database, and says so.

Exit status: 0 if the verdict is ok, standby or degraded, 1 if it is failing. If the relay does
not answer, and neither does the database: 69 it is not reachable, 75 it starts or stops, 77 it
refuses the login, 78 the configuration. With --watch it goes on until a signal comes, and then
exits with 0. On a terminal it shows what the status page shows, on screens that the keys 1 to 7
and tab choose; elsewhere it writes a line for each refresh.`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			if refresh {
				ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				if !a.json && terminal.IsTerminal(a.Stdout) && a.env("TERM") != "dumb" {
					return watch.Screen(ctx, l, a.retyped, statusRefresh, a.Stdin, a.Stdout, a.Env)
				}
				return a.watchStatus(ctx, l, statusRefresh)
			}
			r, err := a.readStatus(ctx, l)
			if err != nil {
				return err
			}
			err = a.printColoured(r, func(w io.Writer) error {
				return status.Write(w, r, time.Now(), a.colour(w))
			})
			return cmp.Or(err, statusUnless(r.Verdict.State != health.Failing, exit.Runtime))
		}, "http", "slot"),
	}
	a.jsonFlag(cmd, "print one JSON object, with --watch one per line")
	cmd.Flags().BoolVar(&refresh, "watch", false,
		fmt.Sprintf("refresh every %s", health.Duration(statusRefresh)))
	a.keyFlags(cmd, "http.listen", "slot.name")
	return cmd
}

// watchStatus writes a line every so often until ctx ends. An unreachable relay and database are
// shown like a status: they may come back.
func (a *app) watchStatus(ctx context.Context, l *config.Loaded, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		r, err := a.readStatus(ctx, l)
		if ctx.Err() != nil {
			return nil
		}
		var shown any = r
		line := status.Line(r, time.Now())
		if err != nil {
			shown = map[string]string{"error": err.Error()}
			line = fmt.Sprintf("%s unreachable: %s", time.Now().UTC().Format(time.RFC3339),
				terminal.OneLine(err.Error()))
		}
		if a.json {
			err = json.NewEncoder(terminal.JSON(a.Stdout)).Encode(shown)
		} else {
			err = a.printf("%s\n", line)
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// readStatus returns the status with the hints for this command.
func (a *app) readStatus(ctx context.Context, l *config.Loaded) (status.Report, error) {
	r, err := status.Status(ctx, l, new(status.Answers))
	r.Verdict.ChangeHints(a.retyped)
	return r, err
}
