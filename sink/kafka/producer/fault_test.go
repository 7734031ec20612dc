package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

func addPartitions(t *testing.T, c *kfake.Cluster, topic string, count int32) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 1000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, count
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(parts.Within(t, patience), client)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].ErrorCode)
}

// What Kafka calls retriable is retried in place: no failure is seen, nothing is repeated, nothing
// overtakes.
func TestSink_HealsInPlace(t *testing.T) {
	t.Parallel()
	for _, fault := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.KafkaStorageError, kerr.UnknownTopicOrPartition,
	} {
		t.Run(fault.Message, func(t *testing.T) {
			c := parts.Cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "orders"))
			got := newOutcomes()
			s := openSink(t, quick(c.ListenAddrs()...), got.done)
			const n = 600
			ms := numbered("orders", n)
			require.NoError(t, s.Publish(parts.Within(t, patience), ms[:100]))
			got.wait(t, 100)
			faults := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: fault,
				Count: 5})
			for at := 100; at < n; at += 20 {
				require.NoError(t, s.Publish(parts.Within(t, patience), ms[at:at+20]))
			}
			for _, o := range got.wait(t, n) {
				require.NoError(t, o.err)
			}
			require.GreaterOrEqual(t, faults.Hits(), 5)
			requireInOrder(t, read(t, c, "orders", n), n)
		})
	}
}

// A broker that stops may close a connection before the first answer on it. That means nothing about
// TLS or SASL any more, and fails no record.
func TestSink_OutlastsConnectionsThatEndBeforeTheFirstAnswer(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	got.wait(t, 1)
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, io.EOF, requests.Add(1) < 6
	})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders",
		Err: kerr.NotLeaderForPartition}) // the client looks for the leader
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	require.NoError(t, got.wait(t, 2)[1].err)
	require.GreaterOrEqual(t, requests.Load(), int32(6))
}

func TestStalled_NamesThePartitionThatWaits(t *testing.T) {
	t.Parallel()
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"))
	var away atomic.Bool
	away.Store(true)
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		if !away.Load() {
			return nil, nil, false
		}
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		of := kmsg.NewProduceResponseTopic()
		of.Topic, of.TopicID = produce.Topics[0].Topic, produce.Topics[0].TopicID
		for _, p := range produce.Topics[0].Partitions {
			one := kmsg.NewProduceResponseTopicPartition()
			if one.Partition = p.Partition; p.Partition == 1 {
				one.ErrorCode = kerr.NotEnoughReplicas.Code
			}
			of.Partitions = append(of.Partitions, one)
		}
		response.Topics = append(response.Topics, of)
		return response, nil, true
	})
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	to := func(partition int32, n int) {
		ms := numbered("orders", n)
		for _, m := range ms {
			m.Partition = partition
		}
		require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	}
	require.Zero(t, s.Stalled())
	to(1, 1)
	to(1, 2) // which the client does not get yet
	to(0, 1)
	got.wait(t, 1)
	parts.Await(t, "a stalled partition", func() (bool, error) { return s.Stalled() != sink.Stalled{}, nil })
	stalled := s.Stalled()
	require.GreaterOrEqual(t, time.Since(stalled.Since), sink.StalledAfter)
	require.Contains(t, stalled.Next, "--under-min-isr-partitions")
	stalled.Since, stalled.Next = time.Time{}, ""
	require.Equal(t, sink.Stalled{Partitions: 1, Messages: 3, Topic: "orders", Partition: 1}, stalled)
	away.Store(false)
	got.wait(t, 4)
	parts.Await(t, "none is stalled", func() (bool, error) { return s.Stalled() == sink.Stalled{}, nil })
}

// What it does not call so is reported, and the sink takes no more.
func TestSink_ReportsWhatCannotHeal(t *testing.T) {
	for _, test := range []struct {
		fault *kerr.Error
		is    error
	}{
		{kerr.MessageTooLarge, sink.ErrTooLarge},
		{kerr.RecordListTooLarge, sink.ErrTooLarge},
		{kerr.InvalidTimestamp, sink.ErrInvalidRecord},
		{kerr.InvalidRecord, sink.ErrInvalidRecord},
		{kerr.TopicAuthorizationFailed, sink.ErrPermission},
		{kerr.ClusterAuthorizationFailed, sink.ErrPermission},
		{kerr.InvalidTopicException, sink.ErrInvalidTopic},
		{kerr.OutOfOrderSequenceNumber, nil},
		{kerr.InvalidProducerEpoch, nil},
		{kerr.UnknownProducerID, nil},
		{kerr.ProducerFenced, nil},
		{kerr.UnknownServerError, nil},
	} {
		t.Run(test.fault.Message, func(t *testing.T) {
			c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
			got := newOutcomes()
			s := openSink(t, quick(c.ListenAddrs()...), got.done)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: test.fault})
			ms := numbered("orders", 1)
			require.NoError(t, s.Publish(parts.Within(t, patience), ms))
			err := got.wait(t, 1)[0].err
			t.Log(err)
			var which *sink.MessageError
			require.ErrorAs(t, err, &which)
			require.Equal(t, ms[0].Origin, which.Origin)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			require.ErrorIs(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)), which.Err)
			require.NoError(t, s.Close(parts.Within(t, patience)))
		})
	}
}

// A broker that is stopped for several times read_timeout is found again by the same producer.
func TestSink_OutlastsAStallBeyondTheReadTimeout(t *testing.T) {
	t.Parallel()
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.SeedTopics(3, "orders"), kfake.ListenFn(gate.Listen))
	cfg := quick(c.ListenAddrs()...)
	cfg.ProduceTimeout, cfg.ReadTimeout = 100*time.Millisecond, 200*time.Millisecond
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	const n = 900
	ms := numbered("orders", n)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms[:300]))
	got.wait(t, 300)

	resume := gate.Shut()
	stalled := time.AfterFunc(10*cfg.ReadTimeout, resume)
	defer stalled.Stop()
	for at := 300; at < n; at += 30 {
		require.NoError(t, s.Publish(parts.Within(t, patience), ms[at:at+30]))
	}
	for _, o := range got.wait(t, n) {
		require.NoError(t, o.err)
	}
	requireInOrder(t, read(t, c, "orders", n), n)
}

func TestSink_OutlastsARestart(t *testing.T) {
	dir := t.TempDir()
	_, port := parts.SplitPort(t, parts.Nobody(t))
	start := func() *kfake.Cluster {
		return parts.Cluster(t, kfake.SeedTopics(3, "orders"), kfake.Ports(int(port)),
			kfake.DataDir(dir))
	}
	c := start()
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	const n = 600
	ms := numbered("orders", n)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms[:300]))
	got.wait(t, 300)

	c.Close()
	require.NoError(t, s.Publish(parts.Within(t, patience), ms[300:]))
	c = start()
	for _, o := range got.wait(t, n) {
		require.NoError(t, o.err)
	}
	requireInOrder(t, read(t, c, "orders", n), n)
}

func TestSink_GivesUpAfterTheDeliveryTimeout(t *testing.T) {
	t.Parallel()
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"), kfake.ListenFn(gate.Listen))
	cfg := quick(c.ListenAddrs()...)
	cfg.ProduceTimeout, cfg.ReadTimeout, cfg.DeliveryTimeout = 500*time.Millisecond, time.Second, 3*time.Second
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	got.wait(t, 1)

	defer gate.Shut()()
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 50)))
	for _, o := range got.wait(t, 51)[1:] {
		require.ErrorIs(t, o.err, sink.ErrUnreachable)
		require.ErrorContains(t, o.err, "sink.kafka.delivery_timeout")
	}
	require.ErrorIs(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)),
		sink.ErrUnreachable)
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

func TestSink_GivesUpOnTooFewReplicas(t *testing.T) {
	t.Parallel()
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.NotEnoughReplicas,
		Count: -1})
	cfg := quick(c.ListenAddrs()...)
	cfg.ProduceTimeout, cfg.ReadTimeout, cfg.DeliveryTimeout = 500*time.Millisecond, time.Second, 3*time.Second
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 10)))
	for _, o := range got.wait(t, 10) {
		require.ErrorIs(t, o.err, sink.ErrUnreachable)
	}
}

func TestSink_ReportsABrokerThatIsGone(t *testing.T) {
	t.Parallel()
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	cfg := quick(c.ListenAddrs()...)
	cfg.ProduceTimeout, cfg.ReadTimeout, cfg.DeliveryTimeout = 500*time.Millisecond, time.Second, 3*time.Second
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	got.wait(t, 1)
	c.Close()
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 50)))
	for _, o := range got.wait(t, 51)[1:] {
		require.ErrorIs(t, o.err, sink.ErrUnreachable)
	}
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

// Connections are cut at random while messages flow. Should a session fail, the next starts from
// the first message that was not delivered, as the relay does: then repeats are allowed, gaps and
// overtaking are not.
func TestSink_LosesNothingWhenConnectionsAreCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))

	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "orders"),
		kfake.ListenFn(gate.Listen))
	cfg := quick(c.ListenAddrs()...)
	const n = 6000
	ms := numbered("orders", n)
	sessions, acked := 0, 0 // ms[:acked] is delivered
	for acked < n {
		require.Less(t, sessions, 50, "no progress")
		sessions++
		got := newOutcomes()
		s, err := Open(parts.Within(t, patience), cfg, zerolog.Nop(), got.done)
		require.NoError(t, err)
		sent := acked
		for sent < n && err == nil {
			next := min(sent+1+random.IntN(40), n)
			if err = s.Publish(parts.Within(t, patience), ms[sent:next]); err == nil {
				sent = next
			}
			if random.IntN(25) == 0 {
				gate.Cut()
			}
		}
		list := got.wait(t, sent-acked)
		_ = s.Close(parts.Within(t, patience))
		delivered := map[*sink.Message]bool{}
		for _, o := range list {
			delivered[o.message] = o.err == nil
		}
		for acked < n && delivered[ms[acked]] {
			acked++
		}
	}
	t.Logf("%d sessions", sessions)
	requireNoGap(t, readAll(t, c, "orders", 6), n)
}

// requireNoGap requires every number, and in each partition none before a smaller one was seen there
// for the first time.
func requireNoGap(t testing.TB, records []*kgo.Record, n int) {
	t.Helper()
	seen, highest := map[int]bool{}, map[int32]int{}
	repeated := 0
	for _, r := range records {
		i, err := strconv.Atoi(string(r.Value))
		require.NoError(t, err)
		if seen[i] {
			repeated++
			continue
		}
		if before, ok := highest[r.Partition]; ok {
			require.Greater(t, i, before, "partition %d", r.Partition)
		}
		seen[i], highest[r.Partition] = true, i
	}
	require.Len(t, seen, n)
	t.Logf("%d repeated", repeated)
}

// readAll reads a topic to its end.
func readAll(t testing.TB, c *kfake.Cluster, topic string, partitions int32) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	total := 0
	for _, shard := range client.RequestSharded(parts.Within(t, patience), req) {
		require.NoError(t, shard.Err)
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range topic.Partitions {
				require.Zero(t, p.ErrorCode)
				total += int(p.Offset)
			}
		}
	}
	return read(t, c, topic, total)
}

func TestSink_CloseDoesNotWaitForABrokerThatWasGivenUp(t *testing.T) {
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"), kfake.ListenFn(gate.Listen))
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	got.wait(t, 1)
	defer gate.Shut()()
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 10)))

	ended, end := context.WithCancelCause(context.Background())
	end(errors.New("second signal"))
	_ = s.Close(ended)
	for _, o := range got.wait(t, 11)[1:] {
		require.ErrorIs(t, o.err, sink.ErrClosed)
	}
}

// A Close that returns nil promises that no message is reported after it, the second one too.
func TestSink_ASecondCloseWaitsForTheFirst(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	reporting, release := make(chan struct{}), make(chan struct{})
	s := openSink(t, quick(c.ListenAddrs()...), func(*sink.Message, error) {
		close(reporting)
		<-release
	})
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	<-reporting
	first := make(chan error, 1)
	go func() { first <- s.Close(parts.Within(t, patience)) }()
	parts.Await(t, "the sink to stop", func() (bool, error) { return s.stopped(), nil })
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, s.Close(ended), context.Canceled)
	close(release)
	require.NoError(t, s.Close(parts.Within(t, patience)))
	require.NoError(t, <-first)
}

// What stands behind a failed message must not be written: it would be seen before the failed one,
// which comes again.
func TestSink_NothingOvertakesAFailedMessage(t *testing.T) {
	for _, fault := range []*kerr.Error{kerr.InvalidRecord, kerr.MessageTooLarge,
		kerr.OutOfOrderSequenceNumber, kerr.UnknownServerError} {
		for round := range 5 {
			t.Run(fmt.Sprintf("%s %d", fault.Message, round), func(t *testing.T) {
				c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
				cfg := quick(c.ListenAddrs()...)
				cfg.Linger = 0
				got := newOutcomes()
				s := openSink(t, cfg, got.done)
				ms := numbered("orders", 500)
				require.NoError(t, s.Publish(parts.Within(t, patience), ms[:1]))
				got.wait(t, 1)
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: fault})
				taken := 1
				for taken < len(ms) && s.Publish(parts.Within(t, patience), ms[taken:taken+1]) == nil {
					taken++
				}
				list := got.wait(t, taken)
				require.Same(t, ms[1], list[1].message, "the failure itself comes first")
				for _, o := range list[1:] {
					require.Error(t, o.err, "value %s", o.message.Value)
				}
				require.NoError(t, s.Close(parts.Within(t, patience)))
				require.Len(t, readAll(t, c, "orders", 1), 1)
			})
		}
	}
}
