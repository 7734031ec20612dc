package faults

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// TestFault16_LosingWritesLosesNothing ends the connection to a real broker at a share of what the relay sends, before or after the
// broker has it: a producer without sequence numbers would lose, repeat or swap here.
func TestFault16_LosingWritesLosesNothing(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{1, 5} {
		t.Run(fmt.Sprintf("%d percent", percent), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			network := r.throughKafkaProxy(t)
			p := r.started(t)
			l := r.load(t, rate())
			l.more(t, 100)
			network.Lose(float64(percent)/100, *seed)
			l.more(t, int64(full(t, 1500, 200_000)))
			eventually(t, time.Minute, "connections lost", func() bool { return network.Lost() >= 2 })
			l.end(t)
			network.Lose(0, 0)
			r.drained(t, 2*time.Minute)
			sessions := p.ask().Relay.Sessions
			p.stop(t)
			v := r.judge(t)
			requireNothingLost(t, v)
			require.LessOrEqual(t, v.Duplicated, int64(sessions-1)*repeats)
			matrix(t, 16, fmt.Sprintf("%d %% of the writes cut", percent), fmt.Sprintf("%d connections lost, %d sessions", network.Lost(), sessions))
		})
	}
}

func TestFault16_MovingLeadersLoseNothing(t *testing.T) {
	t.Parallel()
	broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{Brokers: 3})
	r := newRig(t, server(t, parts.AnyVersion), broker)
	p := r.started(t)
	l := r.load(t, rate())
	random := random(t, 0)
	refused := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1,
		When: func(kmsg.Request) bool { return random.IntN(20) == 0 }})
	moves := 0
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	goal := l.committed.Load() + int64(full(t, 1500, 100_000))
	for l.committed.Load() < goal {
		<-every.C
		fake.Cluster.ShufflePartitionLeaders()
		moves++
	}
	l.end(t)
	refused.Remove()
	r.drained(t, 2*time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(sessions-1)*repeats)
	matrix(t, 16, "in-process brokers, leaders moved every 50 ms, 5 % NOT_LEADER",
		fmt.Sprintf("%d moves, %d times NOT_LEADER, %d sessions", moves, refused.Hits(), sessions))
}

// answered runs a load while a share of the produce requests is answered with an error.
func answered(t *testing.T, fault *kerr.Error, oneIn int) (hits, sessions int, duplicated int64) {
	t.Helper()
	broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{})
	r := newRig(t, server(t, parts.AnyVersion), broker)
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 200)
	var asked atomic.Int64
	h := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: fault, Count: -1,
		When: func(kmsg.Request) bool { return asked.Add(1)%int64(oneIn) == 0 }})
	wanted := full(t, 3, 100)
	eventually(t, 10*time.Minute, "answered so, again and again", func() bool { p.requireRunning(t); return h.Hits() >= wanted })
	h.Remove()
	l.more(t, 200)
	l.end(t)
	r.drained(t, 2*time.Minute)
	hits, sessions = h.Hits(), p.ask().Relay.Sessions
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	return hits, sessions, v.Duplicated
}

func TestFault17_AnswersThatComeAfterTheAppendRepeatNothing(t *testing.T) {
	t.Parallel()
	for _, fault := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(fault.Message, func(t *testing.T) {
			t.Parallel()
			hits, sessions, duplicated := answered(t, fault, 10)
			require.LessOrEqual(t, duplicated, int64(sessions-1)*repeats)
			matrix(t, 17, fault.Message, fmt.Sprintf("%d answers, %d sessions", hits, sessions))
		})
	}
}

func TestFault18_AFreshProducerGoesOn(t *testing.T) {
	t.Parallel()
	for _, fault := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.UnknownProducerID} {
		t.Run(fault.Message, func(t *testing.T) {
			t.Parallel()
			hits, sessions, duplicated := answered(t, fault, 30)
			require.Greater(t, sessions, 1, "a producer that the broker has refused is not used any more")
			require.LessOrEqual(t, duplicated, int64(sessions-1)*repeats)
			matrix(t, 18, fault.Message, fmt.Sprintf("%d answers, %d sessions", hits, sessions))
		})
	}
}

// TestFault17_LostAnswersRepeatNothing is about a real broker whose answers do not arrive: it has appended, and the relay can't know.
func TestFault17_LostAnswersRepeatNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["sink.kafka.produce_timeout"], r.settings["sink.kafka.read_timeout"] = `"1s"`, `"2s"`
	network := r.throughKafkaProxy(t)
	p := r.started(t)
	l := r.load(t, 200)
	n := full(t, 2, 30)
	for range n {
		l.more(t, 200)
		network.Mute()
		l.more(t, 200)
		network.Cut()
		network.Resume()
	}
	l.end(t)
	r.drained(t, 2*time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(sessions-1)*repeats)
	matrix(t, 17, "answers of a real broker lost", fmt.Sprintf("%d times, %d sessions", n, sessions))
}
