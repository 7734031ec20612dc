package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// manyKeys commits the next event of n keys at once.
func (r *rig) manyKeys(t testing.TB, n int, number uint64) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	_, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		SELECT $1, 'key-' || k, jsonb_build_object('key', 'key-' || k, 'number', $3::bigint, 'pad', repeat('x', 200)), $3
		FROM generate_series(1, $2::int) k`, r.topic, n, int64(number))
	require.NoError(t, err)
	for k := 1; k <= n; k++ {
		r.tally.Wrote(fmt.Sprint("key-", k), number)
	}
}

func TestFault54_ManyKeysAtOnceTakeLittleMemory(t *testing.T) {
	t.Parallel()
	n := full(t, 1000, 100_000)
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	delete(r.settings, "relay.in_flight_messages")
	p := r.started(t)
	r.manyKeys(t, n, 1)
	back := r.caughtUp(t)
	peak := p.peak(t)
	p.stop(t)
	matrix(t, 54, "", fmt.Sprintf("%d keys: caught up %.2f s after the commit; memory at most %s", n, back.Seconds(), mib(peak)))
	require.Less(t, peak, drainMemory, "resident memory")

	// The slot is not confirmed within a transaction: all of it comes again after each kill, and what was published is looked up in the topic.
	r.dedup()
	network := r.throughKafkaProxy(t)
	r.settings["relay.max_rate"] = fmt.Sprintf(`"%d rows/s"`, n/10) // or all is published before anyone looks
	p = r.started(t)
	r.manyKeys(t, n, 2)
	peak = 0
	for kill := range 2 {
		part := float64(n * (kill + 1) / 4)
		eventually(t, time.Minute, "a part of it published", func() bool { return p.events(t, "repeated")+float64(p.ask().Relay.Published) > part })
		peak = max(peak, p.peak(t))
		p.Kill(t)
		eventually(t, 30*time.Second, "nothing of the killed relay is in the network", func() bool { return network.Connections() == 0 })
		p = r.started(t)
	}
	again := r.caughtUp(t)
	spared := p.events(t, "repeated")
	require.Equal(t, 1, p.ask().Relay.Sessions)
	peak = max(peak, p.peak(t))
	p.stop(t)
	requireExact(t, r.judge(t))
	require.Positive(t, spared, "it was not killed in the middle")
	matrix(t, 54, "dedup tail", fmt.Sprintf("killed twice in a transaction of %d keys, which was through %.2f s after the last start, %.0f repetitions left out then; memory at most %s",
		n, again.Seconds(), spared, mib(peak)))
	require.Less(t, peak, drainMemory, "resident memory")
}
