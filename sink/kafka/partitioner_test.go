package kafka

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"postrider/sink"
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
			p := newPartitioner("orders")
			r := &record{}
			r.fill(&sink.Message{Topic: "orders", Key: []byte(test.key), Partition: sink.ByKey})
			for partitions, want := range map[int32]int32{3: test.of3, 6: test.of6, 12: test.of12, 1<<31 - 1: test.exact} {
				got, err := p.Partition(&r.producer, partitions)
				require.NoError(t, err)
				require.Equal(t, want, got, "of %d partitions", partitions)
			}
		})
	}
}

func TestPartitioner_PrefersTheExplicitPartition(t *testing.T) {
	got, err := newPartitioner("orders").Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder("10711fa5"), Partition: 1}, 3)
	require.NoError(t, err)
	require.Equal(t, int32(1), got)
}

func TestPartitioner_KeepsAPartitionForKeylessMessagesForAWhile(t *testing.T) {
	p := newPartitioner("orders")
	used, changes, last := map[int32]bool{}, 0, int32(-1)
	const n = 2000
	for range n {
		got, err := p.Partition(&sarama.ProducerMessage{Value: sarama.ByteEncoder(make([]byte, 1000)), Partition: sink.ByKey}, 6)
		require.NoError(t, err)
		if got != last {
			changes++
		}
		used[got], last = true, got
	}
	require.Len(t, used, 6)
	require.Less(t, changes, n/10, "every change of partition is another batch")
}
