package slot_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"postrider/embedded"
	"postrider/postgres"
	"postrider/secret"
	"postrider/slot"
)

// One server per version for all tests that leave it as it is; each test has databases of its own.
var shared = struct {
	sync.Mutex
	servers map[string]*embedded.Postgres
	names   int
}{servers: map[string]*embedded.Postgres{}}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range shared.servers {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func startServer(version string, params map[string]string) (*embedded.Postgres, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a first start downloads
	defer cancel()
	return embedded.StartPostgres(ctx, embedded.PostgresConfig{Version: version, Params: params})
}

// ownServer is for tests that stop it, use its slots up or change its settings.
func ownServer(t *testing.T, version string, params map[string]string) *embedded.Postgres {
	t.Helper()
	s, err := startServer(version, params)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func sharedServer(t *testing.T, version string) *embedded.Postgres {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.servers[version] == nil {
		s, err := startServer(version, nil)
		require.NoError(t, err)
		shared.servers[version] = s
	}
	return shared.servers[version]
}

// place is a database of its own with a connection to it, and a name for slots that no other test has.
type place struct {
	t    *testing.T
	conn *pgx.Conn
	cfg  postgres.Config
	name string
}

func database(t *testing.T, s *embedded.Postgres) *place {
	t.Helper()
	shared.Lock()
	shared.names++
	name := fmt.Sprintf("t%d", shared.names)
	shared.Unlock()
	admin := connect(t, s.DSN())
	_, err := admin.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	dsn := strings.Replace(s.DSN(), "/postgres?", "/"+name+"?", 1)
	p := &place{t: t, conn: connect(t, dsn), cfg: configOf(dsn), name: name}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err != nil {
			return // the test has stopped its server
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, name)
		require.NoError(t, err)
	})
	return p
}

func configOf(dsn string) postgres.Config {
	cfg := postgres.DefaultConfig()
	cfg.URL = secret.Of(dsn)
	return cfg
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // may have been ended with its server
	return conn
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

// as is the configuration for another user.
func as(dsn, user string) postgres.Config {
	return configOf(strings.Replace(dsn, "//postgres@", "//"+user+"@", 1))
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
