package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// childrenCPU is the time of all processes that the test has started and that have ended.
func childrenCPU(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The bar is 20 s for a million rows. They are written and delivered before the time is taken.
func BenchmarkAudit_MillionRows(b *testing.B) {
	const rows, keys, transactions = 1_000_000, 10_000, 100
	topic := newCluster(b).Topic(b, partitions)
	s := newShop(b, parts.AnyVersion, auditedSQL, fmt.Sprintf(`
[relay]
dedup = "tail"

[router]
position_headers = true
route.topic.regex = ".*"
route.topic.replacement = %q
`, topic))
	r := s.run(b)
	for n := range transactions {
		s.do(b, fmt.Sprintf(`INSERT INTO outbox (aggregate_id, payload) SELECT 'key ' || n %% %d, jsonb_build_object('n', n, 'pad', repeat('x', 200))
			FROM generate_series(%d, %d) n`, keys, n*rows/transactions, (n+1)*rows/transactions-1))
	}
	s.awaitConfirmed(b, r)
	r.Stop(b)
	for b.Loop() {
		before := childrenCPU(b)
		v, code := s.audit(b)
		require.Zero(b, code, "%+v", v)
		require.EqualValues(b, []int64{rows, rows}, []int64{v.Delivered, v.OrderJudged})
		b.ReportMetric(v.Seconds, "s/audit")
		b.ReportMetric((childrenCPU(b) - before).Seconds(), "cpu-s/audit") // what a loaded machine can say
	}
}
