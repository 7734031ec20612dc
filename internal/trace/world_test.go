package trace

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// world is an outbox, a broker, and a relay between them that runs or not.
type world struct {
	t      *testing.T
	broker *parts.Broker
	db     *parts.Database
	sql    *pgx.Conn
	file   string // configuration
	cfg    config.Config
	name   string // of the slot; topics begin with it
	relay  *parts.Relay
}

const outbox = `
	CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text,
		event_type text, payload text, created_at timestamptz DEFAULT clock_timestamp());
	CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`

// newWorld makes the tables, the topic of orders, and the configuration with further lines.
func newWorld(t *testing.T, tables string, further ...string) *world {
	t.Helper()
	return newWorldOn(t, parts.Postgres(t, parts.AnyVersion), tables, further...)
}

func newWorldOn(t *testing.T, db *parts.Database, tables string, further ...string) *world {
	t.Helper()
	w := &world{t: t, broker: parts.Kafka(t), db: db, name: parts.Unique("trace")}
	w.sql = w.db.Connect(t)
	w.do(tables)
	w.file = filepath.Join(t.TempDir(), "postrider.toml")
	text := fmt.Sprintf("%s\n[postgres]\nurl = %q\n[slot]\nname = %q\n[sink.kafka]\nbrokers = [%q]\n"+
		"[http]\nlisten = \"\"\n[log]\nformat = \"json\"\n",
		strings.ReplaceAll(strings.Join(further, "\n"), "PREFIX", w.name), w.db.DSN(), w.name,
		w.broker.Brokers()[0])
	if !strings.Contains(text, "[router]") && !strings.Contains(text, "[[router]]") {
		text += "[router]\nroute.topic.replacement = \"" + w.name + ".${routedByValue}\"\n"
	}
	require.NoError(t, os.WriteFile(w.file, []byte(text), 0o600))
	l, err := config.LoadValid(config.Source{Path: w.file})
	require.NoError(t, err)
	w.cfg = l.Config
	w.broker.CreateTopic(t, w.topic("order"), 3, nil)
	return w
}

func (w *world) topic(of string) string { return w.name + "." + of }

func (w *world) do(sql string) {
	w.t.Helper()
	_, err := w.sql.Exec(w.t.Context(), sql)
	require.NoError(w.t, err, sql)
}

// id is a UUID that ends with n.
func id(n int) string { return fmt.Sprintf("5f0b0bd2-6a3e-4b49-8a0a-%012d", n) }

// insert writes the event n of a key.
func (w *world) insert(n int, key string) {
	w.t.Helper()
	w.do(fmt.Sprintf("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) "+
		"VALUES ('%s', 'order', '%s', 'OrderCreated', 'CANARY')", id(n), key))
}

func (w *world) start() {
	w.t.Helper()
	w.relay = parts.StartRelay(w.t, parts.RelayConfig{}, "run", "--config", w.file)
	w.relay.AwaitLog(w.t, "streaming started")
}

// deliver waits until the slot has passed all that was written, and stops the relay.
func (w *world) deliver() {
	w.t.Helper()
	w.awaitPassed()
	w.relay.Stop(w.t)
}

func (w *world) awaitPassed() {
	w.t.Helper()
	var end string
	require.NoError(w.t, w.sql.QueryRow(w.t.Context(),
		"SELECT pg_current_wal_insert_lsn()::text").Scan(&end))
	parts.Await(w.t, "the slot beyond "+end, func() (passed bool, err error) {
		err = w.sql.QueryRow(w.t.Context(), "SELECT confirmed_flush_lsn >= $1::text::pg_lsn FROM "+
			"pg_replication_slots WHERE slot_name = $2", end, w.name).Scan(&passed)
		return passed, err
	})
}

func (w *world) request(r Request) Request {
	if r.MaxRead == 0 {
		r.MaxRead = DefaultMaxRead
	}
	if r.MaxScan == 0 {
		r.MaxScan = math.MaxInt64
	}
	r.Consented = true
	return r
}

// trace runs a search, whose text it shows, and which never has a payload.
func (w *world) trace(r Request) *Result {
	w.t.Helper()
	found, err := Run(w.t.Context(), w.cfg, w.request(r), nil)
	require.NoError(w.t, err)
	var text bytes.Buffer
	require.NoError(w.t, found.Print(&text))
	w.t.Logf("\n%s", text.String())
	require.NotContains(w.t, text.String(), "CANARY")
	return found
}

func (w *world) byID(n int) *Result {
	w.t.Helper()
	return w.trace(Request{ID: id(n)})
}

// fails runs a search that ends with an error and without a result.
func (w *world) fails(r Request) error {
	w.t.Helper()
	found, err := Run(w.t.Context(), w.cfg, w.request(r), nil)
	require.Error(w.t, err)
	require.Nil(w.t, found)
	return err
}

// urlAs is a connection string for another role.
func urlAs(dsn, role string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.User = url.User(role)
	return u.String(), nil
}

// createSlot makes the slot as init does.
func (w *world) createSlot() {
	w.t.Helper()
	w.do("SELECT pg_create_logical_replication_slot('" + w.name + "', 'pgoutput')")
	_, err := slot.Get(context.Background(), w.sql, w.name)
	require.NoError(w.t, err)
}
