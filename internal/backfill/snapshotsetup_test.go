package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/memory"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

const (
	patience   = parts.Patience // for what is no promise
	partitions = 2
)

var errCut = errors.New("cut off by the test")

// store keeps records as a compacted topic does, and reads back what is in the broker.
type store struct {
	broker *memory.Broker
	newest map[string][]byte
	saved  []record
	save   func(*record) error // is asked before each save; nil: all are taken
	read   int                 // messages that were read back
}

func (s *store) Load(_ context.Context, key string, each func([]byte)) error {
	each(s.newest[key])
	return nil
}

func (s *store) Save(_ context.Context, key string, value []byte) error {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	if s.save != nil {
		if err := s.save(&r); err != nil {
			return err
		}
	}
	s.newest[key] = value
	s.saved = append(s.saved, r)
	return nil
}

func (s *store) log(topic string) (log [partitions][]*sink.Message) {
	for _, m := range s.broker.Messages() {
		if m.Topic == topic {
			log[m.Partition] = append(log[m.Partition], &m)
		}
	}
	return log
}

func (s *store) Ends(_ context.Context, topics []string) (map[string][]int64, error) {
	ends := map[string][]int64{}
	for _, topic := range topics {
		for _, partition := range s.log(topic) {
			ends[topic] = append(ends[topic], int64(len(partition)))
		}
	}
	return ends, nil
}

func (s *store) Read(_ context.Context, topic string, from []int64, each func(*sink.Message)) error {
	for i, partition := range s.log(topic) {
		for _, m := range partition[from[i]:] {
			s.read++
			each(m)
		}
	}
	return nil
}

func (s *store) Close() {}

// record is the newest one.
func (s *store) record() record { return s.saved[len(s.saved)-1] }

// place is an outbox, and a broker in memory to which the rows that are in it are published.
type snapshotPlace struct {
	t      *testing.T
	conn   *pgx.Conn
	slot   string
	broker *memory.Broker
	store  *store
	cfg    Config
	parts  SnapshotParts
	open   sink.Open       // of the broker, unless a test has another
	parked map[string]bool // keys with open dead letters
	rules  router.Config
}

func newSnapshotPlace(t *testing.T) *snapshotPlace {
	return snapshotPlaceIn(t, parts.Postgres(t, parts.AnyVersion).DSN())
}

func snapshotPlaceIn(t *testing.T, dsn string) *snapshotPlace {
	x := &snapshotPlace{t: t, conn: parts.Connect(t, dsn), slot: parts.Unique("slot"), broker: memory.New(partitions), parked: map[string]bool{}, rules: router.DefaultConfig()}
	x.exec(`CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text, aggregateid text, payload text)`)
	x.exec(`CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`)
	x.open = x.broker.Open
	x.store = &store{broker: x.broker, newest: map[string][]byte{}}
	x.cfg = Config{Mode: Initial, Topic: "snapshots"}
	pg := postgres.DefaultConfig()
	pg.URL = secret.Of(dsn)
	x.parts = SnapshotParts{
		Parts: Parts{
			Postgres: pg, Replication: replication.DefaultConfig(),
			Need:   slot.Requirements{Slot: slot.Config{Name: x.slot, Create: true, CheckInterval: time.Second}, Publication: "postrider", Tables: []string{"public.outbox"}},
			Keys:   func(string) KeyColumns { return KeyColumns{ID: "id", OrderBy: x.cfg.OrderBy} },
			Limits: Limits{Messages: 3, Bytes: 1 << 20},
			Log:    zerolog.Nop(),
		},
		OpenStore: func(context.Context) (Store, error) { return x.store, nil },
		Metrics:   metrics.New(prometheus.NewRegistry(), x.slot),
	}
	x.parts.Replication.Publication = "postrider"
	return x
}

func (x *snapshotPlace) exec(sql string, args ...any) {
	x.t.Helper()
	_, err := x.conn.Exec(x.t.Context(), sql, args...)
	require.NoError(x.t, err)
}

// insert commits rows, each with its number as the payload; two in three go to one topic, in turns to three keys.
func (x *snapshotPlace) insert(first, last int) {
	x.t.Helper()
	x.exec(`INSERT INTO outbox SELECT n, CASE n % 3 WHEN 0 THEN 'Payment' ELSE 'Order' END, 'key ' || n % 3, n FROM generate_series($1::int, $2::int) n`, first, last)
}

// begin is what a new process does first.
// begin repeats what open transactions of other tests block.
func (x *snapshotPlace) begin() (*Copy, error) {
	for end := time.Now().Add(patience); ; {
		c, err := NewSnapshot(x.cfg, x.parts).Begin(x.t.Context(), true)
		if !errors.Is(err, slot.ErrBlocked) || time.Now().After(end) {
			return c, err
		}
	}
}

func (x *snapshotPlace) begun() *Copy {
	x.t.Helper()
	c, err := x.begin()
	require.NoError(x.t, err)
	require.NotNil(x.t, c)
	return c
}

// cutAt runs an attempt that ends without the save that follows so many published messages.
func (x *snapshotPlace) cutAt(published int) {
	x.t.Helper()
	x.store.save = func(*record) error {
		if len(x.broker.Messages()) == published {
			return errCut
		}
		return nil
	}
	require.ErrorIs(x.t, x.run(x.begun(), context.Background()), errCut)
	x.store.save = nil
}

// run runs a Copy, and closes it.
func (x *snapshotPlace) run(c *Copy, stop context.Context) error {
	defer c.Close()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	return c.Run(ctx, stop, Target{
		OpenSink: x.open,
		Router: func() (*router.Router, error) {
			return router.New([]router.Config{x.rules}, router.DefaultFormat(), router.Options{Tables: x.parts.Need.Tables})
		},
		Parks: func(context.Context) (func(*sink.Message) bool, error) {
			return func(m *sink.Message) bool { return x.parked[string(m.Key)] }, nil
		},
	}, func(State) {})
}

// published is the payloads, in the order of the broker.
func (x *snapshotPlace) published() (payloads []int) {
	x.t.Helper()
	for _, m := range x.broker.Messages() {
		n, err := strconv.Atoi(string(m.Value))
		require.NoError(x.t, err)
		payloads = append(payloads, n)
	}
	return payloads
}

func (x *snapshotPlace) confirmed() string {
	x.t.Helper()
	s, err := slot.Get(x.t.Context(), x.conn, x.slot)
	require.NoError(x.t, err)
	return s.ConfirmedFlushLSN.String()
}

func numbers(first, last int) (all []int) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// watch requires of every record what a later Copy relies on: it does not run ahead of what is acknowledged, and nothing is published to a topic whose ends are
// not saved.
func (x *snapshotPlace) watch() {
	x.store.save = func(r *record) error {
		delivered := x.broker.Messages()
		if n := x.broker.Published(); n != len(delivered) {
			x.t.Errorf("a record is saved while %d messages are out", n-len(delivered))
		}
		var rows int64
		for _, t := range r.Tables {
			rows += t.Rows
		}
		if rows > int64(len(delivered)) {
			x.t.Errorf("a record has %d rows, and %d messages are delivered", rows, len(delivered))
		}
		return nil
	}
	x.broker.Refuse(func(m *sink.Message) error {
		if _, known := x.store.record().Topics[m.Topic]; !known {
			x.t.Errorf("published to topic %s, whose ends are not saved", m.Topic)
		}
		return nil
	}, nil)
}
