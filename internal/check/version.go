package check

import (
	"context"
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// pooler tells whether somebody between answers for the server. A server names the process that it
// began for the connection; a pooler makes a number up, or names a process that serves others too.
// For a direct connection it bounds how long a statement may take.
func (c *serverCheck) pooler(ctx context.Context) error {
	var pid uint32
	if err := c.conn.QueryRow(ctx, `SELECT pg_catalog.pg_backend_pid()`).Scan(&pid); err != nil {
		return fmt.Errorf("ask for the process: %w", postgres.Error(err))
	}
	c.pooled = pid != c.conn.PgConn().PID()
	if c.pooled {
		c.add(Finding{
			Severity: SeverityWarning, Code: "pooler", Observed: "a pooler answers in the place of the " +
				"server",
			Required: "the server itself: most poolers refuse replication, and PgBouncer, which passes " +
				"it through from 1.23 on, refuses the parameters that the relay sets for its rows",
			Fix: postgres.FixPooler,
		})
		return nil
	}
	c.add(okFinding("pooler", "", "none: the server itself answers"))
	if err := postgres.SetTimeout(ctx, c.conn, "lock_timeout", slot.LockTimeout); err != nil {
		return err
	}
	return postgres.SetTimeout(ctx, c.conn, "statement_timeout", checkStatement)
}

// tls compares what postgres.url asks for with what the server sees.
func (c *serverCheck) tls(ctx context.Context) error {
	cfg, err := postgres.ParseConfig(c.Postgres)
	if err != nil {
		return err
	}
	var encrypted bool
	var version, cipher string
	err = c.conn.QueryRow(ctx,
		`SELECT ssl, coalesce(version, ''), coalesce(cipher, '') FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()`).
		Scan(&encrypted, &version, &cipher)
	if err != nil {
		return fmt.Errorf("read pg_stat_ssl: %w", postgres.Error(err))
	}
	f := okFinding("tls", "", strings.TrimSpace(version+" "+cipher))
	if !encrypted {
		f.Observed = "none; the connection does not leave this machine"
	}
	fix := "in postgres.url: sslmode=verify-full&sslrootcert=FILE, with the authority that signed " +
		"the server's certificate"
	warn := func(observed, required string) {
		f.Severity, f.Observed, f.Required, f.Fix = SeverityWarning, observed, required, fix
	}
	clear, unverified := remoteWithoutTLS(cfg)
	switch {
	case clear != "":
		warn("the connection to "+clear+" is not encrypted (sslmode=disable)", "TLS: else who listens "+
			"on the way reads every row and can take the login over")
	case unverified != "":
		warn(f.Observed+", and whoever answers as "+unverified+" is believed", "sslmode=verify-full: "+
			"else who stands in between can pose as the server")
	case !encrypted && isTLS(c.conn):
		warn("encrypted from here, and not at the server", "TLS up to the server: somebody in "+
			"between, like a pooler, decrypts and passes on in the clear")
	}
	c.add(f)
	return nil
}

func isTLS(conn *pgx.Conn) bool {
	_, ours := conn.PgConn().Conn().(*tls.Conn)
	return ours
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

func (c *serverCheck) version(context.Context) error {
	c.add(judgeVersion(c.conn.PgConn().ParameterStatus("server_version")))
	return nil
}

var numbers = regexp.MustCompile(`^(\d+)\.(\d+)`)

// healed is, for each major version, the minor that healed what the one before it had broken while
// healing something else: since these, what a transaction learns of changes to the catalogue is
// passed on to others once, and not again and again (release notes of August 2025; 18 never had
// it). Up to two minors before, it was not passed on at all, and rows of transactions that were
// open while their table was added to the publication were missing.
var healed = map[int]int{14: 19, 15: 14, 16: 10, 17: 6}

// judgeVersion takes the version as the server introduces itself: "17.5 (Debian 17.5-1.pgdg12+1)".
func judgeVersion(text string) Finding {
	f := okFinding("server_version", "", text)
	found := numbers.FindStringSubmatch(text)
	if found == nil {
		return f // a development version
	}
	major, _ := strconv.Atoi(found[1])
	minor, _ := strconv.Atoi(found[2])
	fix := fmt.Sprintf("update the server to %d.%d or newer: the package, then a restart; data "+
		"stays as it is", major, healed[major])
	switch {
	case strings.Contains(text, "-YB-"):
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration,
			"PostgreSQL: the positions in YugabyteDB's keepalives can't be trusted"
		f.Fix = "relay from PostgreSQL"
	case major < oldestServer:
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration, fmt.Sprintf("%d or newer",
			oldestServer)
		f.Fix = "upgrade the server"
	case major > newestServer:
		f.Severity, f.Required = SeverityInfo, fmt.Sprintf("%d to %d, with which postrider is tested",
			oldestServer, newestServer)
		f.Fix = "look for a newer postrider; nothing is known to be wrong"
	case minor == healed[major]-1:
		f.Severity, f.Fix = SeverityWarning, fix
		f.Required = fmt.Sprintf("%d.%d: this minor's decoding can end with \"invalid memory alloc "+
			"request size\" when tables are created or altered while "+
			"transactions are open, again and again at the same place", major, healed[major])
	case minor < healed[major]-1:
		f.Severity, f.Fix = SeverityWarning, fix
		f.Required = fmt.Sprintf("%d.%d: before it, rows of a transaction that is open while its "+
			"table is added to the publication may not be sent",
			major, healed[major])
	}
	return f
}

func (c *serverCheck) walLevel(ctx context.Context) error {
	level, err := c.setting(ctx, "wal_level")
	if err != nil {
		return err
	}
	f := okFinding("wal_level", "wal_level", level)
	if level != "logical" {
		f = ErrorFinding("wal_level", "wal_level", slot.WrongLevel(level))
		f.Required = "logical"
	}
	c.add(f)
	return nil
}

func (c *serverCheck) primary(ctx context.Context) error {
	var standby bool
	if err := c.conn.QueryRow(ctx,
		`SELECT pg_catalog.pg_is_in_recovery()`).Scan(&standby); err != nil {
		return fmt.Errorf("ask for recovery: %w", postgres.Error(err))
	}
	if !standby {
		c.add(okFinding("primary", "", "the server is the primary"))
		return nil
	}
	f := ErrorFinding("primary", "", slot.AStandby())
	f.Required = "the primary"
	c.add(f)
	return nil
}

// libraries: what a server may load to decode with is restricted from the minor versions of August
// 2026 on.
func (c *serverCheck) libraries(ctx context.Context) error {
	var list string
	// The view leaves out what the role may not see, where current_setting writes an error into the
	// server's log.
	err := c.conn.QueryRow(ctx,
		`SELECT coalesce((SELECT setting FROM pg_catalog.pg_settings WHERE name = 'output_plugin_libraries'), '')`).Scan(&list)
	if err != nil {
		return fmt.Errorf("read setting output_plugin_libraries: %w", postgres.Error(err))
	}
	if f, known := judgeLibraries(list); known {
		c.add(f)
	}
	return nil
}

func judgeLibraries(list string) (f Finding, known bool) {
	if list == "" {
		return Finding{}, false // this version has no such setting, or the role may not see it
	}
	f = okFinding("output_plugin_libraries", "output_plugin_libraries", list)
	names := splitList(list)
	if slices.Contains(names, slot.Plugin) {
		return f, true
	}
	f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration,
		"pgoutput among them: the slot decodes with it"
	quoted := []string{postgres.QuoteText(slot.Plugin)}
	for _, name := range names {
		quoted = append(quoted, postgres.QuoteText(name))
	}
	f.Fix = "ALTER SYSTEM SET output_plugin_libraries = " + strings.Join(quoted, ", ") +
		"; SELECT pg_reload_conf();"
	return f, true
}
