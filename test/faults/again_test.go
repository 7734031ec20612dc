package faults

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// soon is how long rows may stay away once what was away is back.
const soon = time.Second

// requireSoon holds the long form to it, more often than not: nothing else should use the machine, and something may. The short form runs beside
// others, with the race detector: there the figures are printed only.
func requireSoon(t testing.TB, again times) {
	t.Helper()
	if *long {
		require.LessOrEqual(t, slices.Sorted(slices.Values(again))[len(again)/2], soon, "rows flow again: %s", again)
	}
}

// afterServer returns how long after the server took connections again the first record came. stop ends the server.
func (r *rig) afterServer(t testing.TB, pg *embedded.Postgres, stop func()) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	f := r.follow(ctx, t)
	stop()
	started := make(chan error, 1)
	go func() { started <- pg.Start(ctx) }() // waited for below
	conn, taken := accepted(ctx, t, r.dsn)
	defer conn.Close(ctx)
	r.insertBulk(t, conn, 1) // so that there is something to come
	require.NoError(t, <-started)
	return f.firstAfter(t, taken)
}

// accepted asks every 10 ms for a connection, and returns the first one and when it was there.
func accepted(ctx context.Context, t testing.TB, dsn string) (*pgx.Conn, time.Time) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return conn, time.Now()
		}
		require.NoError(t, ctx.Err(), "%v", err)
		<-again.C
	}
}

// afterBroker returns how long after each partition of the topic had a leader again the first record came. stop ends the broker. Rows
// have to be committed meanwhile.
func (r *rig) afterBroker(t testing.TB, stop func()) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	f := r.follow(ctx, t)
	client := r.broker.Client(t, kgo.RequestRetries(0), kgo.DialTimeout(time.Second))
	stop()
	back := make(chan time.Time, 1)
	go func() { // ends with ctx at the latest
		r.awaitLeaders(ctx, client)
		back <- time.Now()
	}()
	r.broker.Restart(t)
	return f.firstAfter(t, <-back)
}

// afterNetwork returns how long after the way to the broker was free again the first record came. strike ends the sessions.
func (r *rig) afterNetwork(t testing.TB, network *parts.Proxy, strike func()) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	f := r.follow(ctx, t)
	strike()
	r.backlog(t, 2*bulkKeys)
	free := time.Now()
	network.Resume()
	return f.firstAfter(t, free)
}

// awaitLeaders asks every 10 ms whether each partition of the topic has a leader.
func (r *rig) awaitLeaders(ctx context.Context, client *kgo.Client) {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("outbox.event." + r.topic)
	request.Topics = append(request.Topics, topic)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		if response, err := request.RequestWith(ctx, client); err == nil && led(response) {
			return
		}
		<-again.C
	}
}

func led(response *kmsg.MetadataResponse) bool {
	for _, topic := range response.Topics {
		if kerr.ErrorForCode(topic.ErrorCode) != nil {
			return false
		}
		for _, partition := range topic.Partitions {
			if partition.Leader < 0 || len(partition.ISR) == 0 || kerr.ErrorForCode(partition.ErrorCode) != nil {
				return false
			}
		}
	}
	return len(response.Topics) > 0
}

// follower notes when records come.
type follower struct {
	mu   sync.Mutex
	came []time.Time
}

// firstAfter returns how long after a time the first record came.
func (f *follower) firstAfter(t testing.TB, since time.Time) (took time.Duration) {
	t.Helper()
	eventually(t, parts.Patience, "a record comes", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		first := slices.IndexFunc(f.came, since.Before)
		if first >= 0 {
			took = f.came[first].Sub(since)
		}
		return first >= 0
	})
	return took
}

// follow reads the topic from its present end, until ctx ends.
func (r *rig) follow(ctx context.Context, t testing.TB) *follower {
	t.Helper()
	from := map[int32]kgo.Offset{}
	for partition, end := range r.broker.EndOffsets(t, "outbox.event."+r.topic) {
		from[partition] = kgo.NewOffset().At(end)
	}
	quick := func(int) time.Duration { return 10 * time.Millisecond }
	client := r.broker.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"outbox.event." + r.topic: from}),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.RetryBackoffFn(quick), kgo.MetadataMinAge(10*time.Millisecond), kgo.DialTimeout(time.Second))
	f := &follower{}
	go func() { // ends with ctx
		for ctx.Err() == nil {
			if fetched := client.PollFetches(ctx); fetched.NumRecords() > 0 {
				f.mu.Lock()
				f.came = append(f.came, time.Now())
				f.mu.Unlock()
			}
		}
	}()
	return f
}
