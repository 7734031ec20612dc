package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// The major versions whose pgoutput and catalogues the relay knows.
const (
	oldestServer = 14
	newestServer = 18
)

const (
	// How long one step of Check may take, and one statement of it: a server that hangs is told
	// within seconds, and a lock on an outbox table, as by ALTER TABLE, is waited for no longer than
	// the watcher waits.
	checkStepTimeout = 10 * time.Second
	checkStatement   = 5 * time.Second
)

// Preflight is what Check looks at.
type Preflight struct {
	Postgres   postgres.Config
	Need       slot.Requirements
	VolumeSize int64 // of monitor.volume_size; zero: not known
	Messages   bool  // logical decoding messages are relayed, too
	// rows already in the tables are published, so a slot may be made for tables that have held rows
	Snapshot bool
	// Beside means that a relay of ours runs in this process. While it streams no connection for
	// replication is tried: it is the proof that there can be one, and a server logs those that it
	// refuses.
	Beside bool
	// Table judges the columns of a table that exists and is published; called with a connection that
	// it may query. May be nil.
	Table func(ctx context.Context, conn *pgx.Conn, table slot.Table) []Finding
	// Observe judges what a monitor sees at one look. May be nil.
	Observe func(ctx context.Context, conn *pgx.Conn) ([]Finding, error)
}

// Check looks at everything on the server that the relay needs, and reports what it saw, good and
// bad. It changes nothing. When the server cannot be reached there is one finding. A server that
// stops answering ends it within half a minute.
func Server(ctx context.Context, p Preflight) []Finding {
	conn, err := postgres.Connect(ctx, p.Postgres)
	if err != nil {
		return []Finding{ConnectionFinding("connection", "postgres.url", err)}
	}
	defer postgres.Close(conn)
	c := serverCheck{Preflight: p, conn: conn}
	c.add(okFinding("connection", conn.Config().Database, "connected as "+conn.Config().User))
	for _, step := range []struct {
		code  string
		times int // as long as another
		run   func(context.Context) error
	}{
		{"pooler", 1, c.pooler},
		{"tls", 1, c.tls},
		{"server_version", 1, c.version},
		{"wal_level", 1, c.walLevel},
		{"primary", 1, c.primary},
		{"role", 1, c.role},
		{"slot", 1, c.readSlot},
		{"max_wal_senders", 1, c.senders},
		{"replication_connection", 1, c.replication},
		{"physical_replication", 1, c.physical},
		{"publication", 1 + len(p.Need.Tables), c.publication},
		{"slot", 1, c.slot},
		{"slot_holder", 1, c.holder},
		{"slot_failover", 1, c.failover},
		{"monitor_rights", 1, c.observe},
		{"max_slot_wal_keep_size", 1, c.keepSize},
		{"idle_replication_slot_timeout", 1, c.idleTimeout},
		{"synchronous_standby_names", 1, c.synchronous},
		{"output_plugin_libraries", 1, c.libraries},
		{"emit_message", 1, c.messages},
	} {
		if err := c.step(ctx, step.times, step.run); err != nil {
			c.add(unknownOrError(step.code, err, conn.Config().User))
			if conn.IsClosed() {
				break
			}
		}
	}
	return c.findings
}

type serverCheck struct {
	Preflight
	conn *pgx.Conn
	// a pooler answers: what is set for the session could be set for somebody else's
	pooled   bool
	replica  bool         // may stream: superuser, REPLICATION or rds_replication
	status   *slot.Status // of the slot; nil: there is none, or it was not read
	ours     bool         // it is active, and by a relay that connects as we do
	held     *holder      // who reads the slot; nil: nobody, or not known
	findings []Finding
}

// observe looks as the monitor does. Without a slot there is still a clock, and who holds WAL for
// others.
func (c *serverCheck) observe(ctx context.Context) error {
	if c.Observe == nil {
		return nil
	}
	findings, err := c.Observe(ctx, c.conn)
	var lost *slot.LostError
	if gone := errors.As(err, &lost) && lost.Gone; err != nil && !gone && !slot.IsMissing(err) {
		return err
	}
	for _, f := range findings {
		c.add(f)
	}
	return nil
}

func (c *serverCheck) add(f Finding) { c.findings = append(c.findings, f) }

func (c *serverCheck) step(ctx context.Context, times int, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(times)*checkStepTimeout)
	defer cancel()
	return run(ctx)
}

// unknownOrError is the finding of a step that failed. A right that is missing to look, a lock or
// a slow statement makes what it looks at unknown and nothing worse: the relay needs none of them.
func unknownOrError(code string, err error, user string) Finding {
	f := Finding{Severity: SeverityInfo, Code: code, Observed: "not known: " + err.Error()}
	switch postgres.SQLState(err) {
	case "42501": // insufficient_privilege
		f.Required = "the right to look at it; the relay itself works without"
		f.Fix = "GRANT pg_monitor TO " + postgres.QuoteName(user) + "; -- or what the message names"
	case "55P03": // lock_not_available
		f.Required = "a table that is not locked for long: nobody can insert into it meanwhile either"
		f.Fix = "wait for the ALTER TABLE, LOCK or VACUUM FULL that has it, then check again"
	case "57014": // query_canceled
		f.Required = "an answer within " + checkStatement.String()
		f.Fix = "check again when the server has less to do"
	default:
		return ErrorFinding(code, "", err)
	}
	return f
}

// setting reads a parameter of the server; empty if this version does not have it.
func (c *serverCheck) setting(ctx context.Context, name string) (string, error) {
	var value string
	err := c.conn.QueryRow(ctx, `SELECT coalesce(pg_catalog.current_setting($1, true), '')`,
		name).Scan(&value)
	if err != nil {
		return "", fmt.Errorf("read setting %s: %w", name, postgres.Error(err))
	}
	return value, nil
}

// bytes reads a parameter that is a size; -1 stays that, absent is zero.
func (c *serverCheck) bytes(ctx context.Context, name string) (int64, error) {
	var n int64
	err := c.conn.QueryRow(ctx, `
		SELECT coalesce((SELECT CASE WHEN setting = '-1' THEN -1 ELSE pg_catalog.pg_size_bytes(pg_catalog.current_setting(name)) END
			FROM pg_catalog.pg_settings WHERE name = $1), 0)`, name).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read setting %s: %w", name, postgres.Error(err))
	}
	return n, nil
}
