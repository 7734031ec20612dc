package examples

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

// Addresses in the commands and the configuration of examples/README.md.
const (
	pageServer = "postgres://postgres@127.0.0.1:5432/shop?sslmode=disable"
	pageRelay  = "postgres://postrider@127.0.0.1:5432/shop?sslmode=disable"
	pageJDBC   = "jdbc:postgresql://127.0.0.1:5432/shop?user=postgres&sslmode=disable"
	pageBroker = "127.0.0.1:9092"
	pageConfig = "examples/postrider.toml"
)

// shop is the database of the examples and the relay behind it.
type shop struct {
	db     *parts.Database
	conn   *pgx.Conn
	broker *parts.Broker
	topic  string // in place of outbox.event.order
	slot   string
	config string // in place of examples/postrider.toml
}

// openShop does what the page says is done before the first example. The topic has one partition: a record
// that is not before a later one is not there.
func openShop(t *testing.T, page string) *shop {
	t.Helper()
	prefix := parts.Unique("shop")
	s := &shop{db: parts.Postgres(t, parts.AnyVersion), broker: parts.Kafka(t), topic: prefix + ".order",
		slot: prefix, config: filepath.Join(t.TempDir(), "postrider.toml")}
	s.conn = s.db.Connect(t)
	s.broker.CreateTopic(t, s.topic, 1, nil)

	config := read(t, filepath.Join(root, pageConfig))
	require.Contains(t, config, pageRelay)
	config = strings.NewReplacer(pageRelay, s.db.DSN(), pageBroker, strings.Join(s.broker.Brokers(), `", "`)).Replace(config)
	require.NoError(t, os.WriteFile(s.config, []byte(config), 0o600))
	for _, line := range section(t, page, "Before the first one") {
		s.types(t, line)
	}
	return s
}

// types carries out a line that a person types in the root of the repository.
func (s *shop) types(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(strings.NewReplacer(`"$DATABASE_URL"`, s.db.DSN(), pageConfig, s.config).Replace(line))
	switch {
	case words[0] == "export": // runs has them, for another role
		require.Contains(t, []string{`export DATABASE_URL="` + pageServer + `"`, `export JDBC_DATABASE_URL="` + pageJDBC + `"`}, line)
	case words[0] == "psql": // which not every machine has
		require.Equal(t, []string{"psql", "-X", "-f", words[3], s.db.DSN()}, words)
		s.db.Exec(t, read(t, filepath.Join(root, words[3])))
	case words[0] == "postrider" && words[1] == "init":
		done, code := parts.RunRelay(t, parts.RelayConfig{OneLog: true}, append(words[1:], "--slot-name", s.slot)...)
		require.Zero(t, code, done.Log.String())
	case words[0] == "postrider" && words[1] == "run":
		prefix, _, _ := strings.Cut(s.topic, ".")
		relay := parts.StartRelay(t, parts.RelayConfig{}, append(words[1:], "--slot-name", s.slot, "--log-format", "json", "--http-listen", "",
			"--set", "router.route.topic.replacement="+prefix+".${routedByValue}")...)
		relay.AwaitLog(t, "streaming started")
	default:
		t.Fatalf("what runs %q?", line)
	}
}

// role makes a login that has INSERT on the two tables, and SELECT on orders and those that are named. It returns the
// variables by which a program connects with it. Only one at a time: the server refuses concurrent changes of a table's
// privileges.
func (s *shop) role(t *testing.T, readable ...string) []string {
	t.Helper()
	name := parts.Unique("shop")
	s.db.Exec(t, fmt.Sprintf("CREATE ROLE %[1]s LOGIN PASSWORD '%[1]s'; GRANT INSERT ON outbox TO %[1]s; GRANT INSERT, SELECT ON orders TO %[1]s", name))
	t.Cleanup(func() { // the context of the test has ended
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, s.db.DSN())
		require.NoError(t, err)
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.PgConn().Exec(ctx, fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", name)).ReadAll()
		require.NoError(t, err)
	})
	for _, table := range readable {
		s.db.Exec(t, fmt.Sprintf("GRANT SELECT ON %s TO %s", table, name))
	}
	dsn, err := url.Parse(s.db.DSN())
	require.NoError(t, err)
	dsn.User = url.UserPassword(name, name)
	jdbc := url.Values{"user": {name}, "password": {name}, "sslmode": {dsn.Query().Get("sslmode")}}
	return []string{"DATABASE_URL=" + dsn.String(), "JDBC_DATABASE_URL=jdbc:postgresql://" + dsn.Host + dsn.Path + "?" + jdbc.Encode()}
}

// order is one that a program printed.
type order struct{ id, event string }

var printed = regexp.MustCompile(`^placed (\S+) event (\S+)\nrolled back (\S+) event (\S+)\n`)

// color is what Maven writes around the output of a program, also with -B.
var color = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// orders reads what a program prints, and nothing else: pairs of an order that was placed and one
// that was rolled back.
func orders(t *testing.T, stdout string) (placed, rolledBack []order) {
	t.Helper()
	stdout = color.ReplaceAllString(stdout, "")
	require.NotEmpty(t, stdout)
	for rest := stdout; rest != ""; {
		m := printed.FindStringSubmatch(rest)
		require.NotNil(t, m, "the program printed:\n%s", stdout)
		placed, rolledBack = append(placed, order{m[1], m[2]}), append(rolledBack, order{m[3], m[4]})
		rest = rest[len(m[0]):]
	}
	return placed, rolledBack
}

// requireRecord compares the record of an order that was placed with what every example emits.
func (s *shop) requireRecord(t *testing.T, o order) {
	t.Helper()
	records := s.broker.ConsumeUntil(t, []string{s.topic}, func(records []*kgo.Record) bool { return len(withKey(records, o.id)) > 0 })
	found := withKey(records, o.id)
	require.Len(t, found, 1)
	record := found[0]
	require.Equal(t, s.topic, record.Topic)
	require.Equal(t, `{"orderId": "`+o.id+`", "customer": "Zoë", "totalCents": 1250}`, string(record.Value))
	require.True(t, json.Valid(record.Value))
	require.Equal(t, []kgo.RecordHeader{{Key: "id", Value: []byte(o.event)}, {Key: "eventType", Value: []byte("OrderPlaced")},
		{Key: "schema-version", Value: []byte("1")}}, record.Headers)
}

// requireRows looks for the rows of an order and its event.
func (s *shop) requireRows(t *testing.T, o order, want int) {
	t.Helper()
	// Connections are not for several tests at once.
	conn := s.db.Connect(t)
	var inOrders, inOutbox int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM orders WHERE id::text = $1 AND customer = 'Zoë' AND total_cents = 1250),
		(SELECT count(*) FROM outbox WHERE id::text = $2 OR aggregate_id = $1)`, o.id, o.event).Scan(&inOrders, &inOutbox))
	require.Equal(t, want, inOrders, "rows of order %s", o.id)
	require.Equal(t, want, inOutbox, "rows of event %s", o.event)
}

func withKey(records []*kgo.Record, key string) (found []*kgo.Record) {
	for _, record := range records {
		if string(record.Key) == key {
			found = append(found, record)
		}
	}
	return found
}

func idOf(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == "id" {
			return string(header.Value)
		}
	}
	return ""
}

// root is the root of the repository.
var root = filepath.Join("..", "..")

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// section returns the commands under a heading of a page, one line each.
func section(t *testing.T, page, heading string) []string {
	t.Helper()
	block := regexp.MustCompile("(?s)\n## " + regexp.QuoteMeta(heading) + "\n(?:[^#]*?)```sh\n(.*?)```").FindStringSubmatch(page)
	require.NotNil(t, block, "the page has no commands under %q", heading)
	return strings.Split(strings.TrimSpace(block[1]), "\n")
}

// inPath skips the test unless all commands are in PATH.
func inPath(t *testing.T, part, install string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if _, err := exec.LookPath(command); err != nil {
			parts.Lacking(t, part, err.Error()+" ("+install+")")
		}
	}
}
