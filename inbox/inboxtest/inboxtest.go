// Package inboxtest is what each consumer middleware of the inbox has to do, as tests with a real
// PostgreSQL and a real Kafka broker.
package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// Member is one run of a middleware as a member of a group.
type Member struct {
	Consumer     *inbox.Consumer[pgx.Tx]
	Handle       func(ctx context.Context, tx pgx.Tx, value []byte) error
	Brokers      []string
	Group, Topic string
}

// Run is the function of a middleware. A group without offsets begins at the start of the topic.
type Run func(ctx context.Context, m Member) error

// Middleware tests one.
func Middleware(t *testing.T, run Run) {
	t.Run("each event once while members come and go", func(t *testing.T) {
		t.Parallel()
		onceWhileMembersComeAndGo(t, run)
	})
	t.Run("the offset stays at what fails", func(t *testing.T) {
		t.Parallel()
		offsetStaysAtWhatFails(t, run)
	})
}

// rig is a database with an inbox, and a topic.
type rig struct {
	*testing.T
	run    Run
	broker *parts.Broker
	pool   *pgxpool.Pool
	admin  *kadm.Client
	member Member
}

func newRig(t *testing.T, run Run, partitions int32) *rig {
	t.Helper()
	db := parts.Postgres(t, parts.AnyVersion)
	script, err := sql.Inbox("public", "inbox", 8)
	require.NoError(t, err)
	db.Exec(t, script)
	db.Exec(t, "CREATE TABLE effects (event text)")
	r := &rig{T: t, run: run, broker: parts.RealKafka(t)}
	r.admin = kadm.NewClient(r.broker.Client(t))
	r.pool, err = pgxpool.New(t.Context(), db.DSN())
	require.NoError(t, err)
	t.Cleanup(r.pool.Close)
	r.member = Member{
		Consumer: &inbox.Consumer[pgx.Tx]{Name: "test", Begin: r.pool.Begin},
		Handle: func(ctx context.Context, tx pgx.Tx, value []byte) error {
			_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", string(value))
			return err
		},
		Brokers: r.broker.Brokers(), Group: parts.Unique("group"), Topic: r.broker.Topic(t, partitions),
	}
	return r
}

// start runs a member until stop, which returns what it returned.
func (r *rig) start(m Member) (stop func() error) {
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, m) }()
	return func() error { cancel(); return <-ended }
}

// produce writes records, each with its own partition.
func (r *rig) produce(records ...*kgo.Record) {
	r.Helper()
	client := r.broker.Client(r, kgo.DefaultProduceTopic(r.member.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(r, client.ProduceSync(r.Context(), records...).FirstErr())
}

func record(id string, partition int32) *kgo.Record {
	return &kgo.Record{Partition: partition, Value: []byte(id),
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
}

// effects are the events that handlers have written, sorted.
func (r *rig) effects() []string {
	r.Helper()
	rows, _ := r.pool.Query(r.Context(), "SELECT event FROM effects")
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r, err)
	slices.Sort(events)
	return events
}

// committed are the offsets of the group, by partition.
func (r *rig) committed() map[int32]int64 {
	r.Helper()
	answer, err := r.admin.FetchOffsets(r.Context(), r.member.Group)
	require.NoError(r, err)
	offsets := map[int32]int64{}
	answer.Each(func(o kadm.OffsetResponse) { offsets[o.Partition] = o.At })
	return offsets
}

func onceWhileMembersComeAndGo(t *testing.T, run Run) {
	const events, partitions = 400, 4
	r := newRig(t, run, partitions)
	var want []string
	var records []*kgo.Record
	for e := range events {
		id := fmt.Sprintf("e%04d", e)
		want = append(want, id)
		// again soon in its partition, as by a restart of the relay, and in others, where another
		// member meets it at the same time
		for copies := range 3 {
			records = append(records, record(id, int32(e+copies/2)%partitions))
		}
	}
	r.produce(records...)
	stops := []func() error{r.start(r.member), r.start(r.member)}
	for reached := 100; reached < events; reached += 100 {
		parts.Await(t, fmt.Sprintf("%d effects", reached), func() (bool, error) {
			return len(r.effects()) >= reached, nil
		})
		require.NoError(t, stops[0]())
		stops = append(stops[1:], r.start(r.member))
	}
	ends := r.broker.EndOffsets(t, r.member.Topic)
	parts.Await(t, "the offsets of all records", func() (bool, error) {
		return maps.Equal(ends, r.committed()), nil
	})
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	require.Equal(t, want, r.effects())
}

func offsetStaysAtWhatFails(t *testing.T, run Run) {
	r := newRig(t, run, 1)
	failed := errors.New("the handler failed")
	works := r.member.Handle
	r.member.Handle = func(ctx context.Context, tx pgx.Tx, value []byte) error {
		if err := works(ctx, tx, value); err != nil || !strings.HasPrefix(string(value), "fails") {
			return err
		}
		return failed
	}
	old := record("old", 0)
	old.Timestamp = time.Now().AddDate(0, 0, -17)
	r.produce(record("a", 0), record("a", 0), record("fails", 0), record("b", 0),
		&kgo.Record{Value: []byte("without id")}, record("c", 0), old, record("d", 0))
	for _, step := range []struct {
		err     error
		offset  int64
		effects []string
		fix     func() // so that the next run passes the record
	}{
		{failed, 2, []string{"a"},
			func() { r.member.Handle = works }},
		{inbox.ErrNoID, 4, []string{"a", "b", "fails"},
			func() { r.member.Consumer.PositionIDs = true }},
		{inbox.ErrOutsideWindow, 6, []string{"a", "b", "c", "fails", "without id"},
			func() { r.member.Consumer.AnyAge = true }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
		err := run(ctx, r.member)
		cancel()
		require.ErrorIs(t, err, step.err)
		require.ErrorContains(t, err,
			fmt.Sprintf("process %s, partition 0, offset %d: ", r.member.Topic, step.offset))
		require.Equal(t, map[int32]int64{0: step.offset}, r.committed())
		require.Equal(t, step.effects, r.effects())
		step.fix()
	}
	stop := r.start(r.member)
	parts.Await(t, "the last record", func() (bool, error) { return len(r.effects()) == 7, nil })
	require.NoError(t, stop(), "a stop is no error")
	require.Equal(t, map[int32]int64{0: 8}, r.committed(), "offsets are committed at a stop")
	require.Equal(t, []string{"a", "b", "c", "d", "fails", "old", "without id"}, r.effects())
}
