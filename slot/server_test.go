package slot_test

import (
	"context"
	"net/url"
	"strings"
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

func TestMain(m *testing.M) {
	parts.AtOnce(3)
	parts.Main(m)
}

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

// heal types the SQL of a fix, statement by statement, without the remark behind it.
func (p *place) heal(f slot.Finding) {
	p.t.Helper()
	for i, line := range strings.Split(f.Fix, "\n") {
		sql, _, _ := strings.Cut(line, " -- ")
		if i > 0 && strings.HasPrefix(line, "or") {
			return // another way
		}
		require.Contains(p.t, sql, ";", "no SQL: %s", f.Fix)
		for statement := range strings.SplitSeq(sql, ";") {
			if strings.TrimSpace(statement) != "" {
				p.exec(statement)
			}
		}
	}
}

// awaitFinding checks until the finding of a code is of a severity: settings are reloaded, and statistics written, a moment later.
func (p *place) awaitFinding(pre slot.Preflight, code string, severity slot.Severity) slot.Finding {
	p.t.Helper()
	var last slot.Finding
	require.Eventually(p.t, func() bool {
		last = slot.Finding{}
		p.exec("SELECT 1") // 14 hands statistics in with a statement
		for _, f := range slot.Check(p.t.Context(), pre) {
			if f.Code == code {
				last = f
			}
		}
		return last.Severity == severity
	}, 30*time.Second, 100*time.Millisecond, "%s does not become %q", code, severity)
	return last
}

// gone is the severity of what is not found at all.
const gone slot.Severity = ""

// stream streams from a slot as a relay does, with the role and parameters of a connection, until the end of the test.
func stream(t *testing.T, pg postgres.Config, name string) *pgconn.PgConn {
	t.Helper()
	conn, err := postgres.ConnectReplication(t.Context(), pg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	require.NoError(t, pglogrepl.StartReplication(t.Context(), conn, name, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'postrider'"},
	}))
	return conn
}
