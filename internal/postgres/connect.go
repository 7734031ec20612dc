package postgres

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// applicationName is the application_name of our connections unless the connection string has one.
const applicationName = "postrider"

// walSenderTimeout is set on our own replication connection. The server ends a connection that has
// been silent for that long, and only then is the slot free for another process: with the server's
// default the takeover after a host died takes a minute. We send a status at least every ten
// seconds, so fifteen never end a healthy connection.
const walSenderTimeout = "15s"

// The longest message of a server that is accepted, in bytes. The driver allocates the length that
// a message announces before the message has come. Our longest answer is what the monitor reads of
// a slot, some kilobytes; a row is less than 1 GiB.
const (
	longestAnswer = 16 << 20
	longestRow    = 1 << 30
)

// preparedStatements is how many prepared statements a connection keeps. pgx allocates for all of
// them at once, half a megabyte for its default of 512, and no connection of ours repeats more
// than a few.
const preparedStatements = 32

// rowFormats fix how the server writes the values of rows: the router reads one form of each, and
// a database or a role may set another (DateStyle = German). Users cannot change them.
// TestReplicationConfig_FixesHowValuesAreWritten
var rowFormats = map[string]string{
	"client_encoding":    "UTF8",
	"datestyle":          "ISO",
	"intervalstyle":      "postgres",
	"timezone":           "UTC",
	"bytea_output":       "hex",
	"extra_float_digits": "1", // the shortest text that reads back as the same number
	"lc_monetary":        "C",
}

// ParseConfig reads the setting and, for a secret given by file, the file. It makes no connection.
//
// Without sslmode, and with the modes prefer and allow, a host that is neither a socket nor a
// loopback address gets sslmode=verify-full: with libpq's default the connection silently has no
// encryption where the server refuses it. sslmode=disable asks for that. Of several hosts a
// writable one is used, unless target_session_attrs asks for something else; any counts as
// writable, too.
func ParseConfig(c Config) (*pgx.ConnConfig, error) {
	pc, err := baseConfig(c)
	if err != nil {
		return nil, err
	}
	pc.ValidateConnect = pin(pc.ValidateConnect)
	return pc, nil
}

// ReplicationConfig is ParseConfig for a connection that speaks the replication protocol to one
// database.
func ReplicationConfig(c Config) (*pgconn.Config, error) {
	pc, err := replicationConfig(c, "database")
	if err != nil {
		return nil, err
	}
	pc.ValidateConnect = pin(pc.ValidateConnect)
	return pc, nil
}

// PhysicalConfig is ReplicationConfig for the whole cluster. Such a connection has no database and
// runs no SQL.
func PhysicalConfig(c Config) (*pgconn.Config, error) { return replicationConfig(c, "true") }

func replicationConfig(c Config, mode string) (*pgconn.Config, error) {
	pc, err := baseConfig(c)
	if err != nil {
		return nil, err
	}
	pc.RuntimeParams["replication"] = mode
	setDefault(pc.RuntimeParams, "wal_sender_timeout", walSenderTimeout)
	maps.Copy(pc.RuntimeParams, rowFormats)
	return &pc.Config, nil
}

func baseConfig(c Config) (*pgx.ConnConfig, error) {
	dsn, err := c.URL.Reveal()
	if err != nil {
		return nil, fmt.Errorf("%w: postgres.url: %w", ErrConfig, err)
	}
	pc, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, parseError(err)
	}
	pc.StatementCacheCapacity, pc.DescriptionCacheCapacity = preparedStatements, preparedStatements
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = c.ConnectTimeout
	}
	setDefault(pc.RuntimeParams, "application_name", applicationName)
	pc.MaxProtocolMessageBodyLen = longestAnswer
	pc.BuildFrontend = observed(pc.BuildFrontend)

	hosts := targets(&pc.Config)
	for _, t := range hosts {
		if strings.Contains(t.Host, "@") {
			// It may be half of a password, which would be looked up and printed as a host name.
			return nil, fmt.Errorf("%w: postgres.url: the host contains an @: write special "+
				"characters "+
				"of user and password percent-encoded, @ as %%40", ErrConfig)
		}
	}
	hosts = refuseDowngrade(hosts)
	setTargets(&pc.Config, hosts)
	if pc.ValidateConnect == nil && severalHosts(hosts) {
		pc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return pc, nil
}

// Connect opens a connection for SQL about the server. A message is at most 16 MiB long: to read
// rows of tables use ConnectRows, or AllowRows. The caller closes it. Errors carry the package's
// sentinels.
func Connect(ctx context.Context, c Config) (*pgx.Conn, error) {
	return connect(ctx, c, nil)
}

// ConnectRows is Connect for reading tables. Values in text format are written exactly as in the
// stream, no timeout of the database or the role ends a long transaction, and a query fails where
// row security hides rows.
func ConnectRows(ctx context.Context, c Config) (*pgx.Conn, error) {
	params := maps.Clone(rowFormats)
	params["statement_timeout"], params["idle_in_transaction_session_timeout"] = "0", "0"
	conn, err := connect(ctx, c, params)
	if err != nil {
		return nil, err
	}
	AllowRows(conn)
	// A startup packet cannot set it: versions before 17 do not know it.
	_, err = conn.Exec(ctx, `SELECT pg_catalog.set_config(name, '0', false)`+
		` FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'`)
	if err != nil {
		_ = conn.Close(ctx)
		return nil, Error(err)
	}
	return conn, nil
}

// AllowRows lets a connection of Connect accept rows of any length until done is called.
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
	return conn, Error(err)
}

// ConnectReplication opens a connection that speaks the replication protocol. The caller closes
// it.
func ConnectReplication(ctx context.Context, c Config) (*pgconn.PgConn, error) {
	pc, err := ReplicationConfig(c)
	if err != nil {
		return nil, err
	}
	PreferAnswering(ctx, pc)
	conn, err := pgconn.ConnectConfig(ctx, pc)
	return conn, Error(err)
}

// targets lists the attempts of a configuration: one or two for each host.
func targets(pc *pgconn.Config) []*pgconn.FallbackConfig {
	first := &pgconn.FallbackConfig{Host: pc.Host, Port: pc.Port, TLSConfig: pc.TLSConfig}
	return append([]*pgconn.FallbackConfig{first}, pc.Fallbacks...)
}

func setTargets(pc *pgconn.Config, targets []*pgconn.FallbackConfig) {
	first := targets[0]
	pc.Host, pc.Port, pc.TLSConfig, pc.Fallbacks = first.Host, first.Port, first.TLSConfig,
		targets[1:]
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
