package faults

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

func TestFault04_PausedRelayLetsAnotherTakeOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	first := r.started(t)
	l := r.load(t, 100)
	l.more(t, 300)
	second := r.start(t)
	second.phase(t, "standby", 30*time.Second)

	// The server notices when wal_sender_timeout, which the relay sets to 15 s, has passed.
	first.signal(t, syscall.SIGSTOP)
	began := time.Now()
	second.streams(t, time.Minute)
	took := time.Since(began)
	l.more(t, 300)
	for time.Since(began) < fullFor(t, 0, 30*time.Second) { // twice the timeout
		l.more(t, 50)
	}
	first.signal(t, syscall.SIGCONT)
	first.phase(t, "standby", 30*time.Second)
	require.Equal(t, "streaming", second.ask().Relay.Phase)

	l.end(t)
	r.drained(t, time.Minute)
	first.stop(t)
	second.stop(t)
	v := r.judge(t)
	require.Zero(t, v.Lost)
	require.Zero(t, v.OutOfOrder)
	require.Zero(t, v.Phantom)
	// What the first had routed and not sent, it may send once it goes on, late: a repetition that ends too soon.
	require.LessOrEqual(t, v.Duplicated, int64(2*repeats))
	matrix(t, 4, "", fmt.Sprintf("another took over %s after the relay froze (wal_sender_timeout is 15 s); %d repeated, %d of them late", seconds(took), v.Duplicated, v.Partial))
}
