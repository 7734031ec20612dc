package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

const (
	// connectionsOfARelay is the most that one relay has: stream, watcher, the watcher's
	// replacement, and monitor.
	connectionsOfARelay = 4
	// soonExpired is how long before the end of a password's life check warns.
	soonExpired = 14 * 24 * time.Hour
	// The server ends a connection after wal_sender_timeout without a message, and only then is the
	// slot of a relay free whose host died.
	shortSenderTimeout = 5 * time.Second
	longSenderTimeout  = time.Minute // the server's default
)

// pooler finds out whether a pooler answers for the server. A server names the process that it
// began for the connection; a pooler makes a number up, or names a process that serves others too.
// For a direct connection it bounds how long a statement may take.
func (c *serverCheck) pooler(ctx context.Context) error {
	var pid uint32
	err := c.row(ctx, "read the process id", `SELECT pg_catalog.pg_backend_pid()`).Scan(&pid)
	if err != nil {
		return err
	}
	c.pooled = pid != c.conn.PgConn().PID()
	if c.pooled {
		c.add(found("pooler", "", "a pooler or proxy answers in the place of the server").warn(
			"the server itself: most poolers refuse replication, and PgBouncer, which passes it "+
				"through from 1.23 on, refuses the parameters that the relay sets for its rows",
			postgres.FixPooler))
		return nil
	}
	c.add(found("pooler", "", "none: the server itself answers"))
	if err := postgres.SetTimeout(ctx, c.conn, "lock_timeout", slot.LockTimeout); err != nil {
		return err
	}
	return postgres.SetTimeout(ctx, c.conn, "statement_timeout", checkStatement)
}

// tls compares what postgres.url requires with what the server sees.
func (c *serverCheck) tls(ctx context.Context) error {
	cfg, err := postgres.ParseConfig(c.Postgres)
	if err != nil {
		return err
	}
	var encrypted bool
	var protocol string
	err = c.row(ctx, "read pg_stat_ssl", `
		SELECT ssl, pg_catalog.concat_ws(' ', version, cipher)
		FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()`).Scan(&encrypted, &protocol)
	if err != nil {
		return err
	}
	f := found("tls", "", protocol)
	if !encrypted {
		f.Observed = "none; the connection does not leave this machine"
	}
	const fix = "in postgres.url: sslmode=verify-full&sslrootcert=FILE, with the authority that " +
		"signed the server's certificate"
	_, ours := c.conn.PgConn().Conn().(*tls.Conn)
	clear, unverified := remoteWithoutTLS(cfg)
	switch {
	case clear != "":
		f.Observed = "the connection to " + clear + " is not encrypted (sslmode=disable)"
		f = f.warn("TLS: else an eavesdropper reads every row and can take the login over", fix)
	case unverified != "":
		f.Observed += ", and any server that answers as " + unverified + " is trusted"
		f = f.warn("sslmode=verify-full: else a man in the middle can pose as the server", fix)
	case !encrypted && ours:
		f.Observed = "encrypted from here, and not at the server"
		f = f.warn("TLS up to the server: a program in between, like a pooler, decrypts and passes "+
			"on in the clear", fix)
	}
	c.add(f)
	return nil
}

// remoteWithoutTLS names a host on another machine to which postgres.url allows a connection that
// is not encrypted, and one of which no certificate is verified. Which of several hosts is the
// writable one changes.
func remoteWithoutTLS(cfg *pgx.ConnConfig) (clear, unverified string) {
	hosts := append([]*pgconn.FallbackConfig{{Host: cfg.Host, TLSConfig: cfg.TLSConfig}},
		cfg.Fallbacks...)
	for _, h := range hosts {
		switch {
		case postgres.Local(h.Host):
		case h.TLSConfig == nil:
			clear = h.Host
		case h.TLSConfig.InsecureSkipVerify && h.TLSConfig.VerifyPeerCertificate == nil:
			unverified = h.Host
		}
	}
	return clear, unverified
}

func (c *serverCheck) role(ctx context.Context) error {
	r, err := slot.ReadRole(ctx, c.conn)
	if err != nil {
		return err
	}
	c.replica = r.Replicates()
	switch {
	case r.Super:
		c.add(found("role", r.Name, "superuser").warn("LOGIN REPLICATION is enough",
			"make a role of its own for the relay: sql/role.sql"))
	case r.Replication:
		c.add(found("role", r.Name, "REPLICATION"))
	case r.Rds:
		c.add(found("role", r.Name, "member of rds_replication"))
	default:
		f := errorFinding("role", r.Name, r.Verify(nil))
		f.Required = "REPLICATION"
		c.add(f)
	}
	if r.Limit >= 0 && r.Limit < connectionsOfARelay && !r.Super {
		c.add(found("role_connection_limit", r.Name, r.Limit).warn(
			fmt.Sprintf("%d: a relay has so many connections, and twice that while another takes over",
				connectionsOfARelay),
			fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d;", postgres.QuoteName(r.Name),
				2*connectionsOfARelay)))
	}
	if r.Until != nil && time.Until(*r.Until) < soonExpired {
		c.add(found("role_valid_until", r.Name, r.Until.UTC().Format(time.RFC3339)).warn(
			"a password that stays valid: with an expired one the relay cannot connect any more, and "+
				"the slot keeps WAL",
			"ALTER ROLE "+postgres.QuoteName(r.Name)+" VALID UNTIL 'infinity'; -- or a later date, "+
				"with a new password"))
	}
	return nil
}

// senders counts walsenders: the stream takes one, and so does each standby and each base backup.
func (c *serverCheck) senders(ctx context.Context) error {
	f, used, limit, err := c.used(ctx, "max_wal_senders", "pg_stat_replication")
	if err != nil {
		return err
	}
	if used >= limit {
		f = f.warn("a free one: for the stream, if it does not run, and for the take-over by another "+
			"relay",
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d; -- takes effect when the server is "+
				"restarted", max(10, 2*limit)))
	}
	c.add(f)
	return nil
}

// replication opens the kind of connection that streams: pg_hba.conf, a pooler between, or the
// lack of a walsender show only there.
func (c *serverCheck) replication(ctx context.Context) error {
	const code = "replication_connection"
	if !c.replica {
		return nil // role has reported it
	}
	if c.Beside && c.ours {
		c.add(found("replication_connection", "", "the relay streams"))
		return nil
	}
	conn, err := postgres.ConnectReplication(ctx, c.Postgres)
	if err != nil {
		c.add(c.refused(connectionFinding(code, "", err), err))
		return nil
	}
	defer postgres.Close(conn)
	id, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		c.add(found(code, "", err).fail("a connection that speaks the replication protocol",
			postgres.FixPooler))
		return nil
	}
	c.add(found(code, "", fmt.Sprintf("system %s, timeline %d", id.SystemID, id.Timeline)))
	return c.senderTimeout(ctx, conn)
}

// refused adds to f why there is no connection for replication.
func (c *serverCheck) refused(f Finding, err error) Finding {
	switch {
	case c.pooled && f.Class == ClassUnreachable:
		f.Required, f.Fix = "a connection for replication, which a pooler answers", postgres.FixPooler
	case errors.Is(err, postgres.ErrTooManyConnections) && c.ours: // the relay has its own
		f = f.warn("a free walsender: another relay could not take over", f.Fix)
		f.Class = ""
	}
	return f
}

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
	fix := "take wal_sender_timeout out of postgres.url, and out of ALTER ROLE ... SET, or set it " +
		"to 15s there"
	if c.pooled {
		fix = postgres.FixPooler
	}
	f := found("wal_sender_timeout", "", timeout.String()+", for the relay's own connection")
	switch {
	case timeout == 0:
		f.Observed = "0: never"
		f = f.warn("a limit: when the relay's host dies the slot stays taken, and no other relay can "+
			"go on", fix)
	case timeout < shortSenderTimeout:
		f = f.warn("more than "+shortSenderTimeout.String()+": a short hitch of the network ends the "+
			"stream", fix)
	case timeout > longSenderTimeout:
		f = f.info("15s, which the relay sets: when its host dies, another can go on only after that "+
			"time", fix)
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
	if err := postgres.LogIn(ctx, c.Postgres, cfg); err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	switch state := postgres.SQLState(err); {
	case err == nil:
		postgres.Close(conn)
		c.add(found("physical_replication", cfg.User,
			"the role may copy the whole cluster, all databases and passwords with it").info(
			"a line in pg_hba.conf that rejects it: the keyword replication stands for physical "+
				"connections only",
			"in pg_hba.conf, before all other lines:\n"+rejectLine(cfg)+
				"\nthen: SELECT pg_reload_conf();"))
	case state == "28000" || state == "42501": // pg_hba.conf, or insufficient_privilege
		c.add(found("physical_replication", cfg.User, "refused by the server, as it should be"))
	}
	return nil // replication_connection has reported any other error
}

// rejectLine is for pg_hba.conf, where quotes keep a role called all from being a keyword.
func rejectLine(cfg *pgconn.Config) string {
	if network, _ := pgconn.NetworkAddress(cfg.Host, cfg.Port); network == "unix" {
		return fmt.Sprintf("local  replication  %q  reject", cfg.User)
	}
	return fmt.Sprintf("host  replication  %q  all  reject", cfg.User)
}
