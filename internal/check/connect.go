package check

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// connectionsOfARelay is how many connections one relay has at most: it streams over one, watches
// over another, which is replaced now and then by a third, and monitors over a fourth.
const connectionsOfARelay = 4

// soonExpired is how long before the end of a password's life check says so.
const soonExpired = 14 * 24 * time.Hour

func (c *serverCheck) role(ctx context.Context) error {
	r, err := slot.ReadRole(ctx, c.conn)
	if err != nil {
		return err
	}
	user, limit, until := r.Name, r.Limit, r.Until
	f := Finding{Severity: SeverityOK, Code: "role", Subject: user}
	c.replica = r.Replicates()
	switch {
	case r.Super:
		f.Severity, f.Observed, f.Required = SeverityWarning, "superuser", "LOGIN REPLICATION is enough"
		f.Fix = "make a role of its own for the relay: sql/role.sql"
	case r.Replication:
		f.Observed = "REPLICATION"
	case r.Rds:
		f.Observed = "member of rds_replication"
	default:
		f = ErrorFinding("role", user, r.Verify(nil))
		f.Required = "REPLICATION"
	}
	c.add(f)
	if limit >= 0 && limit < connectionsOfARelay && !r.Super {
		c.add(Finding{
			Severity: SeverityWarning, Code: "role_connection_limit", Subject: user,
			Observed: strconv.Itoa(limit),
			Required: fmt.Sprintf("%d: so many connections has a relay, and twice that while another "+
				"takes over", connectionsOfARelay),
			Fix: fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d;", postgres.QuoteName(user),
				2*connectionsOfARelay),
		})
	}
	if until != nil && time.Until(*until) < soonExpired {
		c.add(Finding{
			Severity: SeverityWarning, Code: "role_valid_until", Subject: user,
			Observed: until.UTC().Format(time.RFC3339),
			Required: "a password that stays valid: with an expired one the relay cannot connect any " +
				"more, and the slot keeps WAL",
			Fix: "ALTER ROLE " + postgres.QuoteName(user) + " VALID UNTIL 'infinity'; -- or a later " +
				"date, with a new password",
		})
	}
	return nil
}

// senders counts walsenders: the stream takes one, and so does each standby and each base backup.
func (c *serverCheck) senders(ctx context.Context) error {
	var used, limit int
	err := c.conn.QueryRow(ctx,
		`SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication), pg_catalog.current_setting('max_wal_senders')::int`).
		Scan(&used, &limit)
	if err != nil {
		return fmt.Errorf("count walsenders: %w", postgres.Error(err))
	}
	f := okFinding("max_wal_senders", "max_wal_senders", fmt.Sprintf("%d of %d are used", used,
		limit))
	if used >= limit {
		f.Severity, f.Required = SeverityWarning, "a free one: for the stream, if it does not run, "+
			"and for the take-over by another relay"
		f.Fix = fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d; -- takes effect when the server "+
			"is restarted", max(10, 2*limit))
	}
	c.add(f)
	return nil
}

// replication opens the kind of connection that streams: pg_hba.conf, a pooler between, or the
// lack of a walsender show only there.
func (c *serverCheck) replication(ctx context.Context) error {
	if !c.replica {
		return nil // said by role
	}
	if c.Beside && c.ours {
		c.add(okFinding("replication_connection", "", "the relay streams"))
		return nil
	}
	conn, err := postgres.ConnectReplication(ctx, c.Postgres)
	if err != nil {
		c.add(c.refused(err))
		return nil
	}
	defer closeReplication(ctx, conn)
	id, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		c.add(Finding{
			Severity: SeverityError, Code: "replication_connection", Observed: err.Error(),
			Required: "a connection that speaks the replication protocol",
			Fix:      postgres.FixPooler, Class: ClassConfiguration,
		})
		return nil
	}
	c.add(okFinding("replication_connection", "", fmt.Sprintf("system %s, timeline %d", id.SystemID,
		id.Timeline)))
	return c.senderTimeout(ctx, conn)
}

// refused says why there is no connection for replication.
func (c *serverCheck) refused(err error) Finding {
	f := ConnectionFinding("replication_connection", "", err)
	switch {
	case c.pooled && f.Class == ClassUnreachable:
		f.Required, f.Fix = "a connection for replication, which a pooler answers", postgres.FixPooler
	case errors.Is(err, postgres.ErrTooManyConnections) && c.ours:
		// The relay has the one that it needs.
		f.Severity, f.Class = SeverityWarning, ""
		f.Required = "a free walsender: another relay could not take over"
	}
	return f
}

func closeReplication(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// The server ends a connection that it has not heard of for wal_sender_timeout, and only then is
// the slot of a relay whose host died free. The relay answers at once when it is asked, at half of
// it.
const (
	shortSenderTimeout = 5 * time.Second
	longSenderTimeout  = time.Minute // the server's default
)

func (c *serverCheck) senderTimeout(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx,
		`SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'`).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return fmt.Errorf("read wal_sender_timeout: %w", postgres.Error(err))
	}
	ms, err := strconv.ParseInt(string(results[0].Rows[0][0]), 10, 64)
	if err != nil {
		return fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	timeout := time.Duration(ms) * time.Millisecond
	f := okFinding("wal_sender_timeout", "", timeout.String()+", for the relay's own connection")
	switch {
	case timeout == 0:
		f.Severity, f.Observed, f.Required = SeverityWarning, "0: never",
			"a limit: when the relay's host dies the slot stays taken, and no other relay can go on"
	case timeout < shortSenderTimeout:
		f.Severity, f.Required = SeverityWarning, "more than "+shortSenderTimeout.String()+
			": a short hitch of the network ends the stream"
	case timeout > longSenderTimeout:
		f.Severity, f.Required = SeverityInfo, "15s, which the relay sets: when its host dies, "+
			"another can go on only after that time"
	}
	if f.Severity != SeverityOK {
		f.Fix = "take wal_sender_timeout out of postgres.url, and out of ALTER ROLE ... SET, or set " +
			"it to 15s there"
		if c.pooled {
			f.Fix = postgres.FixPooler
		}
	}
	c.add(f)
	return nil
}

// physical finds out whether the role could take a copy of the whole cluster: REPLICATION is
// enough, unless pg_hba.conf is against it.
func (c *serverCheck) physical(ctx context.Context) error {
	if !c.replica || c.Beside {
		return nil
	}
	cfg, err := postgres.PhysicalConfig(c.Postgres)
	if err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	f := okFinding("physical_replication", cfg.User, "refused by the server, as it should be")
	switch state := postgres.SQLState(err); {
	case err == nil:
		closeReplication(ctx, conn)
		f.Severity, f.Observed = SeverityInfo, "the role may copy the whole cluster, all databases "+
			"and passwords with it"
		f.Required = "a line in pg_hba.conf that rejects it: the keyword replication stands for " +
			"physical connections only"
		f.Fix = "in pg_hba.conf, before all other lines:\n" + rejectLine(cfg) +
			"\nthen: SELECT pg_reload_conf();"
	case state == "28000" || state == "42501":
		// invalid_authorization_specification: pg_hba.conf; insufficient_privilege
	default:
		return nil // replication_connection has said what is wrong
	}
	c.add(f)
	return nil
}

// rejectLine is for pg_hba.conf, where quotes keep a role called all from being a keyword.
func rejectLine(cfg *pgconn.Config) string {
	if network, _ := pgconn.NetworkAddress(cfg.Host, cfg.Port); network == "unix" {
		return fmt.Sprintf("local  replication  %q  reject", cfg.User)
	}
	return fmt.Sprintf("host  replication  %q  all  reject", cfg.User)
}
