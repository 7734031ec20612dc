package pages

import (
	"fmt"
	"io"
	"net/http"
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

func TestMain(m *testing.M) { parts.Main(m) }

// page is one of docs, of which a test has to use every code block.
type page struct {
	t      *testing.T
	name   string
	text   string
	unused []string
}

var (
	fenced   = regexp.MustCompile("(?ms)^```[a-z]+\n(.*?)^```$")
	indented = regexp.MustCompile("(?m)(?:^\n|\\A)((?:^    .*\n|^\n)+)")
)

func open(t *testing.T, name string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	require.NoError(t, err)
	p := &page{t: t, name: name, text: string(text)}
	for _, m := range fenced.FindAllStringSubmatch(p.text, -1) {
		p.unused = append(p.unused, m[1])
	}
	for _, m := range indented.FindAllStringSubmatch(fenced.ReplaceAllString(p.text, ""), -1) {
		if block := strings.TrimSpace(m[1]); block != "" {
			p.unused = append(p.unused, strings.ReplaceAll(block, "\n    ", "\n"))
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			require.Empty(t, p.unused, "blocks of %s that this test does not use", name)
		}
	})
	return p
}

// block returns the code block that begins with some text.
func (p *page) block(begin string) string {
	p.t.Helper()
	for i, b := range p.unused {
		if strings.HasPrefix(b, begin) {
			p.unused = append(p.unused[:i:i], p.unused[i+1:]...)
			return b
		}
	}
	require.FailNow(p.t, "no block left that begins with "+begin, p.name)
	return ""
}

var bench = regexp.MustCompile(`^go test .*-bench (\w+) .*\n$`)

// benchmark requires that the page has a command for a benchmark of test/faults that is there, under this name.
func (p *page) benchmark(file string) {
	p.t.Helper()
	found := bench.FindStringSubmatch(p.block("go test "))
	require.NotNil(p.t, found)
	source, err := os.ReadFile(filepath.Join("..", "faults", file))
	require.NoError(p.t, err)
	require.Contains(p.t, string(source), "func Benchmark"+found[1]+"(")
}

// inline requires that the page has a command in its sentences, and returns it.
func (p *page) inline(code string) string {
	p.t.Helper()
	require.Contains(p.t, strings.Join(strings.Fields(p.text), " "), "`"+code+"`", p.name)
	return code
}

// site is a server whose roles are those of the pages: app owns the outbox, and the relay is postrider.
type site struct {
	*testing.T
	dsn    string // of the superuser
	broker *parts.Broker
	admin  *pgx.Conn
	app    *pgx.Conn
	dir    string
	topic  string
}

// newSite makes roles, table and publication. The table belongs to app.
func newSite(t *testing.T, table string) *site {
	t.Helper()
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	s := &site{T: t, broker: parts.RealKafka(t), dir: t.TempDir(), dsn: parts.NewDatabase(t, server.DSN()).DSN()}
	t.Cleanup(func() { require.NotContains(t, server.Output(), "WARNING:", "in the log of the server") })
	s.admin = parts.Connect(t, s.dsn)
	s.script("sql/role.sql")
	s.exec(`CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app`)
	s.app = parts.Connect(t, s.as("app"))
	s.execAs(s.app, table)
	s.exec(`CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	s.topic = s.broker.Topic(t, 1)
	return s
}

func (s *site) as(role string) string {
	s.Helper()
	dsn, err := url.Parse(s.dsn)
	require.NoError(s, err)
	dsn.User = url.User(role)
	return dsn.String()
}

func (s *site) exec(sql string) { s.Helper(); s.execAs(s.admin, sql) }

func (s *site) execAs(conn *pgx.Conn, sql string) {
	s.Helper()
	_, err := conn.Exec(s.Context(), sql)
	require.NoError(s, err, sql)
}

// script runs a file of the repository as psql does.
func (s *site) script(path string) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", path))
	require.NoError(s, err)
	s.exec(string(text))
}

// psql does what a command of a page does.
func (s *site) psql(command string) {
	s.Helper()
	path, found := strings.CutPrefix(command, "psql -v ON_ERROR_STOP=1 -f ")
	require.True(s, found, command)
	s.script(path)
}

func (s *site) count(sql string) (n int) {
	s.Helper()
	require.NoError(s, s.admin.QueryRow(s.Context(), sql).Scan(&n), sql)
	return n
}

// insert inserts events as the application.
func (s *site) insert(n int) {
	s.Helper()
	_, err := s.app.Exec(s.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload)
		SELECT 'order', n::text, '{}' FROM generate_series(1, $1::int) n`, n)
	require.NoError(s, err)
}

// configure writes the configuration of the relay, with what a page has of it.
func (s *site) configure(toml string) {
	s.Helper()
	text := fmt.Sprintf(`[postgres]
url = %q
[replication]
tables = ["public.outbox"]
status_interval = "200ms"
[router]
table.field.event.type = ""
route.topic.replacement = %q
[sink.kafka]
brokers = [%q]
[http]
listen = "127.0.0.1:0"
`, s.as("postrider"), s.topic, strings.Join(s.broker.Brokers(), `", "`)) + toml
	require.NoError(s, os.WriteFile(filepath.Join(s.dir, "postrider.toml"), []byte(text), 0o600))
}

// start starts the relay, with further settings, and waits until it streams.
func (s *site) start(settings ...string) *parts.Relay {
	s.Helper()
	r := parts.StartRelay(s, parts.RelayConfig{Dir: s.dir, Env: parts.Environment(settings...)}, "run")
	r.AwaitLog(s, "streaming started")
	return r
}

// run types a command of a page, and returns what it prints.
func (s *site) run(command string, further ...string) string {
	s.Helper()
	args := append(strings.Fields(command)[1:], further...)
	r, code := parts.RunRelay(s, parts.RelayConfig{Dir: s.dir}, args...)
	require.Zero(s, code, "%s\n%s%s", command, r.Stdout.String(), r.Log.String())
	return r.Stdout.String()
}

// metrics are those of a relay.
func (s *site) metrics(r *parts.Relay) string { return s.get(r, "/metrics") }

func (s *site) get(r *parts.Relay, path string) string {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+r.Address()+path, nil)
	require.NoError(s, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(s, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s, err)
	return string(text)
}

var series = regexp.MustCompile("postrider_[a-z_]+")

// exports waits until the relay exports every series that the page names with a prefix, but for some.
func (p *page) exports(s *site, r *parts.Relay, prefix string, but ...string) {
	s.Helper()
	var named []string
	for _, name := range series.FindAllString(p.text, -1) {
		if strings.HasPrefix(name, prefix) && !slices.Contains(but, name) {
			named = append(named, name)
		}
	}
	require.NotEmpty(s, named)
	for _, name := range named {
		parts.Await(s, name, func() (bool, error) { return strings.Contains(s.metrics(r), "\n"+name), nil })
	}
}
