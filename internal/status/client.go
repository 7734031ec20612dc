package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// maxAnswer bounds what is read from the daemon; a status of hundreds of topics is some tens of KiB.
const maxAnswer = 4 << 20

// errNoServer says that the configuration lets nobody ask the daemon.
var errNoServer = errors.New("http.listen is empty or has port 0: there is no address to ask")

// ask gets a path from the daemon on this machine. An error means that nobody answered.
func Get(ctx context.Context, c httpserver.Config, path string) (code int, body []byte, err error) {
	base := c.LocalURL()
	if base == "" {
		return 0, nil, errNoServer
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the relay: %w", err)
	}
	// No proxy, whatever the environment says: the daemon is here. No connection kept: one question.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the relay: %w", err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s%s: %w", base, path, err)
	}
	return resp.StatusCode, body, nil
}

// readStatus asks the daemon, and if it does not answer the database.
func Status(ctx context.Context, l *config.Loaded) (Report, error) {
	r, daemonErr := askDaemon(ctx, l.Config.HTTP)
	if daemonErr == nil {
		return r, nil
	}
	r, err := askDatabase(ctx, l)
	if err != nil {
		return Report{}, &exit.Error{
			Code: exit.Unavailable,
			Err:  fmt.Errorf("the relay does not answer, and the database cannot be asked\n%w\n%w", daemonErr, err),
			WAL:  "not known; PostgreSQL keeps WAL for the slot as long as nothing is confirmed",
			Next: cmp.Or(exit.Explain(err).Next, "postrider check"),
		}
	}
	r.DaemonError = daemonErr.Error()
	return r, nil
}

func askDaemon(ctx context.Context, c httpserver.Config) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, DaemonTimeout)
	defer cancel()
	code, body, err := Get(ctx, c, "/status")
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(body, &r); code != http.StatusOK || err != nil || r.Source != SourceDaemon {
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
	r := Report{Version: build.Current().Version, Source: SourceDatabase, Sink: SinkOf(l.Config.Sink)}
	o, err := monitor.Observe(ctx, conn, l.Config.Slot.Name, l.Config.Monitor)
	if err != nil && !errors.Is(err, slot.ErrNotFound) {
		return Report{}, fmt.Errorf("ask the database: %w", postgres.Error(err))
	}
	start := startError(ctx, conn, l.Config)
	if err == nil {
		r.Judge(time.Now(), relay.State{}, o, start, l.Config.Health)
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
	_, err := slot.Diagnose(ctx, conn, cfg.Requirements())
	if err == nil {
		_, _, err = slot.Find(ctx, conn, cfg.Requirements(), true)
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
	f := exit.Explain(err)
	return health.StartError{Reason: f.Error(), WAL: f.WAL, Next: f.Next, Lost: errors.Is(err, replication.ErrSlotLost)}
}

const (
	DaemonTimeout   = 3 * time.Second  // it answers from memory
	databaseTimeout = 10 * time.Second // connect and one query
)
