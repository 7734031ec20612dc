package badinput

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// canary is the password of everything. It must never be seen.
const canary = "cAnary/pa55word"

// servers are what the sites of a test share.
type servers struct {
	binary   string // the built program, which uses them
	postgres *embedded.Postgres
	kafka    *embedded.Kafka
}

// site is a place where everything is in order, until a case makes its mistake: a directory with a configuration, a
// database of its own with outbox, publication and role, and a topic.
type site struct {
	*servers
	id       string
	dir      string
	env      []string
	url      *url.URL // postgres.url
	config   map[string][]string
	database string
	role     string
	slot     string
	own      *embedded.Kafka   // nil: the shared one
	freePort int               // of a server that a case starts later
	masks    map[string]string // what differs from run to run: what it is called on the page
}

func newServers(t *testing.T, pg embedded.PostgresConfig) *servers {
	t.Helper()
	pg.Version = "17" // its own words are on the page
	pg.HBA = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	s := &servers{binary: parts.Binary(t), postgres: parts.ExclusivePostgres(t, pg)}
	var err error
	s.kafka, err = embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{"outbox.event.order": 3}})
	require.NoError(t, err)
	t.Cleanup(s.kafka.Close)
	return s
}

// newSite needs a name that no other site of the servers has.
func newSite(t *testing.T, shared *servers, name string) *site {
	t.Helper()
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:10]
	s := &site{
		servers: shared, id: id, dir: t.TempDir(),
		database: "db_" + id, role: "role_" + id, slot: "slot_" + id,
	}
	s.sql(t, "postgres", `CREATE DATABASE `+s.database)
	s.sql(t, "postgres", `CREATE ROLE `+s.role+` LOGIN REPLICATION PASSWORD '`+canary+`'`)
	s.sql(t, s.database, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL,
		aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, created_at timestamptz NOT NULL DEFAULT now())`)
	s.sql(t, s.database, `CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)

	s.url = &url.URL{Scheme: "postgres", User: url.UserPassword(s.role, canary), Host: fmt.Sprintf("127.0.0.1:%d", s.postgres.Port()),
		Path: "/" + s.database, RawQuery: "sslmode=disable"}
	s.config = map[string][]string{
		"slot":       {`name = "` + s.slot + `"`},
		"sink.kafka": {`brokers = ["` + s.kafka.Brokers()[0] + `"]`},
		"relay":      {`backoff_min = "200ms"`, `backoff_max = "400ms"`}, // heal soon, and leave time to look
		"http":       {`listen = "127.0.0.1:0"`},
		"log":        {`level = "trace"`, `format = "json"`}, // the password must not be in any line
	}
	s.masks = map[string]string{
		s.database: "shop", s.role: "postrider", s.slot: "postrider", s.dir: "/etc/postrider",
		fmt.Sprint(s.postgres.Port()): "5432", s.kafka.Brokers()[0]: "127.0.0.1:9092",
	}
	return s
}

// sql runs statements as a superuser.
func (s *site) sql(t *testing.T, database, statements string) {
	t.Helper()
	conn := s.connect(t, database)
	defer func() { require.NoError(t, conn.Close(t.Context())) }() // now: a template must have no connections, a smart stop waits
	for _, one := range strings.SplitAfter(statements, ";") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		_, err := conn.PgConn().Exec(t.Context(), one).ReadAll() // on its own: some commands do not run in a transaction
		require.NoError(t, err, one)
	}
}

// connect connects as a superuser, until the end of the test.
func (s *servers) connect(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	return parts.Connect(t, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.postgres.Port(), database))
}

// set adds a line to a section, in the place of the one that sets the same key.
func (s *site) set(section, line string) {
	key, _, _ := strings.Cut(line, "=")
	s.config[section] = slices.DeleteFunc(s.config[section], func(l string) bool { return strings.HasPrefix(l, key+"=") })
	s.config[section] = append(s.config[section], line)
}

// write writes the configuration.
func (s *site) write(t *testing.T) {
	t.Helper()
	if s.url != nil {
		s.set("postgres", `url = "`+s.url.String()+`"`)
	}
	var b strings.Builder
	for _, section := range slices.Sorted(maps.Keys(s.config)) {
		fmt.Fprintf(&b, "[%s]\n%s\n", section, strings.Join(s.config[section], "\n"))
	}
	s.file(t, "postrider.toml", b.String())
}

// file writes a file into the site's directory and returns its path.
func (s *site) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// noSecret looks for the password as it is and as it travels.
func (s *site) noSecret(t *testing.T, text string) {
	t.Helper()
	for _, form := range []string{canary, url.QueryEscape(canary), url.PathEscape(canary), base64.StdEncoding.EncodeToString([]byte(canary))} {
		require.NotContains(t, text, form, "a password was printed")
	}
}

var changing = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\b[0-9A-F]{1,8}/[0-9A-F]{5,8}\b`), "0/1A2B3C8"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "d3b07384-d113-4ec6-a1b4-3f5c1d2e4a90"},
	{regexp.MustCompile(`\bpid \d+`), "pid 4711"},
	{regexp.MustCompile(` on [0-9.:\[\]a-f]+:53\b`), ""}, // the machine's name server
	{regexp.MustCompile(`\d+ of 60 slots`), "3 of 60 slots"},
}

// masked makes text the same on every machine.
func (s *site) masked(text string) string {
	for _, secret := range slices.SortedFunc(maps.Keys(s.masks), func(a, b string) int { return len(b) - len(a) }) {
		text = strings.ReplaceAll(text, secret, s.masks[secret])
	}
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.name)
	}
	return text
}
