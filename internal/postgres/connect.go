package postgres

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// applicationName is how our connections appear in pg_stat_activity unless the connection string names another.
const applicationName = "postrider"

// walSenderTimeout is set on our own replication connection. The server ends a connection that has been silent for that
// long, and only then is the slot free for another process: with the server's default of a minute, the takeover after a
// host died would take a minute. We send a status at least every ten seconds, so fifteen never end a healthy connection.
const walSenderTimeout = "15s"

// Bytes that a message of a server may measure. The driver makes room for as much as a message says that it will bring before it has come: the
// longest that we ask for is what the monitor sees of a slot, some kilobytes, and a row ends below 1 GiB.
const (
	longestAnswer = 16 << 20
	longestRow    = 1 << 30
)

// ParseConfig reads the setting and, for a secret given by file, the file. It makes no connection.
//
// Without sslmode, and with the modes prefer and allow, a host that is neither a socket nor a loopback address gets
// sslmode=verify-full: libpq's default would silently go on without encryption. Whoever wants that writes sslmode=disable.
// Of several hosts a writable one is used; target_session_attrs may ask for something else, and any means writable as well.
func ParseConfig(c Config) (*pgx.ConnConfig, error) {
	dsn, err := c.URL.Reveal()
	if err != nil {
		return nil, fmt.Errorf("%w: postgres.url: %w", ErrConfig, err)
	}
	pc, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, parseError(err)
	}
	if err := prepare(&pc.Config, c); err != nil {
		return nil, err
	}
	pc.ValidateConnect = pin(pc.ValidateConnect)
	pc.StatementCacheCapacity, pc.DescriptionCacheCapacity = rememberedStatements, rememberedStatements
	return pc, nil
}

// rememberedStatements is how many prepared statements a connection keeps: pgx makes room for all of them at once, 512 by default, half a megabyte.
// Nobody of us asks more questions again and again.
const rememberedStatements = 32

// ReplicationConfig is ParseConfig for a connection that speaks the replication protocol to one database.
func ReplicationConfig(c Config) (*pgconn.Config, error) {
	pc, err := replicationConfig(c, "database")
	if err != nil {
		return nil, err
	}
	pc.ValidateConnect = pin(pc.ValidateConnect)
	return pc, nil
}

// PhysicalConfig is ReplicationConfig for the whole cluster. Such a connection belongs to no database and runs no SQL.
func PhysicalConfig(c Config) (*pgconn.Config, error) { return replicationConfig(c, "true") }

func replicationConfig(c Config, mode string) (*pgconn.Config, error) {
	dsn, err := c.URL.Reveal()
	if err != nil {
		return nil, fmt.Errorf("%w: postgres.url: %w", ErrConfig, err)
	}
	pc, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, parseError(err)
	}
	if err := prepare(pc, c); err != nil {
		return nil, err
	}
	pc.RuntimeParams["replication"] = mode
	setDefault(pc.RuntimeParams, "wal_sender_timeout", walSenderTimeout)
	maps.Copy(pc.RuntimeParams, rowFormats)
	return pc, nil
}

// rowFormats are how values of rows are to be written, since a database or a role may have other habits (DateStyle = German) and the
// router reads one form of each. They are not for users to change. TestReplicationConfig_FixesHowValuesAreWritten
var rowFormats = map[string]string{
	"client_encoding":    "UTF8",
	"datestyle":          "ISO",
	"intervalstyle":      "postgres",
	"timezone":           "UTC",
	"bytea_output":       "hex",
	"extra_float_digits": "1", // the shortest text that reads back as the same number
	"lc_monetary":        "C",
}

// Connect opens a connection for SQL that asks about the server. For rows of tables there is ConnectRows, or AllowRows: here a message ends at 16 MiB. The caller closes
// it. Errors carry the package's sentinels.
func Connect(ctx context.Context, c Config) (*pgx.Conn, error) {
	return connect(ctx, c, nil)
}

// ConnectRows is Connect for reading tables: values in text format are written exactly as they come in the stream, and no timeout
// of the database or the role ends a long transaction. Row security that hides rows makes a query fail.
func ConnectRows(ctx context.Context, c Config) (*pgx.Conn, error) {
	params := maps.Clone(rowFormats)
	maps.Copy(params, map[string]string{
		"statement_timeout": "0", "idle_in_transaction_session_timeout": "0",
	})
	conn, err := connect(ctx, c, params)
	if err != nil {
		return nil, err
	}
	AllowRows(conn)
	// From 17; not every version knows it, so it cannot be given with the connection.
	_, err = conn.Exec(ctx, `SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'`)
	if err != nil {
		_ = conn.Close(ctx)
		return nil, Error(err)
	}
	return conn, nil
}

// AllowRows has a connection of Connect take rows of any length until the returned function is called, which then holds for answers again.
func AllowRows(conn *pgx.Conn) (done func()) {
	front := conn.PgConn().Frontend()
	front.SetMaxBodyLen(longestRow)
	return func() { front.SetMaxBodyLen(longestAnswer) }
}

func connect(ctx context.Context, c Config, params map[string]string) (*pgx.Conn, error) {
	pc, err := ParseConfig(c)
	if err != nil {
		return nil, err
	}
	maps.Copy(pc.RuntimeParams, params)
	PreferAnswering(ctx, &pc.Config)
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err != nil {
		return nil, Error(err)
	}
	return conn, nil
}

// ConnectReplication opens a connection that speaks the replication protocol. The caller closes it.
func ConnectReplication(ctx context.Context, c Config) (*pgconn.PgConn, error) {
	pc, err := ReplicationConfig(c)
	if err != nil {
		return nil, err
	}
	PreferAnswering(ctx, pc)
	conn, err := pgconn.ConnectConfig(ctx, pc)
	if err != nil {
		return nil, Error(err)
	}
	return conn, nil
}

func prepare(pc *pgconn.Config, c Config) error {
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = c.ConnectTimeout
	}
	setDefault(pc.RuntimeParams, "application_name", applicationName)
	pc.MaxProtocolMessageBodyLen = longestAnswer
	pc.BuildFrontend = observed(pc.BuildFrontend)

	targets := append([]*pgconn.FallbackConfig{{Host: pc.Host, Port: pc.Port, TLSConfig: pc.TLSConfig}}, pc.Fallbacks...)
	for _, t := range targets {
		if strings.Contains(t.Host, "@") {
			// Half of a password that was not percent-encoded would otherwise be looked up and printed as a host name.
			return fmt.Errorf("%w: postgres.url: the host contains an @: write special characters of user and password "+
				"percent-encoded, @ as %%40", ErrConfig)
		}
	}
	targets = refuseDowngrade(targets)
	pc.Host, pc.Port, pc.TLSConfig, pc.Fallbacks = targets[0].Host, targets[0].Port, targets[0].TLSConfig, targets[1:]

	if pc.ValidateConnect == nil && severalHosts(targets) {
		pc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return nil
}

// refuseDowngrade makes one verified attempt of what would be an attempt with TLS and one without.
// The driver expresses the modes prefer and allow, and prefer is the default, as two neighbouring attempts at the same host.
func refuseDowngrade(targets []*pgconn.FallbackConfig) []*pgconn.FallbackConfig {
	kept := make([]*pgconn.FallbackConfig, 0, len(targets))
	for i := 0; i < len(targets); i++ {
		t := targets[i]
		if i+1 == len(targets) || Local(t.Host) {
			kept = append(kept, t)
			continue
		}
		next := targets[i+1]
		samePlace := t.Host == next.Host && t.Port == next.Port
		if !samePlace || (t.TLSConfig == nil) == (next.TLSConfig == nil) {
			kept = append(kept, t)
			continue
		}
		withTLS := t.TLSConfig
		if withTLS == nil {
			withTLS = next.TLSConfig
		}
		kept = append(kept, &pgconn.FallbackConfig{Host: t.Host, Port: t.Port, TLSConfig: verified(withTLS, t.Host)})
		i++
	}
	return kept
}

func verified(c *tls.Config, host string) *tls.Config {
	c = c.Clone()
	c.InsecureSkipVerify = false
	c.VerifyPeerCertificate = nil
	c.ServerName = host
	return c
}

// Local tells whether the bytes never leave the machine.
func Local(host string) bool {
	if network, _ := pgconn.NetworkAddress(host, 0); network == "unix" || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func severalHosts(targets []*pgconn.FallbackConfig) bool {
	for _, t := range targets[1:] {
		if t.Host != targets[0].Host || t.Port != targets[0].Port {
			return true
		}
	}
	return false
}

func setDefault(params map[string]string, key, value string) {
	if _, set := params[key]; !set {
		params[key] = value
	}
}
