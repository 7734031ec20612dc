package diagnosis

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// site is an installation that a condition breaks: a database, a broker and a configuration.
type site struct {
	*parts.Database
	server   *embedded.Postgres // of the test alone; nil: shared
	broker   *parts.Broker      // for scripts of Kafka; nil: no condition of its own
	slot     string
	topics   string            // prefix of the topics
	file     string            // configuration
	settings map[string]string // its keys, with their values in TOML
}

// newSite is an empty database. It leads to no broker, unless the test sets one.
func newSite(t *testing.T, db *parts.Database) *site {
	t.Helper()
	s := &site{Database: db, slot: parts.Unique("slot"), topics: parts.Unique("topics")}
	s.file = filepath.Join(t.TempDir(), "postrider.toml")
	s.settings = map[string]string{
		"slot.name":                      quoted(s.slot),
		"router.route.topic.replacement": quoted(s.topics + ".${routedByValue}"),
		"http.listen":                    quoted("127.0.0.1:0"),
		"relay.backoff_min":              quoted("200ms"),
		"relay.backoff_max":              quoted("400ms"),
		"sink.kafka.dial_timeout":        quoted("5s"),
		"log.format":                     quoted("json"),
	}
	s.database(t, func(*url.URL) {})
	s.brokers(t, parts.Nobody(t))
	return s
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// set changes keys of the configuration: key, value in TOML, ...
func (s *site) set(t *testing.T, keyValues ...string) {
	t.Helper()
	for pair := range slices.Chunk(keyValues, 2) {
		s.settings[pair[0]] = pair[1]
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s.settings)) {
		fmt.Fprintf(&text, "%s = %s\n", key, s.settings[key])
	}
	require.NoError(t, os.WriteFile(s.file, []byte(text.String()), 0o600))
}

// database sets postgres.url: that of the superuser, changed.
func (s *site) database(t *testing.T, change func(*url.URL)) {
	t.Helper()
	u, err := url.Parse(s.DSN())
	require.NoError(t, err)
	change(u)
	s.set(t, "postgres.url", quoted(u.String()))
}

func (s *site) brokers(t *testing.T, addresses ...string) {
	t.Helper()
	var list []string
	for _, address := range addresses {
		list = append(list, quoted(address))
	}
	s.set(t, "sink.kafka.brokers", "["+strings.Join(list, ", ")+"]")
}

// install makes of the site what a user has who has typed init.
func (s *site) install(t *testing.T) {
	t.Helper()
	said := s.execute(t, "init")
	require.Zero(t, said.code, said.text)
}

// do runs statements as an administrator, each of them a transaction.
func (s *site) do(t *testing.T, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // at the end of a test, too
	conn, err := pgx.Connect(ctx, s.DSN())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	for _, statement := range statements {
		_, err := conn.PgConn().Exec(ctx, statement).ReadAll()
		require.NoError(t, err, "%s", statement)
	}
}

// insert writes a row whose topic is the prefix and "order".
func (s *site) insert(t *testing.T, payload string) {
	t.Helper()
	s.do(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) "+
		"VALUES ('order', '1', 'Created', '"+payload+"')")
}

func (s *site) topic() string { return s.topics + ".order" }

// restart is what a setting of the server takes that is not for a running one.
func (s *site) restart(t *testing.T) {
	t.Helper()
	require.NotNil(t, s.server, "the server is shared")
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, s.server.Stop(ctx))
	require.NoError(t, s.server.Start(ctx))
}

// query reads one value as an administrator.
func query[T any](t *testing.T, s *site, sql string) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

// await waits until done returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(parts.Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(t, "waited in vain for: "+what)
		}
	}
}
