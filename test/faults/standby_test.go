package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/test/parts"
)

func TestFault32_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	// Each has rows in flight when it is killed.
	r.throughKafkaProxy(t).Delay(10 * time.Millisecond)
	leader := r.started(t)
	l := r.load(t, 200)
	for range full(t, 3, 30) {
		standby := r.start(t)
		standby.phase(t, "standby", 30*time.Second)
		require.True(t, standby.ready(), "a standby is ready")
		l.more(t, 500)
		require.Equal(t, "streaming", leader.ask().Relay.Phase)
		require.Equal(t, "standby", standby.ask().Relay.Phase)

		leader.kill(t)
		began := time.Now()
		standby.streams(t, 30*time.Second)
		t.Logf("took over after %s", time.Since(began))
		leader = standby
	}
	l.end(t)
	r.drained(t, time.Minute)
	leader.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(full(t, 3, 30))*repeats)
}
