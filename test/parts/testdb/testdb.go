// Package testdb gives a test a database of its own with an outbox, and between.go what stands
// between a client and its server.
package testdb

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// DB is a database with a connection to it; its name serves for slots and roles, too.
type DB struct {
	T        *testing.T
	Conn     *pgx.Conn
	DSN      string
	Postgres postgres.Config
	Name     string
}

// Shared makes a DB on a server that must be left as it is.
func Shared(t *testing.T, version string) *DB {
	t.Helper()
	return New(t, parts.Postgres(t, version))
}

// Own makes a DB on a server that the test may stop, use up or configure.
func Own(t *testing.T, version string, params map[string]string) (*DB, *embedded.Postgres) {
	t.Helper()
	s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: params})
	return New(t, parts.NewDatabase(t, s.DSN())), s
}

// New makes a DB of a database.
func New(t *testing.T, db *parts.Database) *DB {
	t.Helper()
	return &DB{T: t, Conn: db.Connect(t), DSN: db.DSN(), Postgres: ConfigOf(db.DSN()), Name: db.Name}
}

// ConfigOf is the default configuration with a URL.
func ConfigOf(dsn string) postgres.Config {
	cfg := postgres.DefaultConfig()
	cfg.URL = secret.Of(dsn)
	return cfg
}

// Exec executes SQL.
func (d *DB) Exec(sql string, args ...any) {
	d.T.Helper()
	_, err := d.Conn.Exec(d.T.Context(), sql, args...)
	require.NoError(d.T, err)
}

// Outbox makes the table and its publication.
func (d *DB) Outbox() {
	d.T.Helper()
	d.Exec(`CREATE TABLE outbox (id int PRIMARY KEY, payload text)`)
	d.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
}

// Config is that of a slot with the name of the database.
func (d *DB) Config() slot.Config {
	cfg := slot.DefaultConfig()
	cfg.Name = d.Name
	cfg.CheckInterval = 200 * time.Millisecond
	return cfg
}

// Need is Config with what Outbox makes.
func (d *DB) Need() slot.Requirements {
	return slot.Requirements{Slot: d.Config(), Publication: "postrider",
		Tables: []string{"public.outbox"}}
}

// Role makes a role that may log in to the server, whatever authentication it requires.
func (d *DB) Role(name string) postgres.Config {
	d.T.Helper()
	d.Exec(`CREATE ROLE ` + name + ` LOGIN`)
	return d.Login(name)
}

// Login is the configuration of a connection as a role.
func (d *DB) Login(role string) postgres.Config {
	d.T.Helper()
	d.Exec(`ALTER ROLE ` + role + ` PASSWORD 'password of the test'`)
	u, err := url.Parse(d.DSN)
	require.NoError(d.T, err)
	u.User = url.UserPassword(role, "password of the test")
	return ConfigOf(u.String())
}

// Lean makes a role that has nothing but REPLICATION.
func (d *DB) Lean() postgres.Config {
	d.T.Helper()
	cfg := d.Role("lean_" + d.Name)
	d.Exec("ALTER ROLE lean_" + d.Name + " REPLICATION")
	return cfg
}

// Reads streams from a slot until the end of the test, as a relay does.
func (d *DB) Reads(cfg postgres.Config, name string) *pgconn.PgConn {
	d.T.Helper()
	conn, err := postgres.ConnectReplication(d.T.Context(), cfg)
	require.NoError(d.T, err)
	d.T.Cleanup(func() { _ = conn.Close(context.Background()) })
	require.NoError(d.T, pglogrepl.StartReplication(d.T.Context(), conn, name, 0,
		pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names 'postrider'"},
		}))
	return conn
}

// The versions that most tests run with.
var (
	OldAndNew = []string{"14", "18"}
	All       = []string{"14", "15", "16", "17", "18"}
)

// Versions runs a test for each version.
func Versions(t *testing.T, versions []string, f func(t *testing.T, version string)) {
	t.Helper()
	for _, v := range versions {
		t.Run(v, func(t *testing.T) { f(t, v) })
	}
}

// PartitionedSQL makes a partitioned outbox, beside a table from which another one inherits.
const PartitionedSQL = `
CREATE TABLE outbox (id int, payload text) PARTITION BY RANGE (id);
CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (10);
CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);
CREATE TABLE outbox_2_1 PARTITION OF outbox_2 FOR VALUES IN (11);
CREATE TABLE other (id int, payload text);
CREATE TABLE child () INHERITS (other);`

// Rows opens a connection to read tables with, until the end of the test.
func (d *DB) Rows() *pgx.Conn {
	d.T.Helper()
	conn, err := postgres.ConnectRows(d.T.Context(), d.Postgres)
	require.NoError(d.T, err)
	d.T.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Open begins a transaction with a statement that writes.
func (d *DB) Open(sql string) *pgx.Conn {
	d.T.Helper()
	conn := parts.Connect(d.T, d.DSN)
	_, err := conn.Exec(d.T.Context(), `BEGIN; `+sql)
	require.NoError(d.T, err)
	return conn
}

// NextXID is slot.NextXID.
func (d *DB) NextXID() uint32 {
	d.T.Helper()
	xid, err := slot.NextXID(d.T.Context(), d.Conn)
	require.NoError(d.T, err)
	return xid
}
