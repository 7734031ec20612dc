package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// topicsMemory bounds the resident memory of a relay with 10,000 topics, in bytes.
const topicsMemory = 128.0 * (1 << 20)

// manyTopics are topics of one partition each, and what was written to them: the key of a topic has its name.
type manyTopics struct {
	*rig
	names   []string
	written uint64 // events of each key
}

func newManyTopics(t testing.TB, r *rig, n int) *manyTopics {
	t.Helper()
	m := &manyTopics{rig: r}
	for i := 1; i <= n; i++ {
		m.names = append(m.names, fmt.Sprintf("outbox.event.%s-%d", r.topic, i))
	}
	admin := kadm.NewClient(r.broker.Client(t))
	for from := 0; from < n; from += 500 {
		created, err := admin.CreateTopics(parts.Within(t, 2*time.Minute), 1, 1, nil, m.names[from:min(from+500, n)]...)
		require.NoError(t, err)
		require.NoError(t, created.Error())
	}
	parts.Await(t, "leaders of all partitions", func() (bool, error) {
		found, err := admin.ListTopics(t.Context(), m.names...)
		if err != nil {
			return false, err
		}
		for _, topic := range found {
			if topic.Err != nil || len(topic.Partitions) != 1 || topic.Partitions[0].Leader < 0 {
				return false, nil
			}
		}
		return len(found) == n, nil
	})
	return m
}

// insert commits one event for each topic, in transactions of that many events.
func (m *manyTopics) insert(t testing.TB, atOnce int) {
	t.Helper()
	conn := connect(t, m.dsn)
	defer conn.Close(t.Context())
	m.written++
	for from := 1; from <= len(m.names); from += atOnce {
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
			SELECT $1 || '-' || k, 'key-' || k, jsonb_build_object('key', 'key-' || k, 'number', $4::bigint, 'pad', repeat('x', 200)), $4
			FROM generate_series($2::int, $3::int) k`, m.topic, from, min(from+atOnce-1, len(m.names)), int64(m.written))
		require.NoError(t, err)
	}
	m.wrote(m.written)
}

// transaction commits two events for each topic at once.
func (m *manyTopics) transaction(t testing.TB) {
	t.Helper()
	_, err := parts.Connect(t, m.dsn).Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		SELECT $1 || '-' || k, 'key-' || k, jsonb_build_object('key', 'key-' || k, 'number', n, 'pad', repeat('x', 200)), n
		FROM generate_series($2::bigint + 1, $2::bigint + 2) n, generate_series(1, $3::int) k ORDER BY n, k`, m.topic, int64(m.written), len(m.names))
	require.NoError(t, err)
	m.wrote(m.written + 1)
	m.wrote(m.written + 2)
	m.written += 2
}

func (m *manyTopics) wrote(number uint64) {
	for k := range m.names {
		m.tally.Wrote(fmt.Sprint("key-", k+1), number)
	}
}

// receive takes in all topics.
func (m *manyTopics) receive(t testing.TB) {
	t.Helper()
	ctx := parts.Within(t, 10*time.Minute)
	ends, err := kadm.NewClient(m.broker.Client(t)).ListCommittedOffsets(ctx, m.names...)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	var spans []topics.Span
	ends.Each(func(o kadm.ListedOffset) {
		spans = append(spans, topics.Span{Topic: o.Topic, Partition: o.Partition, End: o.Offset})
	})
	reader := m.auditReader(ctx, t)
	defer reader.Close()
	require.NoError(t, reader.Read(ctx, spans, func(span int, _ int64, message *sink.Message) error {
		require.Equal(t, "outbox.event."+m.topic+string(message.Key[len("key"):]), spans[span].Topic, "the topic of the key")
		m.take(t, message)
		return nil
	}))
}

// TestFault50_ManyTopicsTakeLittleMemory has the limits that are set by default.
func TestFault50_ManyTopicsTakeLittleMemory(t *testing.T) {
	t.Parallel()
	broker, n := parts.RealKafka(t), full(t, 200, 10_000)
	if n > 1000 { // too many for a broker that other tests use
		broker = parts.ExclusiveKafka(t, parts.KafkaConfig{Java: []string{"-Xmx2g"}, Properties: map[string]string{"log.index.size.max.bytes": "4096"}})
	}
	r := newRig(t, server(t, parts.AnyVersion), broker)
	delete(r.settings, "relay.in_flight_messages")
	r.settings["log.level"] = `"info"` // the Kafka client logs the names of all topics at debug
	began := time.Now()
	m := newManyTopics(t, r, n)
	created := time.Since(began)

	p := r.started(t)
	m.insert(t, 100)
	first := r.caughtUp(t)
	m.insert(t, 100)
	second := r.caughtUp(t)
	require.Equal(t, 1, p.ask().Relay.Sessions)
	peak := p.peak(t)
	p.stop(t)
	matrix(t, 50, "default settings", fmt.Sprintf("%d topics, created in %.1f s; a row for each in %.1f s, the next in %.1f s; memory at most %s",
		n, created.Seconds(), first.Seconds(), second.Seconds(), mib(peak)))
	require.Less(t, peak, topicsMemory, "resident memory")

	// The slot is not confirmed within a transaction: all of it comes again after the kill.
	r.dedup()
	network := r.throughKafkaProxy(t)
	r.settings["relay.max_rate"] = fmt.Sprintf(`"%d rows/s"`, n/10) // or all is published before anyone looks
	p = r.started(t)
	m.transaction(t)
	eventually(t, time.Minute, "a part of it published", func() bool { return p.ask().Relay.Published > uint64(n/4) })
	peak = p.peak(t)
	p.Kill(t)
	delete(r.settings, "relay.max_rate")
	eventually(t, 30*time.Second, "nothing of the killed relay is in the network", func() bool { return network.Connections() == 0 })
	p = r.started(t)
	again := r.caughtUp(t)
	spared := p.events(t, "repeated")
	peak = max(peak, p.peak(t))
	require.Equal(t, 1, p.ask().Relay.Sessions)
	p.stop(t)
	m.receive(t)
	requireExact(t, m.verdict(t))
	require.Positive(t, spared, "it was not killed in the middle")
	matrix(t, 50, "dedup tail", fmt.Sprintf("killed in a transaction of %d rows, which was through %.1f s after the restart, %.0f repetitions left out; memory at most %s",
		2*n, again.Seconds(), spared, mib(peak)))
	require.Less(t, peak, topicsMemory, "resident memory")
}
