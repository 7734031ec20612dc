package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

const (
	statusRefresh   = 2 * time.Second
	daemonTimeout   = 3 * time.Second  // it answers from memory
	databaseTimeout = 10 * time.Second // connect and one query
)

func newStatus(a *app) *cobra.Command {
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show position, lag, retained WAL and a verdict",
		Long: `status asks the relay that listens on http.listen. If none answers it asks the database for the slot, and says so.

Exit status: 0 if the verdict is ok, standby or degraded, 1 if it is failing, 69 if the relay does not answer and the database cannot be asked.
With --watch it goes on until a signal comes, and then exits with 0. On a terminal it shows what the status page shows, on screens that
the keys 1 to 7 and tab choose; elsewhere it writes a line for each refresh.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "http", "slot")
			if err != nil {
				return err
			}
			if watch {
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				if !asJSON && isTerminal(a.Stdout) && a.env("TERM") != "dumb" {
					return a.watchScreen(ctx, l, statusRefresh)
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
				err = writeReport(a.Stdout, r, time.Now(), a.colour(a.Stdout))
			}
			if err != nil {
				return err
			}
			if r.Verdict.State == health.Failing {
				return exitStatus(exitRuntime)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object, with --watch one per line")
	cmd.Flags().BoolVar(&watch, "watch", false, fmt.Sprintf("refresh every %s", health.Duration(statusRefresh)))
	a.keyFlags(cmd, "http.listen", "slot.name")
	return cmd
}

// watchStatus writes a line for each refresh until ctx ends.
func (a *app) watchStatus(ctx context.Context, l *config.Loaded, every time.Duration, asJSON bool) error {
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

// showStatus writes one refresh. unreachable is shown like a status: whoever watches waits for it to end.
func (a *app) showStatus(r Report, unreachable error, asJSON bool) error {
	switch {
	case asJSON && unreachable != nil:
		return json.NewEncoder(a.Stdout).Encode(struct {
			Error string `json:"error"`
		}{unreachable.Error()})
	case asJSON:
		return json.NewEncoder(a.Stdout).Encode(r)
	case unreachable != nil:
		_, err := fmt.Fprintf(a.Stdout, "%s unreachable: %s\n", time.Now().UTC().Format(time.RFC3339), oneLine(unreachable.Error()))
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, statusLine(r, time.Now()))
	return err
}

// readStatus is the function of this name, with hints that can be typed here: the daemon names its own configuration in them.
func (a *app) readStatus(ctx context.Context, l *config.Loaded) (Report, error) {
	r, err := readStatus(ctx, l)
	if a.configPath != "" {
		eachHint(&r.Verdict, func(hint string) string { return configOption.ReplaceAllString(hint, "") })
	}
	a.typedVerdict(&r.Verdict)
	return r, err
}

// readStatus asks the daemon, and if it does not answer the database.
func readStatus(ctx context.Context, l *config.Loaded) (Report, error) {
	r, daemonErr := askDaemon(ctx, l.Config.HTTP)
	if daemonErr == nil {
		return r, nil
	}
	r, err := askDatabase(ctx, l)
	if err != nil {
		return Report{}, &failure{
			code: exitUnavailable,
			err:  fmt.Errorf("the relay does not answer, and the database cannot be asked\n%w\n%w", daemonErr, err),
			wal:  "not known; PostgreSQL keeps WAL for the slot as long as nothing is confirmed",
			next: cmp.Or(explain(err).next, "postrider check"),
		}
	}
	r.DaemonError = daemonErr.Error()
	return r, nil
}

func askDaemon(ctx context.Context, c httpserver.Config) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	code, body, err := ask(ctx, c, "/status")
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(body, &r); code != http.StatusOK || err != nil || r.Source != sourceDaemon {
		return Report{}, fmt.Errorf("ask the relay: %s/status answered %d, and not with a status: is it postrider that listens there?",
			c.LocalURL(), code)
	}
	return r, nil
}

func askDatabase(ctx context.Context, l *config.Loaded) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if err := l.Validate("postgres"); err != nil {
		return Report{}, err
	}
	conn, err := postgres.Connect(ctx, l.Config.Postgres)
	if err != nil {
		return Report{}, fmt.Errorf("ask the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read from
	r := Report{Version: currentBuild().Version, Source: sourceDatabase, Sink: sinkReport(l.Config.Sink)}
	o, err := monitor.Observe(ctx, conn, l.Config.Slot.Name, l.Config.Monitor)
	if err != nil && !errors.Is(err, slot.ErrNotFound) {
		return Report{}, fmt.Errorf("ask the database: %w", postgres.Error(err))
	}
	start := startError(ctx, conn, l.Config)
	if err == nil {
		r.judge(time.Now(), relay.State{}, o, start, l.Config.Health)
		return r, nil
	}
	r.Verdict = health.Verdict{
		State:  health.Failing,
		Reason: fmt.Sprintf("no relay is running, and slot %q does not exist", l.Config.Slot.Name),
		WAL:    "none is kept for the relay: rows inserted before the slot exists are not published",
		Next:   "postrider run   # which creates it",
	}
	if start != (health.StartError{}) {
		r.Verdict.Reason, r.Verdict.WAL, r.Verdict.Next = "no relay is running, and none could stream: "+start.Reason, start.WAL, start.Next
	}
	return r, nil
}

// startError is why a relay that was started now would not stream, as it would say so itself.
func startError(ctx context.Context, conn *pgx.Conn, cfg config.Config) health.StartError {
	_, err := slot.Diagnose(ctx, conn, requirements(cfg))
	if err == nil {
		_, _, err = slot.Find(ctx, conn, requirements(cfg), true)
	}
	if errors.Is(err, slot.ErrNotFound) && cfg.Slot.Create && cfg.Snapshot.On() { // it makes the slot, and publishes what was there
		err = nil
	}
	if err == nil {
		err = slot.VerifyRole(ctx, conn)
	}
	if err == nil {
		return health.StartError{}
	}
	f := explain(err)
	return health.StartError{Reason: f.Error(), WAL: f.wal, Next: f.next, Lost: errors.Is(err, replication.ErrSlotLost)}
}
