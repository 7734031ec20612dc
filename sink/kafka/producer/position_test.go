package producer

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
	"github.com/postrider/postrider/test/parts"
)

// Once the former producer of a source is fenced, none of its transactions is open. If one is,
// what it will be is not known, and the position before it is not where to go on.
func TestPositions_AreSettledOnlyWithoutAnOpenTransactionOfTheSource(t *testing.T) {
	other := someSource
	other.SystemID = "1"
	ours := encodePosition(sink.Position{Source: someSource, LSN: 7})
	theirs := encodePosition(sink.Position{Source: other, LSN: 9})
	found := positions{committed: map[string][]byte{positionKey(someSource): ours}}
	found.transactions.Open = map[topicreader.Writer][]*kgo.Record{
		{Producer: 1}: {{Key: []byte(positionKey(other)), Value: theirs}},
	}
	p, err := found.forFencedSource("positions", someSource)
	require.NoError(t, err)
	require.EqualValues(t, 7, p.LSN)
	found.transactions.Open[topicreader.Writer{Producer: 2}] = []*kgo.Record{{Key: []byte(positionKey(someSource)), Value: ours}}
	_, err = found.forFencedSource("positions", someSource)
	require.ErrorIs(t, err, errOpenTransaction)
}

// FuzzPosition gives a value that anybody may have written to the position topic. What can be read
// can be written, and is read as the same again.
func FuzzPosition(f *testing.F) {
	f.Add([]byte(`{"lsn":"0/16B3748","commit_time":"2024-01-02T03:04:05.678901Z","timeline":1,"system_id":"7301234567890123456","database":"shop","slot":"relay"}`))
	f.Add([]byte(`{"lsn":"FFFFFFFF/FFFFFFFF","timeline":-1}`))
	f.Add([]byte(`{"lsn":"0"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, value []byte) {
		p, err := decodePosition(value)
		if err != nil {
			return
		}
		again, err := decodePosition(encodePosition(p))
		require.NoError(t, err)
		require.True(t, p.CommitTime.Equal(again.CommitTime))
		again.CommitTime = p.CommitTime // the same moment, perhaps in another zone
		require.Equal(t, p, again)
	})
}

// A broker that has just started does not have the topic yet. Its answer must not be taken for a
// topic without a position: the relay would publish again what is there.
func TestReadPositions_TakesNoMissingTopicForAnEmptyOne(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, positionTopic))
	cfg := quick(c.ListenAddrs()...)
	client, err := kafka.Connect(parts.Within(t, patience), cfg, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	stale := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: positionTopic,
		Err: kerr.UnknownTopicOrPartition, Count: -1})
	_, err = readPositions(parts.Within(t, patience), client, positionTopic)
	require.ErrorIs(t, err, sink.ErrUnreachable)
	stale.Remove()
	_, err = readPositions(parts.Within(t, patience), client, positionTopic)
	require.NoError(t, err)

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: positionTopic,
		Err: kerr.UnknownTopicOrPartition, Count: 2})
	_, err = readPositions(parts.Within(t, patience), client, positionTopic)
	require.NoError(t, err, "it is requested again")
}
