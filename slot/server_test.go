package slot_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/embedded"
	"postrider/postgres"
	"postrider/secret"
	"postrider/slot"
	"postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// place is a database of its own with a connection to it; its name serves for slots and roles, too.
type place struct {
	t    *testing.T
	conn *pgx.Conn
	dsn  string
	cfg  postgres.Config
	name string
}

// onShared makes a place on a server that must be left as it is.
func onShared(t *testing.T, version string) *place {
	t.Helper()
	return newPlace(t, parts.Postgres(t, version))
}

// onOwn makes a place on a server that the test may stop, use up or configure.
func onOwn(t *testing.T, version string, params map[string]string) (*place, *embedded.Postgres) {
	t.Helper()
	s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: params})
	return newPlace(t, parts.NewDatabase(t, s.DSN())), s
}

func newPlace(t *testing.T, db *parts.Database) *place {
	t.Helper()
	return &place{t: t, conn: db.Connect(t), dsn: db.DSN(), cfg: configOf(db.DSN()), name: db.Name}
}

func configOf(dsn string) postgres.Config {
	cfg := postgres.DefaultConfig()
	cfg.URL = secret.Of(dsn)
	return cfg
}

func (p *place) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.conn.Exec(p.t.Context(), sql, args...)
	require.NoError(p.t, err)
}

// outbox makes the table and its publication.
func (p *place) outbox() {
	p.t.Helper()
	p.exec(`CREATE TABLE outbox (id int PRIMARY KEY, payload text)`)
	p.exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
}

func (p *place) config() slot.Config {
	cfg := slot.DefaultConfig()
	cfg.Name = p.name
	cfg.CheckInterval = 200 * time.Millisecond
	return cfg
}

func (p *place) need() slot.Requirements {
	return slot.Requirements{Slot: p.config(), Publication: "postrider", Tables: []string{"public.outbox"}}
}

// role makes a role that may log in to the server, however that asks for it.
func (p *place) role(name string) postgres.Config {
	p.t.Helper()
	p.exec(`CREATE ROLE ` + name + ` LOGIN`)
	return p.login(name)
}

func (p *place) login(role string) postgres.Config {
	p.t.Helper()
	p.exec(`ALTER ROLE ` + role + ` PASSWORD 'password of the test'`)
	u, err := url.Parse(p.dsn)
	require.NoError(p.t, err)
	u.User = url.UserPassword(role, "password of the test")
	return configOf(u.String())
}

func versions(t *testing.T, versions []string, f func(t *testing.T, version string)) {
	t.Helper()
	for _, v := range versions {
		t.Run(v, func(t *testing.T) { f(t, v) })
	}
}

var (
	oldAndNew = []string{"14", "18"}
	all       = []string{"14", "15", "16", "17", "18"}
)
