package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// server is a superuser's DSN of a server that tests share: its settings are left alone.
func server(t testing.TB, version string) string {
	t.Helper()
	return parts.Postgres(t, version).DSN()
}

func TestFault01_Kill9LosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	network := r.throughKafkaProxy(t)
	parts.Binary(t)
	l := r.load(t, rate())
	kills := full(t, 3, 200)
	when := random(t, 100)
	for i := range kills {
		p := r.started(t)
		l.more(t, 1+when.Int64N(1000))
		switch i % 3 { // what is received and not acknowledged when the kill comes
		case 0: // next to nothing
		case 1: // something
			network.Delay(20 * time.Millisecond)
			l.more(t, 100)
		case 2: // a lot
			network.Stall()
			l.more(t, 300)
		}
		p.Kill(t)
		network.Delay(0)
		network.Resume()
	}
	l.end(t)
	p := r.started(t)
	back := r.caughtUp(t)
	p.stop(t)

	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(kills)*repeats)
	matrix(t, 1, "at least once", fmt.Sprintf("%d kills, %.0f repeated by one on average, caught up %.1f s after the last start",
		kills, float64(v.Duplicated)/float64(kills), back.Seconds()))
}
