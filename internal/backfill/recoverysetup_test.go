package backfill

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/memory"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// topics reads back what is in the broker.
type topics struct {
	broker *memory.Broker
	lost   bool      // older records, by retention
	since  time.Time // of the last question
	asked  map[string]time.Time
}

func (t *topics) Read(_ context.Context, topic string, since time.Time, each func(*sink.Message)) (Extent, error) {
	t.since, t.asked[topic] = since, since
	for _, m := range t.broker.Messages() {
		if m.Topic == topic {
			each(&m)
		}
	}
	return Extent{Whole: !t.lost}, nil
}

func (t *topics) Close() {}

// place is an outbox whose slot is missing, and a broker in memory with some of its rows.
type recoveryPlace struct {
	t       *testing.T
	dsn     string
	conn    *pgx.Conn
	slot    string
	broker  *memory.Broker
	topics  *topics
	parts   RecoveryParts
	letters DeadLetters
	said    []string
}

func newRecoveryPlace(t *testing.T) *recoveryPlace {
	return recoveryPlaceIn(t, parts.Postgres(t, parts.AnyVersion).DSN())
}

func recoveryPlaceIn(t *testing.T, dsn string) *recoveryPlace {
	x := &recoveryPlace{t: t, dsn: dsn, conn: parts.Connect(t, dsn), slot: parts.Unique("slot"), broker: memory.New(1)}
	x.topics = &topics{broker: x.broker, asked: map[string]time.Time{}}
	x.exec(`CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text, aggregateid text, payload text, created_at timestamptz NOT NULL DEFAULT now())`)
	x.exec(`CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`)
	pg := postgres.DefaultConfig()
	pg.URL = secret.Of(dsn)
	x.parts = RecoveryParts{
		Parts: Parts{
			Postgres: pg, Replication: replication.DefaultConfig(),
			Need:   slot.Requirements{Slot: slot.Config{Name: x.slot, Create: true, CheckInterval: time.Second}, Publication: "postrider", Tables: []string{"public.outbox"}},
			Keys:   func(string) KeyColumns { return KeyColumns{ID: "id"} },
			Limits: Limits{Messages: 3, Bytes: 1 << 20},
			Log:    zerolog.Nop(),
		},
		OpenTopics: func(context.Context) (Topics, error) { return x.topics, nil },
		OpenSink:   x.broker.Open,
		Router: func() (*router.Router, error) {
			return router.New([]router.Config{router.DefaultConfig()}, router.DefaultFormat(), router.Options{Tables: []string{"public.outbox"}})
		},
		Say: func(format string, args ...any) { x.said = append(x.said, fmt.Sprintf(format, args...)) },
	}
	x.parts.Replication.Publication = "postrider"
	return x
}

func (x *recoveryPlace) exec(sql string, args ...any) {
	x.t.Helper()
	_, err := x.conn.Exec(x.t.Context(), sql, args...)
	require.NoError(x.t, err)
}

// insert commits rows, each with its number as the payload.
func (x *recoveryPlace) insert(first, last int) {
	x.t.Helper()
	x.exec(`INSERT INTO outbox SELECT n, 'Order', 'key ' || n % 3, n FROM generate_series($1::int, $2::int) n`, first, last)
}

// open begins an attempt.
func (x *recoveryPlace) open(sel Selection) (*Recovery, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	x.t.Cleanup(cancel)
	return NewRecovery(ctx, x.parts, sel)
}

func (x *recoveryPlace) publish(sel Selection) (*Report, error) {
	x.t.Helper()
	r, err := x.open(sel)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Publish(x.t.Context())
}

func (x *recoveryPlace) published(sel Selection) *Report {
	x.t.Helper()
	report, err := x.publish(sel)
	require.NoError(x.t, err)
	return report
}

func (x *recoveryPlace) planned(sel Selection) *Report {
	x.t.Helper()
	r, err := x.open(sel)
	require.NoError(x.t, err)
	defer r.Close()
	report, err := r.Plan(x.t.Context())
	require.NoError(x.t, err)
	return report
}

// deliver puts rows where the relay would have put them, as the relay makes them.
func (x *recoveryPlace) deliver(ids ...int) {
	x.t.Helper()
	saved := x.parts.Need.Slot.Name
	x.parts.Need.Slot.Name = parts.Unique("other")
	defer func() { x.parts.Need.Slot.Name = saved }()
	var texts []string
	for _, id := range ids {
		texts = append(texts, strconv.Itoa(id))
	}
	x.published(Selection{IDs: texts, Partial: true})
}

// payloads are those in the topics of rows, in their order.
func (x *recoveryPlace) payloads() (payloads []int) {
	x.t.Helper()
	for _, m := range x.broker.Messages() {
		n, err := strconv.Atoi(string(m.Value))
		require.NoError(x.t, err)
		payloads = append(payloads, n)
	}
	return payloads
}

func (x *recoveryPlace) get(name string) (slot.Status, bool) {
	x.t.Helper()
	s, err := slot.Get(x.t.Context(), x.conn, name)
	if errors.Is(err, slot.ErrNotFound) {
		return s, false
	}
	require.NoError(x.t, err)
	return s, true
}

// streamed is what comes by the slot up to now: the payloads of the rows.
func (x *recoveryPlace) streamed() (payloads []int) {
	x.t.Helper()
	rows, err := x.conn.Query(x.t.Context(), `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', 'postrider') WHERE get_byte(data, 0) = ascii('I')`, x.slot)
	require.NoError(x.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(x.t, err)
	for _, row := range all { // the first column of the new row: 'I', OID, 'N', how many, 't', length
		n, err := strconv.Atoi(strings.FieldsFunc(string(row[13:]), func(r rune) bool { return r < '0' || r > '9' })[0])
		require.NoError(x.t, err)
		payloads = append(payloads, n)
	}
	return payloads
}

func (x *recoveryPlace) refuse(payload string) {
	x.broker.Refuse(nil, func(m *sink.Message) error {
		if string(m.Value) == payload {
			return errCut
		}
		return nil
	})
}

// letter has a row have a dead letter.
func (x *recoveryPlace) letter(relation string, id int) {
	x.letters.Rows = append(x.letters.Rows, DeadRow{relation, strconv.Itoa(id)})
	x.parts.DeadLetters = func(context.Context) (DeadLetters, error) { return x.letters, nil }
}

// lose makes a slot lag so far behind that the server gives it up.
func (x *recoveryPlace) lose(name string) {
	x.t.Helper()
	for {
		s, there := x.get(name)
		require.True(x.t, there)
		if s.Lost() {
			return
		}
		x.exec(`SELECT pg_switch_wal()`)
		x.exec(`CHECKPOINT`)
		x.exec(`CREATE TABLE IF NOT EXISTS noise AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)`)
		x.exec(`DROP TABLE noise`)
	}
}
