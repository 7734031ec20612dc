package status

import (
	"bytes"
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

const (
	requestTimeout  = 3 * time.Second  // to the relay, which answers from memory
	databaseTimeout = 10 * time.Second // a connection and some queries
	// maxAnswer bounds an answer of the relay; a status of hundreds of topics is some tens of KiB.
	maxAnswer = 4 << 20
)

// get requests a path from the relay on this machine. An error means that there is no answer.
func get(ctx context.Context, c httpserver.Config,
	path string) (code int, body []byte, err error) {
	base := c.LocalURL()
	if base == "" {
		return 0, nil, errors.New("http.listen is empty or has port 0: there is no address to " +
			"connect to")
	}
	return request(ctx, http.MethodGet, base+path, "", nil)
}

// request sends one request on a connection of its own, with a bearer token if there is one. It
// uses no proxy and follows no redirect: the relay is here, and neither may have the token.
func request(
	ctx context.Context, method, url, token string, body []byte,
) (code int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("query the relay: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("query the relay: %w", err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s: %w", url, err)
	}
	return resp.StatusCode, answer, nil
}

// Status returns the report of the relay on this machine, or one from the database if the relay
// does not answer, or another relay does. answers has those to earlier calls.
func Status(ctx context.Context, l *config.Loaded, answers *Answers) (Report, error) {
	r, daemonErr := FromDaemon(ctx, l.Config.HTTP)
	if name := l.Config.Slot.Name; daemonErr == nil && !answers.About(ctx, &r, l.Config) {
		daemonErr = fmt.Errorf("%s answers at http.listen (%s), and not that of %q", r.Whose(name),
			l.Config.HTTP.Listen, name)
	}
	if daemonErr == nil {
		return r, nil
	}
	r, err := fromDatabase(ctx, l)
	if err != nil {
		f := (*exit.Error)(nil)
		if !errors.As(err, &f) {
			f = exit.Explain(err)
		}
		if f.Code == exit.Runtime {
			f.Code = exit.Unavailable
		}
		return Report{}, &exit.Error{
			Code: f.Code,
			Err: fmt.Errorf("the relay does not answer, and the database cannot be queried\n%w\n%w",
				daemonErr, err),
			WAL:  "not known; PostgreSQL keeps WAL for the slot as long as nothing is confirmed",
			Next: cmp.Or(f.Next, "postrider check"),
		}
	}
	r.DaemonError = daemonErr.Error()
	return r, nil
}

// FromDaemon returns the report of the relay on this machine, whatever it is about.
func FromDaemon(ctx context.Context, c httpserver.Config) (r Report, err error) {
	err = GetJSON(ctx, c, "/status", &r)
	if err == nil && r.Source != SourceDaemon {
		err = fmt.Errorf("query the relay: %w", notPostrider(c.LocalURL()+"/status", http.StatusOK))
	}
	return r, err
}

// GetJSON decodes the answer of the relay on this machine to a request for a path.
func GetJSON(ctx context.Context, c httpserver.Config, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	code, body, err := get(ctx, c, path)
	if err != nil {
		return err
	}
	if code != http.StatusOK || json.Unmarshal(body, into) != nil {
		return fmt.Errorf("query the relay: %w", notPostrider(c.LocalURL()+path, code))
	}
	return nil
}

// Probe requests a probe of the relay on this machine, such as /livez. An error says why it fails.
func Probe(ctx context.Context, c httpserver.Config, path string) error {
	code, body, err := get(ctx, c, path)
	if err != nil || code == http.StatusOK {
		return err
	}
	var probe httpserver.Probe
	if json.Unmarshal(body, &probe) != nil || probe.Reason == "" {
		return notPostrider(c.LocalURL()+path, code)
	}
	if probe.Detail != "" {
		probe.Reason += ": " + probe.Detail
	}
	return fmt.Errorf("%s: %s", path, probe.Reason)
}

// notPostrider is the error of an answer that a relay does not give.
func notPostrider(url string, code int) error {
	return fmt.Errorf("%s answered %d: is it postrider that listens there?", url, code)
}

func fromDatabase(ctx context.Context, l *config.Loaded) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if err := l.Validate("postgres"); err != nil {
		return Report{}, exit.ConfigFailure(err)
	}
	cfg := l.Config
	conn, err := postgres.Connect(ctx, cfg.Postgres)
	if err != nil {
		return Report{}, fmt.Errorf("query the database: %w", err)
	}
	defer postgres.Close(conn)
	r := Report{Version: build.Current().Version, Source: SourceDatabase, Sink: SinkOf(cfg.Sink)}
	o, err := monitor.Observe(ctx, conn, cfg.Slot.Name, cfg.Monitor)
	if err != nil && !errors.Is(err, slot.ErrNotFound) {
		return Report{}, fmt.Errorf("query the database: %w", postgres.Error(err))
	}
	start := startError(ctx, conn, cfg)
	switch {
	case err == nil:
		r.Judge(time.Now(), relay.State{}, o, start, cfg.Health)
		return r, nil
	case start == health.StartError{}:
		start = health.StartError{
			Reason: fmt.Sprintf("no relay is running, and slot %q does not exist", cfg.Slot.Name),
			WAL: "none is kept for the relay: rows inserted before the slot exists are not " +
				"published",
			Next: "postrider run   # which creates it",
		}
	default:
		start.Reason = "no relay is running, and none could stream: " + start.Reason
	}
	r.Verdict = health.Verdict{State: health.Failing, Reason: start.Reason, WAL: start.WAL,
		Next: start.Next}
	return r, nil
}

// startError is why a relay that starts now cannot stream; zero if it can.
func startError(ctx context.Context, conn *pgx.Conn, cfg config.Config) health.StartError {
	_, err := slot.Diagnose(ctx, conn, cfg.Requirements())
	if err == nil {
		_, _, err = slot.Find(ctx, conn, cfg.Requirements(), true)
	}
	if errors.Is(err, slot.ErrNotFound) && cfg.Slot.Create && cfg.Snapshot.On() {
		err = nil // the relay creates the slot, and publishes the rows of before
	}
	if err == nil {
		err = slot.VerifyRole(ctx, conn)
	}
	if err == nil {
		return health.StartError{}
	}
	f := exit.Explain(err)
	return health.StartError{
		Reason: f.Error(), WAL: f.WAL, Next: f.Next, Lost: errors.Is(err, replication.ErrSlotLost),
	}
}
