package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

const partitions = 6

// inFlight is the limit that the relays run with: small, so that a stalled broker fills it and a kill repeats little.
const inFlight = 1000

// repeats bounds what the end of one session repeats: what was in flight, and what was acknowledged since the last status. One
// leaves every 100 ms: that is 100 rows of these tests, and all that have waited meanwhile where the relay is catching up.
const repeats = inFlight + 3000

// rig is one outbox, one slot and one topic: everything of a test but the processes.
type rig struct {
	dsn         string // of the database with the outbox, for the test itself
	url         string // where the relay connects
	broker      *parts.Broker
	brokers     []string // where the relay connects
	topic       string
	table       string
	slot        string
	publication string
	settings    map[string]string // further keys of the configuration, as TOML
	command     []string          // the relay, and what stands before it; nil: the binary
	tally       *audit.Tally
	bulk        uint64                    // events per key that backlog has written
	loads       int                       // started so far: each has keys of its own
	home        map[string]int32          // partition of each key that has arrived
	newest      map[string]uint64         // highest event of each key that has arrived
	last        map[string]uint64         // event of each key that arrived last
	env         []string                  // of the relay, over the test's own
	decode      func(value []byte) []byte // a record's value to the payload; nil: they are the same
	grown       bool                      // partitions were added, so that a key may be in two
}

// newRig makes a database on the server of a superuser's DSN, with outbox and publication, and a topic.
func newRig(t testing.TB, server string, broker *parts.Broker) *rig {
	t.Helper()
	db := parts.NewDatabase(t, server)
	recorder.use(t, "PostgreSQL "+query[string](t, db.DSN(), "SELECT split_part(current_setting('server_version'), ' ', 1)"))
	if broker.Real {
		recorder.use(t, "Kafka "+parts.KafkaVersion)
	}
	r := &rig{
		dsn: db.DSN(), url: db.DSN(), broker: broker, brokers: broker.Brokers(), topic: parts.Unique("topic"),
		table: "public.outbox", slot: parts.Unique("slot"), publication: parts.Unique("publication"), tally: audit.New(), home: map[string]int32{},
		newest: map[string]uint64{}, last: map[string]uint64{},
		settings: map[string]string{"relay.in_flight_messages": fmt.Sprint(inFlight), "relay.backoff_max": `"2s"`},
	}
	broker.CreateTopic(t, "outbox.event."+r.topic, partitions, nil)
	r.createObjects(t, r.dsn)
	return r
}

// createObjects makes outbox, publication and slot. The slot is not left to the relay: what is committed before is never sent.
func (r *rig) createObjects(t testing.TB, dsn string) {
	t.Helper()
	execute(t, dsn, createOutbox+"; "+r.createPublication())
	execute(t, dsn, "SELECT pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
}

func (r *rig) createPublication() string {
	return "CREATE PUBLICATION " + r.publication + " FOR TABLE outbox WITH (publish = 'insert')"
}

// sameObjects makes database, outbox, publication and slot of the same names on another server, and returns the database's DSN.
func sameObjects(t testing.TB, r *rig, server string) string {
	t.Helper()
	name := query[string](t, r.dsn, "SELECT current_database()")
	execute(t, server, "CREATE DATABASE "+name)
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.Path = "/" + name
	dsn := u.String()
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), "SELECT pg_drop_replication_slot($1)", r.slot)
		require.NoError(t, err)
	})
	r.createObjects(t, dsn)
	return dsn
}

// severalHosts is a URL that leads to the first server that takes connections.
func severalHosts(t testing.TB, first, second string) string {
	t.Helper()
	a, err := url.Parse(first)
	require.NoError(t, err)
	b, err := url.Parse(second)
	require.NoError(t, err)
	a.Host += "," + b.Host
	return a.String()
}

const createOutbox = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL,
	aggregate_id text NOT NULL, event_type text NOT NULL DEFAULT 'changed', payload jsonb NOT NULL, number bigint NOT NULL);
	CREATE INDEX ON outbox (aggregate_id, number)`

// through leads the relay to PostgreSQL over a proxy.
func (r *rig) through(t testing.TB) *parts.Proxy {
	t.Helper()
	u, err := url.Parse(r.dsn)
	require.NoError(t, err)
	p, err := parts.StartProxy(u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	u.Host = p.Addr()
	r.url = u.String()
	return p
}

// config is the file that the relay reads.
func (r *rig) config(listen string) string {
	keys := map[string]string{
		"postgres.url":            quote(r.url),
		"slot.name":               quote(r.slot),
		"replication.publication": quote(r.publication),
		"replication.tables":      "[" + quote(r.table) + "]",
		"sink.kafka.brokers":      `["` + strings.Join(r.brokers, `", "`) + `"]`,
		"http.listen":             quote(listen),
		"log.format":              `"json"`,
		"log.level":               `"debug"`,
	}
	maps.Copy(keys, r.settings)
	if r.settings["postgres.url_file"] != "" {
		delete(keys, "postgres.url")
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintf(&b, "%s = %s\n", k, keys[k])
	}
	return b.String()
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// query asks for one value, over a connection of its own.
func query[T any](t testing.TB, dsn, sql string, args ...any) T {
	t.Helper()
	var v T
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v), sql)
	return v
}

// connect opens a connection that its caller closes: one of each round would be too many at the end of a long form.
func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	return conn
}

// execute runs statements over a connection of its own.
func execute(t testing.TB, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.PgConn().Exec(t.Context(), sql).ReadAll()
	require.NoError(t, err, sql)
}

// currentLSN is the end of the server's WAL.
func currentLSN(t testing.TB, dsn string) pglogrepl.LSN {
	t.Helper()
	return parseLSN(t, query[string](t, dsn, "SELECT pg_current_wal_lsn()::text"))
}

func parseLSN(t testing.TB, text string) pglogrepl.LSN {
	t.Helper()
	lsn, err := pglogrepl.ParseLSN(text)
	require.NoError(t, err)
	return lsn
}

// confirmed is the slot's confirmed_flush_lsn.
func (r *rig) confirmed(t testing.TB) pglogrepl.LSN {
	t.Helper()
	return parseLSN(t, query[string](t, r.dsn, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", r.slot))
}

// walsender is the pid of the backend that streams the slot, and zero while nobody does.
func (r *rig) walsender(t testing.TB) int {
	t.Helper()
	return query[int](t, r.dsn, "SELECT coalesce(max(active_pid), 0) FROM pg_replication_slots WHERE slot_name = $1", r.slot)
}

// drained waits until everything that is committed now has been confirmed.
func (r *rig) drained(t testing.TB, within time.Duration) {
	t.Helper()
	end := currentLSN(t, r.dsn)
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	var reached bool
	eventually(t, within, fmt.Sprintf("slot confirmed up to %s", end), func() bool {
		err := conn.QueryRow(t.Context(), "SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2",
			end.String(), r.slot).Scan(&reached)
		require.NoError(t, err)
		return reached
	})
}

// caughtUp is drained, and how long that took.
func (r *rig) caughtUp(t testing.TB) time.Duration {
	t.Helper()
	began := time.Now()
	r.drained(t, 2*time.Minute)
	return time.Since(began)
}

// event is what the payload says.
type event struct {
	Key    string `json:"key"`
	Number uint64 `json:"number"`
	Pad    string `json:"pad,omitempty"`
}

// Keys of backlog and transaction.
const bulkKeys = 50

// backlog commits n events in transactions of 100, and waits for nobody.
func (r *rig) backlog(t testing.TB, n int) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	for range n / (2 * bulkKeys) {
		r.insertBulk(t, conn, 2)
	}
}

// transaction commits n events at once.
func (r *rig) transaction(t testing.TB, n int) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	r.insertBulk(t, conn, n/bulkKeys)
}

// insertBulk commits the next perKey events of each key.
func (r *rig) insertBulk(t testing.TB, conn *pgx.Conn, perKey int) {
	t.Helper()
	_, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		SELECT $1, 'bulk-' || k, jsonb_build_object('key', 'bulk-' || k, 'number', n, 'pad', repeat('x', 200)), n
		FROM generate_series($2::bigint + 1, $2::bigint + $3::bigint) n, generate_series(1, $4::int) k ORDER BY n`,
		r.topic, int64(r.bulk), perKey, bulkKeys)
	require.NoError(t, err)
	for range perKey {
		r.bulk++
		for k := 1; k <= bulkKeys; k++ {
			r.tally.Wrote(fmt.Sprint("bulk-", k), r.bulk)
		}
	}
}

// judge reads the topic to its end and compares. It is called once, after the relay has ended, so that nothing comes later.
func (r *rig) judge(t testing.TB) audit.Verdict {
	t.Helper()
	r.receive(t)
	return r.verdict(t)
}

// verdict compares what was received with what was committed.
func (r *rig) verdict(t testing.TB) audit.Verdict {
	t.Helper()
	v := r.tally.Verdict()
	for key, newest := range r.newest {
		if r.last[key] < newest {
			v.Partial++ // the tally waits for what follows, and nothing does
		}
	}
	t.Logf("verdict: %+v", v)
	recorder.with(t, func(o *outcome) { o.verdicts = append(o.verdicts, v) })
	return v
}

// receive takes in what the topic holds: before judge only for a topic that is deleted. It reads with the client of the audit, which shares no
// code with the one that published.
func (r *rig) receive(t testing.TB) {
	t.Helper()
	ctx := parts.Within(t, 10*time.Minute)
	reader := r.auditReader(ctx, t)
	defer reader.Close()
	spans, err := reader.Spans(ctx, "outbox.event."+r.topic, time.Time{})
	require.NoError(t, err)
	read := func(_ int, _ int64, m *sink.Message) error { r.take(t, m); return nil }
	if !r.grown {
		require.NoError(t, reader.Read(ctx, spans, read))
		return
	}
	for i := range spans { // the old partition of a key comes before the new one
		require.NoError(t, reader.Read(ctx, spans[i:i+1], read))
	}
}

func (r *rig) auditReader(ctx context.Context, t testing.TB) *topics.Reader {
	t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = r.broker.Direct()
	reader, err := topics.OpenReader(ctx, cfg, true)
	require.NoError(t, err)
	return reader
}

// take counts a record.
func (r *rig) take(t testing.TB, m *sink.Message) {
	t.Helper()
	var e event
	if r.decode != nil {
		m.Value = r.decode(m.Value)
	}
	if json.Unmarshal(m.Value, &e) != nil || e.Number == 0 || e.Key != string(m.Key) {
		e = event{Key: "not one of ours", Number: 1} // shows as phantom
	}
	at, known := r.home[e.Key]
	require.True(t, !known || at == m.Partition || r.grown && m.Partition == at+partitions, "key %s is in partitions %d and %d", e.Key, at, m.Partition)
	r.home[e.Key] = m.Partition
	r.newest[e.Key], r.last[e.Key] = max(r.newest[e.Key], e.Number), e.Number
	r.tally.Received(e.Key, e.Number)
}

// requireNothingLost is what holds after any fault.
func requireNothingLost(t testing.TB, v audit.Verdict) {
	t.Helper()
	require.Positive(t, v.Written)
	require.Zero(t, v.Lost, "lost")
	require.Zero(t, v.OutOfOrder, "out of order")
	require.Zero(t, v.Partial, "repetitions that end too soon")
	require.Zero(t, v.Phantom, "published and never committed")
}

// requireExact is what holds as long as neither process dies.
func requireExact(t testing.TB, v audit.Verdict) {
	t.Helper()
	requireNothingLost(t, v)
	require.Zero(t, v.Duplicated, "duplicated")
}
