package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/test/parts"
)

// server is a superuser's DSN of a server that tests share: its settings are left alone.
func server(t testing.TB, version string) string {
	t.Helper()
	return parts.Postgres(t, version).DSN()
}

func TestKill9_LosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	l := r.load(t, 200)
	for range *rounds {
		p := r.started(t)
		l.more(t, 500)
		p.kill(t)
	}
	l.end(t)
	p := r.started(t)
	r.drained(t, time.Minute)
	p.stop(t)

	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(*rounds)*repeats)
	t.Logf("%d kills: %d duplicates", *rounds, v.Duplicated)
}
