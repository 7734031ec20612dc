package faults

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/test/parts"
)

// exactlyOnce has the relays publish in transactions.
func (r *rig) exactlyOnce(t testing.TB) *rig {
	t.Helper()
	r.settings["relay.exactly_once"] = "true"
	r.settings["relay.position_topic"] = quote(parts.Unique("positions"))
	r.settings["router.position_headers"] = "true" // by which the test knows the rows of a transaction
	return r
}

func (r *rig) source(t testing.TB) sink.Source {
	t.Helper()
	return sink.Source{
		SystemID: query[string](t, r.dsn, "SELECT system_identifier::text FROM pg_control_system()"),
		Database: query[string](t, r.dsn, "SELECT current_database()"), Slot: r.slot,
	}
}

// reader reads as consumers with isolation.level=read_committed do, and watches for transactions that they see in part.
type reader struct {
	rig    *rig
	client *kgo.Client
	id     string
	read   map[int32]int64 // offset behind the last record read, by partition
	looks  int
	first  map[string]int // in which look a transaction was seen first
	torn   int            // rows that came in a later look than others of their transaction
	rows   int
}

func (r *rig) reader(t testing.TB) *reader {
	t.Helper()
	return &reader{
		rig: r, id: producer.TransactionalID(r.source(t)), read: map[int32]int64{}, first: map[string]int{},
		client: r.broker.Client(t, kgo.ConsumeTopics("outbox.event."+r.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond)),
	}
}

// shutOut does what every start of a relay does first: then no transaction of an earlier one is open, or half visible.
func (c *reader) shutOut(t testing.TB) {
	t.Helper()
	producer := c.rig.broker.Client(t, kgo.TransactionalID(c.id))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _, err := producer.ProducerID(ctx)
	require.NoError(t, err)
	producer.Close()
}

// look reads to the end. No relay may be publishing.
func (c *reader) look(t testing.TB) {
	t.Helper()
	ends := c.rig.broker.EndOffsets(t, "outbox.event."+c.rig.topic)
	behind := func() bool {
		for partition, end := range ends {
			if c.read[partition] < end {
				return true
			}
		}
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for behind() {
		fetches := c.client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(c.see)
	}
	c.looks++
}

func (c *reader) see(record *kgo.Record) {
	c.read[record.Partition] = record.Offset + 1
	if record.Attrs.IsControl() {
		return
	}
	c.rows++
	for _, h := range record.Headers {
		if h.Key != "postrider.lsn" {
			continue
		}
		if look, seen := c.first[string(h.Value)]; seen && look != c.looks {
			c.torn++
		} else {
			c.first[string(h.Value)] = c.looks
		}
	}
}

func TestFault01_ExactlyOnceSurvivesKill9(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).exactlyOnce(t)
	network, database := r.throughKafkaProxy(t), r.through(t)
	parts.Binary(t)
	reader := r.reader(t)
	l := r.load(t, rate())
	kills, spared := full(t, 3, 200), 0.0
	for i := range kills {
		p := r.started(t)
		l.more(t, 300+int64(random(t, uint64(i)).IntN(400))) //nolint:gosec // a number of the test
		switch i % 3 {                                       // what is open when the kill comes
		case 0: // nothing: consumers see all that was read, and the slot does not know it
			network.Stall()
			p.full(t)
			database.Forget()
			network.Resume()
			eventually(t, time.Minute, "all is committed", func() bool { return p.ask().Relay.InFlight == 0 })
		case 1: // something
			network.Delay(20 * time.Millisecond)
			l.more(t, 100)
		case 2: // a lot
			network.Stall()
			l.more(t, 300)
		}
		spared += p.events(t, "repeated")
		p.Kill(t)
		database.Cut()
		network.Delay(0)
		network.Resume()
		reader.shutOut(t)
		reader.look(t)
	}
	l.end(t)
	p := r.started(t)
	r.drained(t, time.Minute)
	p.stop(t)
	reader.look(t)

	requireExact(t, r.judge(t))
	require.Positive(t, spared, "no row was published that the slot sent again")
	require.Zero(t, reader.torn, "rows of transactions that were seen in part")
	matrix(t, 1, "exactly once", fmt.Sprintf("%d kills, %d transactions, none seen in part", kills, len(reader.first)))
}

func TestFault04_ExactlyOnceShutsOutAStoppedRelay(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).exactlyOnce(t)
	network := r.throughKafkaProxy(t)
	reader := r.reader(t)
	first := r.started(t)
	l := r.load(t, 100)
	l.more(t, 300)
	second := r.start(t)
	second.phase(t, "standby", 30*time.Second)

	network.Delay(50 * time.Millisecond) // so that there is something that the first has in its hands
	l.more(t, 100)
	first.signal(t, syscall.SIGSTOP)
	began := time.Now()
	second.streams(t, time.Minute)
	took := time.Since(began)
	l.more(t, 300)
	first.signal(t, syscall.SIGCONT)
	first.phase(t, "standby", 30*time.Second)
	network.Delay(0)
	require.Equal(t, "streaming", second.ask().Relay.Phase)

	l.end(t)
	r.drained(t, time.Minute)
	first.stop(t)
	second.stop(t)
	reader.look(t)
	requireExact(t, r.judge(t))
	matrix(t, 4, "exactly once", fmt.Sprintf("took over after %.1f s, nothing stale", took.Seconds()))
}

func TestFault14_ExactlyOnceOutlastsBrokerRestarts(t *testing.T) {
	t.Parallel()
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{Properties: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
	r := newRig(t, server(t, parts.AnyVersion), broker).exactlyOnce(t)
	p := r.started(t)
	l := r.load(t, 200)
	crashes := full(t, 2, 30)
	for range crashes {
		l.more(t, 500)
		broker.Kill(t)
		l.more(t, 300)
		p.requireRunning(t)
		broker.Restart(t)
	}
	l.end(t)
	r.drained(t, 2*time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 14, "exactly once", fmt.Sprintf("%d crashes, %d sessions", crashes, sessions))
}

// Another producer of the same transactional id is what a broker's fencing looks like from inside; it stands for every error of a transaction.
func TestFault18_ExactlyOnceGoesOnAfterItsProducerIsFenced(t *testing.T) {
	t.Parallel()
	onEach(t, parts.RealKafka, func(t *testing.T, place string, r *rig, _ []*parts.Broker) {
		r.exactlyOnce(t)
		reader := r.reader(t)
		p := r.started(t)
		l := r.load(t, 200)
		// A fence in the middle of a commit ends the session for another reason: then once more.
		fenced, named := full(t, 3, 50), func() bool { return p.Log.Count("another process has begun with the transactional id") > 0 }
		for i := 0; i < fenced || !named() && i < 10*fenced; i++ {
			l.more(t, 300)
			reader.shutOut(t)
			eventually(t, time.Minute, "another session", func() bool { return p.ask().Relay.Sessions > i+1 })
			p.streams(t, time.Minute)
		}
		l.end(t)
		r.drained(t, time.Minute)
		p.stop(t)
		requireExact(t, r.judge(t))
		require.True(t, named(), "the sessions ended so: %s", p.Log.Lines("session ended"))
		matrix(t, 18, place+", exactly once", fmt.Sprintf("fenced %d times", fenced))
	})
}

func TestFault22_ExactlyOnceHidesAHugeTransactionUntilItsCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).exactlyOnce(t)
	p := r.started(t)
	r.transaction(t, 100) // which makes buffers
	r.drained(t, time.Minute)
	before := p.metric(t, "go_memstats_heap_inuse_bytes")

	reader := r.reader(t)
	eventually(t, time.Minute, "the first transaction visible", func() bool { // its markers are written behind the answer to its end
		reader.look(t)
		return reader.rows == 100
	})
	rows := full(t, 30_000, 1_000_000)
	r.transaction(t, rows)
	published := func() float64 { return p.metric(t, "postrider_sink_published_total") }
	eventually(t, time.Minute, "a part of it written", func() bool { return published() > float64(rows)/4 })
	highest := 0.0
	for published() < float64(rows)*3/4 {
		highest = max(highest, p.metric(t, "go_memstats_heap_inuse_bytes"))
		reader.look(t)
		if published() < float64(rows) { // it was not complete after the look either
			require.Equal(t, 100, reader.rows, "a part of a transaction is visible")
		}
	}
	r.drained(t, 5*time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
	require.Less(t, highest-before, 256.0*(1<<20), "memory grows with the transaction")
	matrix(t, 22, "exactly once", fmt.Sprintf("%d rows, heap at most %s", rows, mib(highest)))
}
