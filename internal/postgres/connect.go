package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// applicationName is the application_name of our connections unless the connection string has one.
const applicationName = "postrider"

// walSenderTimeout is set on the replication connection. The slot is free for another process when
// the server has ended a connection that was silent for that long: with the server's default the
// takeover after the death of a host takes a minute. A status is sent every ten seconds at least.
const walSenderTimeout = "15s"

// The longest message that is accepted from a server, in bytes: the driver allocates the announced
// length before the message arrives. The monitor's answers take kilobytes; a row is below 1 GiB.
const (
	longestAnswer = 16 << 20
	longestRow    = 1 << 30
)

// preparedStatements is the capacity of a connection's statement cache. pgx allocates all of it at
// once, half a megabyte for its default of 512, and no connection here repeats more than a few.
const preparedStatements = 32

// rowFormats fix the text form of values: the router reads one form of each, and a database or a
// role may set another (DateStyle = German). TestReplicationConfig_FixesHowValuesAreWritten
var rowFormats = map[string]string{
	"client_encoding":    "UTF8",
	"datestyle":          "ISO",
	"intervalstyle":      "postgres",
	"timezone":           "UTC",
	"bytea_output":       "hex",
	"extra_float_digits": "1", // the shortest text that reads back as the same number
	"lc_monetary":        "C",
}

// ParseConfig reads the setting, and the file of a secret that is given by file. It makes no
// connection. Of several hosts a writable one is used, unless target_session_attrs asks for
// something else than any. For sslmode see refuseDowngrade.
func ParseConfig(c Config) (*pgx.ConnConfig, error) {
	pc, err := baseConfig(c)
	if err != nil {
		return nil, err
	}
	pin(&pc.Config)
	return pc, nil
}

// ReplicationConfig is ParseConfig for a connection that speaks the replication protocol to one
// database.
func ReplicationConfig(c Config) (*pgconn.Config, error) {
	pc, err := replicationConfig(c, "database")
	if err != nil {
		return nil, err
	}
	pin(pc)
	return pc, nil
}

// ReplicationLogin is ReplicationConfig with LogIn: it is good for one connection.
func ReplicationLogin(ctx context.Context, c Config) (*pgconn.Config, error) {
	pc, err := ReplicationConfig(c)
	if err != nil {
		return nil, err
	}
	return pc, LogIn(ctx, c, pc)
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
	if splitsPassword(dsn, pc.RuntimeParams) {
		return nil, fmt.Errorf("%w: postgres.url: an @ follows the / behind the host: write special "+
			"characters of user and password percent-encoded, / as %%2F, and @ as %%40 anywhere",
			ErrConfig)
	}
	pc.StatementCacheCapacity, pc.DescriptionCacheCapacity = preparedStatements, preparedStatements
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = c.ConnectTimeout
	}
	setDefault(pc.RuntimeParams, "application_name", applicationName)
	pc.MaxProtocolMessageBodyLen = longestAnswer
	pc.BuildFrontend = observed(pc.BuildFrontend)

	hosts := refuseDowngrade(targets(&pc.Config))
	for _, t := range hosts {
		if strings.Contains(t.Host, "@") {
			// It may be half of a password, which would be looked up and printed as a host name.
			return nil, fmt.Errorf("%w: postgres.url: the host contains an @: write special "+
				"characters of user and password percent-encoded, @ as %%40", ErrConfig)
		}
	}
	setTargets(&pc.Config, hosts)
	if pc.ValidateConnect == nil && severalHosts(hosts) {
		pc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return pc, c.checkLogin(&pc.Config)
}

// splitsPassword reports whether a URL has an @ in the database, or in a parameter for the server.
// Then the / before it may be one of a password, whose rest would be printed as a database or be
// sent as a parameter. params are those of the URL.
func splitsPassword(dsn string, params map[string]string) bool {
	scheme, rest, _ := strings.Cut(dsn, "://")
	if scheme != "postgres" && scheme != "postgresql" {
		return false
	}
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	if _, database, _ := strings.Cut(rest, "/"); strings.Contains(database, "@") {
		return true
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		_, ours := params[name] // not one of the driver's, such as user
		if strings.Contains(name, "@") || ours && name != "application_name" && name != "options" &&
			strings.Contains(pair, "@") {
			return true
		}
	}
	return false
}

// Connect opens a connection for SQL about the server. A message is at most 16 MiB long: to read
// rows of tables use ConnectRows, or AllowRows. The caller closes it. Errors wrap the sentinels.
func Connect(ctx context.Context, c Config) (*pgx.Conn, error) {
	return connect(ctx, c, c.ConnectTimeout, nil)
}

// ConnectWithin is Connect that gives each host at most limit, unless connect_timeout of the URL
// is another. The password or token is obtained before, within the timeout of c.
func ConnectWithin(ctx context.Context, c Config, limit time.Duration) (*pgx.Conn, error) {
	return connect(ctx, c, limit, nil)
}

// ConnectRows is Connect for reading tables: values in text format are as in the stream, no
// timeout ends a long transaction, and a query fails where row security hides rows.
func ConnectRows(ctx context.Context, c Config) (*pgx.Conn, error) {
	params := maps.Clone(rowFormats)
	params["statement_timeout"], params["idle_in_transaction_session_timeout"] = "0", "0"
	conn, err := connect(ctx, c, c.ConnectTimeout, params)
	if err != nil {
		return nil, err
	}
	AllowRows(conn)
	// A startup packet cannot set it: versions before 17 do not have it.
	_, err = conn.Exec(ctx, `SELECT pg_catalog.set_config(name, '0', false)
		FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'`)
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

func connect(ctx context.Context, c Config, limit time.Duration,
	params map[string]string) (*pgx.Conn, error) {
	dialed := c
	dialed.ConnectTimeout = min(c.ConnectTimeout, limit)
	pc, err := ParseConfig(dialed)
	if err != nil {
		return nil, err
	}
	maps.Copy(pc.RuntimeParams, params)
	if err := LogIn(ctx, c, &pc.Config); err != nil {
		return nil, err
	}
	PreferAnswering(ctx, &pc.Config)
	conn, err := pgx.ConnectConfig(ctx, pc)
	return conn, c.Explain(Error(err))
}

// ConnectReplication opens a connection for the replication protocol. The caller closes it.
func ConnectReplication(ctx context.Context, c Config) (*pgconn.PgConn, error) {
	pc, err := ReplicationLogin(ctx, c)
	if err != nil {
		return nil, err
	}
	PreferAnswering(ctx, pc)
	conn, err := pgconn.ConnectConfig(ctx, pc)
	return conn, c.Explain(Error(err))
}

// IdentifySystem returns the system identifier and the timeline of the server, and the database of
// c. It connects for replication.
func IdentifySystem(ctx context.Context, c Config) (id pglogrepl.IdentifySystemResult, err error) {
	conn, err := ConnectReplication(ctx, c)
	if err != nil {
		return id, err
	}
	defer Close(conn)
	id, err = pglogrepl.IdentifySystem(ctx, conn)
	return id, Wrap(err, "identify system")
}

// SystemIdentifier is IdentifySystem over a connection for SQL. It is empty where the server does
// not give it, as managed services may not.
func SystemIdentifier(ctx context.Context, conn *pgx.Conn) (id string, err error) {
	id, err = One[string](ctx, conn,
		"SELECT system_identifier::text FROM pg_catalog.pg_control_system()")
	if refused := new(pgconn.PgError); errors.As(err, &refused) && !conn.IsClosed() {
		return "", nil
	}
	return id, Error(err)
}

func setDefault(params map[string]string, key, value string) {
	if _, set := params[key]; !set {
		params[key] = value
	}
}

// pins are settings of every session, whatever the database, the role or the connection string
// set. With this search_path a name without a schema is that of pg_catalog: an operator or a
// function of the same name in public or in "$user" would run with the relay's rights.
// TestConnect_PinsTheSession
var pins = [][2]string{
	{"quote_all_identifiers", "off"},
	{"search_path", "pg_catalog,pg_temp"},
	{"client_encoding", "UTF8"},
	{"standard_conforming_strings", "on"},
	{"row_security", "off"},
}

// whose asks which process answers, and what is set. It changes nothing.
const whose = `SELECT pg_catalog.pg_backend_pid(),
	pg_catalog.current_setting('quote_all_identifiers'),
	pg_catalog.current_setting('search_path'),
	pg_catalog.current_setting('client_encoding'),
	pg_catalog.current_setting('standard_conforming_strings'),
	pg_catalog.current_setting('row_security')`

// pinned sets pins in a session that is ours alone, and what older versions do not know.
const pinned = `SET quote_all_identifiers = off;
SET search_path = pg_catalog, pg_temp;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SET row_security = off;
SELECT pg_catalog.set_config('restrict_nonsystem_relation_kind', 'view, foreign-table', false)
	WHERE pg_catalog.current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL`

// pin has each connection set pins before it validates that the server is the wanted one of
// several hosts. A pooler lets sessions of others use the process that answers, and what is set
// there stays: nothing is. The startup packet has the settings too, and a pooler that does not
// pass them on is refused. A proxy that begins a process for each connection, and has numbers of
// its own, as Neon's, passes them on.
func pin(pc *pgconn.Config) {
	options := pc.RuntimeParams["options"]
	for _, p := range pins {
		if _, set := pc.RuntimeParams[p[0]]; set { // it takes precedence over options
			pc.RuntimeParams[p[0]] = p[1]
		}
		options += " -c " + p[0] + "=" + p[1]
	}
	pc.RuntimeParams["options"] = strings.TrimSpace(options)
	validate := pc.ValidateConnect
	pc.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		own, err := ownSession(ctx, conn)
		if err == nil && own {
			_, err = conn.Exec(ctx, pinned).ReadAll()
		}
		if err != nil || validate == nil {
			return err
		}
		return validate(ctx, conn)
	}
}

// ownSession reports whether the process that answers is the one that the server has announced.
// Where another one answers, and does not have pins, the error is ErrPooler.
func ownSession(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	results, err := conn.Exec(ctx, whose).ReadAll()
	if err != nil {
		return false, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 1+len(pins) {
		return false, errors.New("the server does not say which of its processes answers")
	}
	row := results[0].Rows[0]
	if string(row[0]) == strconv.FormatUint(uint64(conn.PID()), 10) {
		return true, nil
	}
	for i, p := range pins {
		if string(row[i+1]) != p[1] {
			return false, fmt.Errorf("%w: process %s answers, not %d", ErrPooler, row[0], conn.PID())
		}
	}
	return false, nil
}

const closeTimeout = time.Second

// Close closes a connection of pgx or pgconn within a second, also after the end of the caller's
// context. Errors have no consequence: the connection is closed.
func Close(conn interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// CloseBoth is Close, and waits within a second until the server has closed the connection too.
func CloseBoth(conn *pgx.Conn) {
	c, err := conn.PgConn().Hijack()
	if err != nil {
		Close(conn)
		return
	}
	defer c.Conn.Close() //nolint:errcheck // it is closed whatever the error
	c.Frontend.Send(&pgproto3.Terminate{})
	if c.Conn.SetDeadline(time.Now().Add(closeTimeout)) == nil && c.Frontend.Flush() == nil {
		_, _ = io.Copy(io.Discard, c.Conn)
	}
}
