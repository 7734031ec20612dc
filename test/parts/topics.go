package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumeTimeout bounds every wait for records: a slow machine needs seconds, a lost record
// forever.
const consumeTimeout = time.Minute

// Client opens a client for the test's own reading and writing, past any proxy. It is closed at
// the end of the test.
func (b *Broker) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.direct...)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// Topic creates a topic with a name of its own and returns the name.
func (b *Broker) Topic(t testing.TB, partitions int32) string {
	t.Helper()
	name := Unique("topic")
	b.CreateTopic(t, name, partitions, nil)
	return name
}

// CreateTopic creates a topic with the given settings, if any.
func (b *Broker) CreateTopic(t testing.TB, name string, partitions int32,
	configs map[string]string) {
	t.Helper()
	settings := map[string]*string{}
	for key, value := range configs {
		settings[key] = &value
	}
	b.withAdmin(t, func(admin *kadm.Client) {
		Await(t, "topic "+name+" created", func() (bool, error) {
			_, err := admin.CreateTopic(t.Context(), partitions, max(b.replicas, 1), settings, name)
			if errors.Is(err, kerr.InvalidReplicationFactor) {
				return false, nil // on a busy machine a broker loses its lease for a moment
			}
			return true, err
		})
	})
	// The controller has it; the broker takes a moment longer, and on a busy machine a long one.
	Await(t, "topic "+name, func() (bool, error) { return b.Partitions(t, name) == partitions, nil })
}

// DeleteTopic deletes a topic, and returns when no broker takes records for it any more.
func (b *Broker) DeleteTopic(t testing.TB, name string) {
	t.Helper()
	partitions := b.Partitions(t, name)
	b.withAdmin(t, func(admin *kadm.Client) {
		_, err := admin.DeleteTopic(t.Context(), name)
		require.NoError(t, err, "delete topic %s", name)
	})
	// A broker's metadata lose the topic first. As long as it has the partitions, it acknowledges
	// records that go with them.
	Await(t, "the end of topic "+name,
		func() (bool, error) { return !b.hosts(t, name, partitions), nil })
}

// EndsRequest asks the leaders of the partitions of topics for what consumers can see. To a broker
// it is sent directly: that answers for the partitions that it leads.
func EndsRequest(partitions int32, topics ...string) *kmsg.ListOffsetsRequest {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	for _, topic := range topics {
		of := kmsg.NewListOffsetsRequestTopic()
		of.Topic = topic
		for partition := range partitions {
			one := kmsg.NewListOffsetsRequestTopicPartition()
			one.Partition, one.Timestamp = partition, -1 // the end
			of.Partitions = append(of.Partitions, one)
		}
		request.Topics = append(request.Topics, of)
	}
	return request
}

// hosts reports whether a broker still has a partition of a topic, whatever its metadata is.
func (b *Broker) hosts(t testing.TB, topic string, partitions int32) (there bool) {
	t.Helper()
	request := EndsRequest(partitions, topic)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.direct...))
	require.NoError(t, err)
	defer client.Close()
	// Discovers the brokers.
	_, err = kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client)
	require.NoError(t, err)
	for _, broker := range client.DiscoveredBrokers() {
		answer, err := broker.Request(t.Context(), request)
		require.NoError(t, err)
		for _, topic := range answer.(*kmsg.ListOffsetsResponse).Topics {
			for _, partition := range topic.Partitions {
				there = there || partition.ErrorCode == 0
			}
		}
	}
	return there
}

// Partitions returns how many partitions the topic has, and zero for a topic that does not exist.
func (b *Broker) Partitions(t testing.TB, topic string) (count int32) {
	t.Helper()
	b.withAdmin(t, func(admin *kadm.Client) {
		topics, err := admin.ListTopics(t.Context(), topic)
		require.NoError(t, err)
		if err := topics[topic].Err; !errors.Is(err, kerr.UnknownTopicOrPartition) {
			require.NoError(t, err)
		}
		count = int32(len(topics[topic].Partitions))
	})
	return count
}

// AwaitMarkers returns when the transactions that have ended by now have all their markers. The
// broker answers the request that ends a transaction before it writes them, and a reader of
// committed records sees its records only then. Open transactions are left alone.
func (b *Broker) AwaitMarkers(t testing.TB) {
	t.Helper()
	b.withAdmin(t, func(admin *kadm.Client) {
		list := func() kadm.ListedTransactions {
			ending, err := admin.ListTransactions(t.Context(), nil,
				[]string{"PrepareCommit", "PrepareAbort"})
			require.NoError(t, err)
			return ending
		}
		waiting := list()
		Await(t, "markers of transactions", func() (bool, error) {
			ending := list()
			maps.DeleteFunc(waiting, func(id string, _ kadm.ListedTransaction) bool {
				_, still := ending[id]
				return !still
			})
			return len(waiting) == 0, nil
		})
	})
}

// EndOffsets returns, for each partition, the offset after the last record that a reader of
// committed records may see, those of transactions that have just ended included. Markers of
// transactions take offsets too.
func (b *Broker) EndOffsets(t testing.TB, topic string) map[int32]int64 {
	t.Helper()
	b.AwaitMarkers(t)
	ends := map[int32]int64{}
	b.withAdmin(t, func(admin *kadm.Client) {
		Await(t, "the ends of topic "+topic, func() (bool, error) {
			listed, err := admin.ListCommittedOffsets(t.Context(), topic)
			if err = cmp.Or(err, listed.Error()); errors.Is(err, kerr.LeaderNotAvailable) {
				return false, nil // the topic is new
			}
			listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
			return true, err
		})
	})
	require.NotEmpty(t, ends, "topic %s", topic)
	return ends
}

// Consume returns the first n records of the topic, and waits for them. Records of one partition
// are in order. Uncommitted and aborted ones are not seen.
func (b *Broker) Consume(t testing.TB, topic string, n int) []*kgo.Record {
	t.Helper()
	if n == 0 {
		return nil
	}
	records := b.ConsumeUntil(t, []string{topic},
		func(records []*kgo.Record) bool { return len(records) >= n })
	return records[:n]
}

// ConsumeUntil reads the topics from their start until enough is satisfied with what has been read
// so far, and returns that. The topics must exist. It fails the test after a minute.
func (b *Broker) ConsumeUntil(t testing.TB, topics []string,
	enough func([]*kgo.Record) bool) []*kgo.Record {
	t.Helper()
	var records []*kgo.Record
	b.read(t, topics, func(record *kgo.Record) {
		if !record.Attrs.IsControl() {
			records = append(records, record)
		}
	}, func() bool { return enough(records) },
		func() string { return fmt.Sprintf("%d records", len(records)) })
	return records
}

// All returns every committed record that the topic has now.
func (b *Broker) All(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	missing := b.EndOffsets(t, topic)
	maps.DeleteFunc(missing, func(_ int32, end int64) bool { return end == 0 })
	var records []*kgo.Record
	b.read(t, []string{topic}, func(record *kgo.Record) {
		end, waiting := missing[record.Partition]
		if !waiting {
			return // written after the ends were read
		}
		if record.Offset+1 >= end {
			delete(missing, record.Partition)
		}
		if !record.Attrs.IsControl() && record.Offset < end {
			records = append(records, record)
		}
	}, func() bool { return len(missing) == 0 }, func() string {
		return fmt.Sprintf("%d records, with these ends not reached: %v", len(records), missing)
	})
	return records
}

// read passes records, markers of transactions included, to each until done returns true.
func (b *Broker) read(t testing.TB, topics []string, each func(*kgo.Record), done func() bool,
	soFar func() string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.direct...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), consumeTimeout)
	defer cancel()
	for !done() {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "read %v: after %s", topics, soFar())
		// Errors that pass, such as a leader not being known yet, are retried inside the client.
		require.NoError(t, fetches.Err(), "read %v: after %s", topics, soFar())
		fetches.EachRecord(each)
	}
}

func (b *Broker) withAdmin(t testing.TB, use func(*kadm.Client)) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.direct...))
	require.NoError(t, err)
	defer client.Close()
	use(kadm.NewClient(client))
}
