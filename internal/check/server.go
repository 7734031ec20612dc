package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// The major versions whose pgoutput and catalogs the relay supports.
const (
	oldestServer = 14
	newestServer = 18
)

const (
	// The limits of one step of Server and of one statement of it: it reports within seconds that a
	// server hangs, and waits for a lock on an outbox table, as of ALTER TABLE, no longer than the
	// monitor.
	checkStepTimeout = 10 * time.Second
	checkStatement   = 5 * time.Second
)

// Preflight is what Server checks.
type Preflight struct {
	Postgres   postgres.Config
	Need       slot.Requirements
	VolumeSize int64 // of monitor.volume_size; zero: not known
	Messages   bool  // logical decoding messages are relayed, too
	// rows already in the tables are published, so a slot may be made for tables that have held rows
	Snapshot bool
	// Beside means that a relay runs in this process. While it streams no connection for
	// replication is tried: it is the proof that there can be one, and a server logs those that it
	// refuses.
	Beside bool
	// Table judges the columns of a table that exists and is published; called with a connection that
	// it may query. May be nil.
	Table func(ctx context.Context, conn *pgx.Conn, table slot.Table) []Finding
	// WriteBack finds what keeps rows from being written back. nil: that is off.
	WriteBack func(ctx context.Context, conn *pgx.Conn) ([]Finding, error)
	// Observe judges what a monitor sees at one look. May be nil.
	Observe func(ctx context.Context, conn *pgx.Conn) ([]Finding, error)
}

// Server checks everything on the server that the relay needs. It changes nothing. If the server
// cannot be reached, there is one finding. A server that stops answering ends it within half a
// minute.
func Server(ctx context.Context, p Preflight) []Finding {
	conn, err := postgres.Connect(ctx, p.Postgres)
	if err != nil {
		code := "connection"
		if errors.Is(err, postgres.ErrPooler) {
			code = "pooler"
		}
		return []Finding{connectionFinding(code, "postgres.url", err)}
	}
	defer postgres.Close(conn)
	user := conn.Config().User
	c := serverCheck{Preflight: p, conn: conn}
	c.add(found("connection", conn.Config().Database, "connected as "+user))
	for _, step := range []struct {
		code  string
		times int // as long as another
		run   step
	}{
		{"pooler", 1, c.pooler},
		{"tls", 1, c.tls},
		{"server_version", 1, c.version},
		{"wal_level", 1, c.judged("wal_level", judgeLevel)},
		{"primary", 1, c.primary},
		{"role", 1, c.role},
		{"slot", 1, c.readSlot},
		{"max_wal_senders", 1, c.senders},
		{"replication_connection", 1, c.replication},
		{"physical_replication", 1, c.physical},
		{"publication", 1 + len(p.Need.Tables), c.publication},
		{"write_back", 1 + len(p.Need.Tables), c.writeBack},
		{"slot", 1, c.slot},
		{"slot_holder", 1, c.holder},
		{"slot_failover", 1, c.failover},
		{"monitor_rights", 1, c.observe},
		{"max_slot_wal_keep_size", 1, c.keepSize},
		{"idle_replication_slot_timeout", 1,
			c.judged("idle_replication_slot_timeout", judgeIdleTimeout)},
		{"synchronous_standby_names", 1,
			c.judged("synchronous_standby_names", c.judgeSynchronous)},
		{"output_plugin_libraries", 1, c.judged("output_plugin_libraries", judgeLibraries)},
		{"emit_message", 1, c.messages},
	} {
		if err := c.step(ctx, step.times, step.run); err != nil {
			c.add(unknownOrError(step.code, "", err, user))
			if conn.IsClosed() {
				break
			}
		}
	}
	return c.findings
}

// step adds what it finds. Its error is a finding, too.
type step func(ctx context.Context) error

type serverCheck struct {
	Preflight
	findings
	conn *pgx.Conn
	// a pooler answers: what is set for the session could be set for another client
	pooled  bool
	replica bool         // may stream: superuser, REPLICATION or rds_replication
	status  *slot.Status // of the slot; nil: there is none, or it was not read
	ours    bool         // it is active, and its reader connects as we do
	held    *holder      // the reader of the slot; nil: none, or not known
}

// observe observes as the monitor does. Without a slot there is still a clock, and WAL that is
// kept for other slots.
func (c *serverCheck) observe(ctx context.Context) error {
	if c.Observe == nil {
		return nil
	}
	findings, err := c.Observe(ctx, c.conn)
	var lost *slot.LostError
	if gone := errors.As(err, &lost) && lost.Gone; err != nil && !gone && !slot.IsMissing(err) {
		return err
	}
	c.add(findings...)
	return nil
}

func (c *serverCheck) writeBack(ctx context.Context) error {
	if c.WriteBack == nil {
		return nil
	}
	findings, err := c.WriteBack(ctx, c.conn)
	c.add(findings...)
	return err
}

func (c *serverCheck) step(ctx context.Context, times int, run step) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(times)*checkStepTimeout)
	defer cancel()
	return run(ctx)
}

// unknownOrError is the finding of a step that failed. A missing right to look, a lock or a slow
// statement is no error: the relay needs none of them.
func unknownOrError(code, subject string, err error, user string) Finding {
	f := found(code, subject, "not known: "+err.Error())
	switch postgres.SQLState(err) {
	case "42501": // insufficient_privilege
		return f.info("the right to look at it; the relay itself works without",
			"GRANT pg_monitor TO "+postgres.QuoteName(user)+"; -- or what the message names")
	case "55P03": // lock_not_available
		return f.info("a table that is not locked for long: no session can insert into it meanwhile",
			"wait for the ALTER TABLE, LOCK or VACUUM FULL that has it, then check again")
	case "57014": // query_canceled
		return f.info("an answer within "+checkStatement.String(),
			"check again when the server has less to do")
	}
	f = errorFinding(code, "", err)
	f.Subject = subject
	return f
}

// row is a query for one row; doing begins its error.
func (c *serverCheck) row(ctx context.Context, doing, sql string, args ...any) row {
	return row{c.conn.QueryRow(ctx, sql, args...), doing}
}

type row struct {
	row   pgx.Row
	doing string
}

// Scan is pgx.Row.Scan.
func (r row) Scan(dest ...any) error {
	return postgres.Wrap(r.row.Scan(dest...), "%s", r.doing)
}

// setting reads a parameter of the server. It is not known if this version does not have it, or
// the role may not see it: for that current_setting alone would write an error into the server's
// log.
func (c *serverCheck) setting(
	ctx context.Context, name string,
) (text string, known bool, err error) {
	err = c.row(ctx, "read setting "+name, `
		SELECT coalesce(pg_catalog.max(pg_catalog.current_setting(name)), ''), pg_catalog.count(*) > 0
		FROM pg_catalog.pg_settings WHERE name = $1`, name).Scan(&text, &known)
	return text, known, err
}

// judged is the step that judges a parameter, if it is known.
func (c *serverCheck) judged(name string, judge func(f Finding, text string) Finding) step {
	return func(ctx context.Context) error {
		text, known, err := c.setting(ctx, name)
		if known {
			c.add(judge(found(name, name, cmp.Or(text, "empty")), text))
		}
		return err
	}
}

// used counts the rows of a view that a setting limits; f is the finding of that setting.
func (c *serverCheck) used(
	ctx context.Context, setting, view string,
) (f Finding, used, limit int, err error) {
	err = c.row(ctx, "count "+view, `SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.`+view+
		`), pg_catalog.current_setting('`+setting+`')::int`).Scan(&used, &limit)
	return found(setting, setting, fmt.Sprintf("%d of %d are used", used, limit)), used, limit, err
}
