package producer

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
	"github.com/postrider/postrider/test/parts"
)

var us = sink.Source{SystemID: "7300000000000000000", Timeline: 1, Database: "shop",
	Slot: "postrider", Events: "postrider"}

// committed is when all transactions of these tests were.
var committed = time.UnixMicro(1_800_000_000_123_456)

// event is a message as the relay makes it with dedup.
func event(topic string, source sink.Source, lsn pglogrepl.LSN, index uint32,
	key string) *sink.Message {
	m := &sink.Message{
		Topic: topic, Key: []byte(key), Value: fmt.Appendf(nil, "%s %d", lsn, index),
		Partition: sink.ByKey,
		Headers: []sink.Header{
			{Key: "id", Value: []byte("x")},
			{Key: router.HeaderLSN, Value: []byte(lsn.String())},
			{Key: router.HeaderIndex, Value: fmt.Appendf(nil, "%d", index)},
			{Key: sink.HeaderSource, Value: source.Signature(committed)},
		},
		Origin: sink.Origin{LSN: lsn, Index: index, CommitTime: committed},
	}
	if key == "" {
		m.Key = nil
	}
	return m
}

// transactions makes n events of transactions of up to ten, with some keys.
func transactions(topic string, source sink.Source, n int) []*sink.Message {
	ms := make([]*sink.Message, n)
	for i := range ms {
		ms[i] = event(topic, source, pglogrepl.LSN(1000+i/10*100), uint32(i%10),
			fmt.Sprint("key-", i%23))
	}
	return ms
}

// homeOf is the partition of a key, as the producer chooses it.
func homeOf(key []byte, partitions int32) (at int32, known bool) {
	if key == nil {
		return 0, false
	}
	return int32(byKey.Partition(&kgo.Record{Key: key}, int(partitions))), true
}

// session publishes through a sink of its own.
func session(t testing.TB, cfg kafka.Config, ms []*sink.Message) {
	t.Helper()
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	for _, o := range got.wait(t, len(ms)) {
		require.NoError(t, o.err)
	}
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

// requirePublished opens another session and compares what it reports of each message with what is
// so.
func requirePublished(t testing.TB, cfg kafka.Config, source sink.Source, ms []*sink.Message,
	is func(i int) bool) {
	t.Helper()
	s := openSink(t, cfg, newOutcomes().done)
	for i, m := range ms {
		got, err := s.Published(parts.Within(t, patience), source, m)
		require.NoError(t, err)
		require.Equal(t, is(i), got, "message %d at %s index %d", i, m.Origin.LSN, m.Origin.Index)
	}
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

func TestPublished_TellsExactlyWhatEarlierSessionsHavePublished(t *testing.T) {
	b := parts.RealKafka(t)
	for _, compression := range []string{"none", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			topic := b.Topic(t, 3)
			cfg := real(b)
			cfg.Compression = compression
			ms := transactions(topic, us, 2000)
			for i, m := range ms {
				switch i % 7 {
				case 0:
					m.Key = nil // lies anywhere
				case 1:
					m.Key, m.Partition = []byte("other"), 1
				}
			}
			other := us
			other.Slot = "other"
			later := us
			later.Timeline++
			// What others write stands between, and has the same positions.
			session(t, cfg, ms[:700])
			session(t, cfg, transactions(topic, other, 300))
			session(t, cfg, ms[700:1500])
			session(t, cfg, transactions(topic, later, 500))
			// The broker of one partition has no time any more.
			reached := func(i int) bool {
				home, known := homeOf(ms[i].Key, 3)
				return !known || ms[i].Partition == 1 || home != 2
			}
			var rest []*sink.Message
			for i, m := range ms[1500:1800] {
				if reached(1500 + i) {
					rest = append(rest, m)
				}
			}
			session(t, cfg, rest)

			is := func(i int) bool { return i < 1500 || i < 1800 && reached(i) }
			requirePublished(t, cfg, us, ms, is)
			requirePublished(t, cfg, us, ms[900:], func(i int) bool { return is(i + 900) })
			requirePublished(t, cfg, us, ms[1600:], func(i int) bool { return is(i + 1600) })
			requirePublished(t, cfg, sink.Source{SystemID: "1", Timeline: 1, Slot: "postrider"}, ms[:10],
				func(int) bool { return false })
			counted := us
			counted.Events += "+messages"
			requirePublished(t, cfg, counted, ms[:10], func(int) bool { return false })
			// Of a copy of the database, which has used the same positions for other transactions.
			copied := make([]*sink.Message, 10)
			for i := range copied {
				m := *ms[i]
				m.Origin.CommitTime = committed.Add(time.Hour)
				copied[i] = &m
			}
			requirePublished(t, cfg, us, copied, func(int) bool { return false })
		})
	}
}

// A key that now belongs into another partition, whose newest event is later: taken for its word,
// that partition would hide the row.
func TestPublished_LosesNothingWhenPartitionsWereAdded(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"))
	cfg := quick(c.ListenAddrs()...)
	ms := transactions("orders", us, 400)
	home := func(m *sink.Message) int32 {
		at, known := homeOf(m.Key, 2)
		require.True(t, known)
		return at
	}
	// The broker of one partition had no time for the last half.
	reached := func(i int) bool { return i < 200 || home(ms[i]) == 0 }
	var sent []*sink.Message
	for i, m := range ms {
		if reached(i) {
			sent = append(sent, m)
		}
	}
	session(t, cfg, sent)
	addPartitions(t, c, "orders", 3)
	requirePublished(t, cfg, us, ms[50:], func(i int) bool { return reached(i + 50) })
}

// deleteBefore does what retention does.
func deleteBefore(t testing.TB, client *kgo.Client, topic string, partition int32, offset int64) {
	t.Helper()
	deleted, err := kadm.NewClient(client).DeleteRecords(parts.Within(t, patience),
		kadm.OffsetsList{{Topic: topic, Partition: partition, At: offset}}.Offsets())
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
}

// What retention has removed is not known to be published. It comes again, and what follows of its
// keys behind it.
func TestPublished_RepeatsInOrderWhereRecordsWereDeleted(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	ms := transactions(topic, us, 300)
	session(t, real(b), ms[:200])
	deleteBefore(t, b.Client(t), topic, 0, 150)
	requirePublished(t, real(b), us, ms[100:], func(int) bool { return false })
	requirePublished(t, real(b), us, ms[150:], func(i int) bool { return i+150 < 200 })

	// A session was killed while it published them again: the newer ones before its end have to
	// follow once more.
	session(t, real(b), ms[100:120])
	follows := func(i int) bool { return i < 120 }
	requirePublished(t, real(b), us, ms[100:], func(i int) bool { return follows(i + 100) })
	requirePublished(t, real(b), us, ms[110:], func(i int) bool { return follows(i + 110) })
	requirePublished(t, real(b), us, ms[150:], func(int) bool { return false })
}

// Two keys share a partition, and a partition was added in which one of them lies now. Retention
// has left only the later row of the other.
func TestPublished_HidesNoRowBehindALaterOneOfItsPartition(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"))
	cfg := quick(c.ListenAddrs()...)
	key := func(two, three int32) string {
		for i := 0; ; i++ {
			key := fmt.Sprint("key-", i)
			before, _ := homeOf([]byte(key), 2)
			if now, _ := homeOf([]byte(key), 3); before == two && now == three {
				return key
			}
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.ProduceSync(parts.Within(t, patience),
		&kgo.Record{Topic: "orders", Partition: 1, Value: []byte("of another")}).FirstErr())
	// on its way to partition 0 when the relay was killed
	lost := event("orders", us, 1000, 0, key(0, 1))
	session(t, cfg, []*sink.Message{event("orders", us, 2000, 0, key(1, 1))})
	deleteBefore(t, client, "orders", 1, 1)
	addPartitions(t, c, "orders", 3)
	there := event("orders", us, 2000, 0, key(1, 1))
	requirePublished(t, cfg, us, []*sink.Message{lost, there}, func(i int) bool { return i == 1 })
}

// The routing was changed while rows were not sent yet. Where they belong now, newer rows of other
// keys are, and of the same key.
func TestPublished_HidesNoRowThatWasRoutedElsewhereBefore(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders", "payments"))
	cfg := quick(c.ListenAddrs()...)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	var later []*sink.Message
	for i := range 20 {
		for partition := range int32(2) {
			m := event("payments", us, pglogrepl.LSN(3000+100*i), uint32(partition), "k")
			m.Partition = partition
			later = append(later, m)
		}
	}
	// orders has no time for what follows
	session(t, cfg, []*sink.Message{event("orders", us, 500, 0, "k")})
	session(t, cfg, later)
	for partition := range int32(2) {
		deleteBefore(t, client, "payments", partition, 5)
	}
	var unsent []*sink.Message
	for i := range 10 {
		m := event("payments", us, pglogrepl.LSN(1000+100*i), 0, fmt.Sprint("k", i%3))
		m.Partition = int32(i%3) - 1 // by key, or as the row has it
		unsent = append(unsent, m)
	}
	requirePublished(t, cfg, us, unsent, func(int) bool { return false })
}

func TestPublished_FindsNothingInATopicThatIsNotThere(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
	for _, topic := range []string{"missing", "not a name", "orders"} {
		got, err := s.Published(parts.Within(t, patience), us, event(topic, us, 7, 0, "k"))
		require.NoError(t, err)
		require.False(t, got)
	}
	snapshot, err := s.Published(parts.Within(t, patience), us, event("orders", us, 0, 0, "k"))
	require.NoError(t, err)
	require.False(t, snapshot)
}

// What the leader has appended and its replicas do not have yet is waited for: the killed relay's
// last request.
func TestPublished_ReadsToTheEndOfTheLeadersLog(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	cfg := quick(c.ListenAddrs()...)
	ms := transactions("orders", us, 100)
	session(t, cfg, ms[:50])
	appended := make(chan struct{})
	c.ControlKey(int16(kmsg.ListOffsets), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := request.(*kmsg.ListOffsetsRequest)
		if asked.ReplicaID != debugging {
			return nil, nil, false
		}
		select {
		case appended <- struct{}{}:
		default:
		}
		response := asked.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = "orders"
		partition := kmsg.NewListOffsetsResponseTopicPartition()
		partition.Offset = 80
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	go func() {
		<-appended // the end was requested
		session(t, cfg, ms[50:80])
	}()
	requirePublished(t, cfg, us, ms, func(i int) bool { return i < 80 })
}

// It does not wait for ever, and not for a sink that is closed.
func TestPublished_GivesUp(t *testing.T) {
	t.Parallel()
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	cfg := quick(c.ListenAddrs()...)
	c.ControlKey(int16(kmsg.ListOffsets), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := request.(*kmsg.ListOffsetsRequest).ResponseKind().(*kmsg.ListOffsetsResponse)
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = "orders"
		partition := kmsg.NewListOffsetsResponseTopicPartition()
		partition.Offset = 0
		if request.(*kmsg.ListOffsetsRequest).ReplicaID == debugging {
			partition.Offset = 80
		}
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	s := openSink(t, cfg, newOutcomes().done)
	_, err := s.Published(parts.Within(t, 50*time.Millisecond), us, event("orders", us, 7, 0, "k"))
	require.ErrorContains(t, err, "deadline")

	closed := make(chan error, 1)
	go func() { closed <- s.Close(parts.Within(t, patience)) }()
	_, err = s.Published(parts.Within(t, patience), us, event("orders", us, 7, 0, "k"))
	require.ErrorIs(t, err, sink.ErrClosed)
	require.NoError(t, <-closed)

	cfg.DeliveryTimeout, cfg.ReadTimeout, cfg.ProduceTimeout = 3*time.Second, time.Second, 500*time.Millisecond
	_, err = openSink(t, cfg, newOutcomes().done).Published(parts.Within(t, patience), us,
		event("orders", us, 7, 0, "k"))
	require.ErrorIs(t, err, sink.ErrUnreachable)
	require.ErrorContains(t, err, "80 records were not on enough replicas")
}

// The search for the next older record ends when others wrote too much in between.
func TestPublished_BoundsTheSearch(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	cfg := quick(c.ListenAddrs()...)
	ms := transactions("orders", us, 100)
	session(t, cfg, ms[:50])
	foreign := make([]*sink.Message, 2000)
	for i := range foreign {
		foreign[i] = &sink.Message{Topic: "orders", Key: []byte("f"), Value: make([]byte, 1000),
			Partition: sink.ByKey}
	}
	session(t, cfg, foreign)
	read := func(gap int64) *tail {
		s := openSink(t, cfg, newOutcomes().done)
		require.NoError(t, s.Topic(parts.Within(t, patience), "orders"))
		r := tailReader{reader: topicreader.New(s.client, false), log: zerolog.Nop(), timeout: patience,
			topic: "orders", partitions: 1,
			source: us.Header(), from: position{lsn: 1000, index: 0}, gap: gap, tails: &s.tails}
		tail, err := r.read(parts.Within(t, patience))
		require.NoError(t, err)
		return tail
	}
	require.False(t, read(100_000).has(position{lsn: 1000, time: committed.UnixMicro()}, ms[0].Key))
	require.True(t, read(5_000_000).has(position{lsn: 1000, time: committed.UnixMicro()}, ms[0].Key))

	// The log line has the position from which on the events had no room.
	s := openSink(t, cfg, newOutcomes().done)
	require.NoError(t, s.Topic(parts.Within(t, patience), "orders"))
	var log bytes.Buffer
	r := tailReader{reader: topicreader.New(s.client, false), log: zerolog.New(&log), timeout: patience,
		topic: "orders", partitions: 1, source: us.Header(), from: position{lsn: 1000}, room: 2,
		tails: &s.tails}
	small, err := r.read(parts.Within(t, patience))
	require.NoError(t, err)
	require.NotZero(t, small.seen.until.lsn)
	require.Contains(t, log.String(), `"until":"`+small.seen.until.lsn.String()+`"`)

	// Of what was found before the gap nothing follows from what was not.
	session(t, cfg, ms[60:70])
	half := read(100_000)
	there := func(i int) bool {
		return half.has(position{ms[i].Origin.LSN, ms[i].Origin.Index, committed.UnixMicro()}, ms[i].Key)
	}
	require.False(t, there(49), "its key is that of 3, 26, 49 and 72")
	require.True(t, there(60))
	require.True(t, there(69))
	require.False(t, there(70))
}

// debugging is the replica as which the end of its log is requested of a leader.
const debugging = -2

func TestTail_TakesItsOwnRecords(t *testing.T) {
	ours := []kgo.RecordHeader{
		{Key: headerLSN, Value: []byte("0/7")}, {Key: headerIndex, Value: []byte("1")},
		{Key: sink.HeaderSource, Value: us.Signature(committed)},
	}
	for name, test := range map[string]struct {
		headers       []kgo.RecordHeader
		control       bool
		transactional bool
		taken         int
	}{
		"ours": {headers: ours, taken: 1}, "of another": {}, "control": {headers: ours, control: true},
		"of a transaction": {headers: ours, transactional: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := backStep{reader: &tailReader{source: us.Header(), partitions: 1}}
			batch := parts.RecordBatch(10, 0, test.control, test.transactional,
				kgo.Record{Offset: 10, Value: []byte("v"), Headers: test.headers})
			p := kmsg.FetchResponseTopicPartition{RecordBatches: batch}
			f, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{KeepControlRecords: true}, &p,
				kgo.DefaultDecompressor(), nil)
			require.NoError(t, f.Err)
			require.Len(t, f.Records, 1)
			require.NoError(t, s.take(f.Records[0]))
			require.Len(t, s.events, test.taken)
		})
	}
}

func TestTail_ReadsTheLastHeaderOfAName(t *testing.T) {
	at := func(headers ...string) (position, bool) {
		var hs []kgo.RecordHeader
		for i := 0; i < len(headers); i += 2 {
			hs = append(hs, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
		}
		return positionOf(hs, us.Header())
	}
	require.Equal(t, router.HeaderLSN, headerLSN)
	require.Equal(t, router.HeaderIndex, headerIndex)
	p, ok := at(headerLSN, "0/1", headerIndex, "9", sink.HeaderSource, "theirs", headerLSN,
		"16/B374D848", headerIndex, "3", sink.HeaderSource, string(us.Signature(committed)))
	require.True(t, ok)
	require.Equal(t, position{lsn: 0x16B374D848, index: 3, time: committed.UnixMicro()}, p)
	for _, headers := range [][]string{
		{},
		{headerLSN, "0/1", headerIndex, "9"},
		{headerLSN, "0/1", headerIndex, "9", sink.HeaderSource, "theirs"},
		{headerLSN, "x", headerIndex, "9", sink.HeaderSource, string(us.Signature(committed))},
		{headerLSN, "0/1", headerIndex, "-1", sink.HeaderSource, string(us.Signature(committed))},
		{headerLSN, "0/1", headerIndex, "4294967296", sink.HeaderSource,
			string(us.Signature(committed))},
		{headerIndex, "1", sink.HeaderSource, string(us.Signature(committed))},
		{headerLSN, "0/0", headerIndex, "1", sink.HeaderSource, string(us.Signature(committed))},
	} {
		_, ok := at(headers...)
		require.False(t, ok, headers)
	}

	odd := us
	odd.Events = "sh@p" // a publication; the time stands behind the last sign
	p, ok = positionOf([]kgo.RecordHeader{
		{Key: headerLSN, Value: []byte("0/7")}, {Key: headerIndex, Value: []byte("1")},
		{Key: sink.HeaderSource, Value: odd.Signature(committed)},
	}, odd.Header())
	require.True(t, ok)
	require.Equal(t, position{lsn: 7, index: 1, time: committed.UnixMicro()}, p)
}
