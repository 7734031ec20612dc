package producer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// Vectors computed with Kafka's own Utils.murmur2 and toPositive.
func TestPartitioner_PlacesKeysAsJavaDoes(t *testing.T) {
	for _, test := range []struct {
		key                   string
		of3, of6, of12, exact int32 // exact: of 2^31-1, to compare the hash itself
	}{
		{"10711fa5", 2, 5, 11, -452740149 & 0x7fffffff},
		{`"10711fa5"`, 0, 3, 3, 1035007959},
		{`{"schema":{"type":"string","optional":false},"payload":"10711fa5"}`, 0, 3, 3, 1003484787},
		{"null", 2, 5, 11, -75681477 & 0x7fffffff},
		{"", 0, 3, 9, 275646681},
		{`""`, 1, 4, 4, 758082772},
		{"da8d6de6-3b77-45ff-8f44-57db55a7a06c", 1, 1, 7, 142267339},
		{"42", 1, 4, 4, 417700972},
		{`"aw=="`, 0, 3, 9, 848359953},
		{"User", 2, 5, 5, -1465779807 & 0x7fffffff},
		{"é", 0, 3, 3, 186971271},
		{`"é"`, 2, 2, 2, 866203394},
		{"7bdf2e9e", 2, 2, 8, -1729616400 & 0x7fffffff},
		{"a9d76f78", 2, 5, 5, 843214049},
		{"9948fcad", 1, 1, 1, 886562305},
	} {
		t.Run(test.key, func(t *testing.T) {
			m := &sink.Message{Topic: "orders", Key: []byte(test.key), Partition: sink.ByKey}
			for partitions, want := range map[int32]int32{3: test.of3, 6: test.of6, 12: test.of12,
				1<<31 - 1: test.exact} {
				require.Equal(t, want, place(partitions, m), "of %d partitions", partitions)
				require.EqualValues(t, want,
					javaPartitioner{kgo.StickyKeyPartitioner(nil)}.ForTopic("orders").Partition(kafkaRecord(m),
						int(partitions)))
			}
		})
	}
}

// place is where the at-least-once sink puts a message.
func place(partitions int32, m *sink.Message) int32 {
	p := &placement{}
	p.partitions.Store(partitions)
	return p.partition(kafkaRecord(m), m.Partition, kafka.SizeInBatch(m))
}

// The client counts the partitions, and calls the partitioner with what it has counted. Messages
// are placed before that, with what the last answer had.
func TestPartitioner_PlacesKeysInPartitionsThatWereAdded(t *testing.T) {
	ls := &queues{topics: map[string]*topicQueues{}}
	client := presetPartitioner{ls}.ForTopic("orders")
	m := &sink.Message{Topic: "orders", Key: []byte("10711fa5"), Partition: sink.ByKey}
	r := kafkaRecord(m)
	for partitions, want := range map[int]int32{3: 2, 6: 5, 12: 11} { // as Java does
		r.Partition = 1
		require.Equal(t, 1, client.Partition(r, partitions), "it has its partition already")
		require.Equal(t, want, ls.topic("orders").partition(kafkaRecord(m), m.Partition,
			kafka.SizeInBatch(m)), "of %d partitions", partitions)
	}
}

func TestPartitioner_PrefersTheExplicitPartition(t *testing.T) {
	for partition := range int32(2) {
		m := &sink.Message{Key: []byte("10711fa5"), Partition: partition}
		require.Equal(t, partition, place(3, m))
		require.EqualValues(t, partition,
			javaPartitioner{kgo.StickyKeyPartitioner(nil)}.ForTopic("orders").Partition(kafkaRecord(m), 3))
	}
}

// The client would count the partitions that have a leader, and write to the one that has that
// number among them.
func TestPartitioner_CountsPartitionsWithoutALeader(t *testing.T) {
	record := func(key string, partition int32) *kgo.Record {
		return kafkaRecord(&sink.Message{Topic: "orders", Key: []byte(key), Partition: partition})
	}
	chosen := presetPartitioner{&queues{topics: map[string]*topicQueues{}}}.ForTopic("orders")
	choosing := javaPartitioner{kgo.StickyKeyPartitioner(nil)}.ForTopic("orders")
	for _, r := range []*kgo.Record{record("10711fa5", sink.ByKey), record("10711fa5", 0),
		record("10711fa5", 1)} {
		require.True(t, chosen.RequiresConsistency(r))
		require.True(t, choosing.RequiresConsistency(r))
	}
	for partition := range int32(2) {
		r := record("", partition)
		r.Key = nil
		require.True(t, chosen.RequiresConsistency(r))
		require.True(t, choosing.RequiresConsistency(r))
	}
}

func TestPartitioner_KeepsAPartitionForKeylessMessagesForAWhile(t *testing.T) {
	leaderless := int32(-1)
	q := &placement{hasLeader: func(partition int32) bool { return partition != leaderless }}
	q.partitions.Store(6)
	m := &sink.Message{Value: make([]byte, 1000), Partition: sink.ByKey}
	const n = 2000
	used, changes, last := map[int32]bool{}, 0, int32(-1)
	for range n {
		got := q.partition(kafkaRecord(m), m.Partition, kafka.SizeInBatch(m))
		if got != last {
			changes++
		}
		used[got], last = true, got
	}
	require.Len(t, used, 6)
	require.Less(t, changes, n/10, "every change of partition is another batch")

	leaderless = 3
	for range n {
		q.left = 0
		require.NotEqual(t, leaderless, q.partition(kafkaRecord(m), m.Partition, kafka.SizeInBatch(m)))
	}
}
