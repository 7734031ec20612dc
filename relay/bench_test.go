package relay

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// atOnce is a sink that acknowledges whatever it is given before Publish returns.
type atOnce struct{ done sink.Done }

func (s atOnce) Publish(_ context.Context, ms []*sink.Message) error {
	for _, m := range ms {
		s.done(m, nil)
	}
	return nil
}

func (s atOnce) Topic(context.Context, string) error { return nil }
func (s atOnce) Close(context.Context) error         { return nil }

// pumping is a session without a server and without a broker, and a batch of transactions for it.
func pumping(t testing.TB, wide bool, rows int) (*session, *replication.Batch) {
	t.Helper()
	rule := router.DefaultConfig()
	rel := &replication.Relation{OID: 16400, Namespace: "public", Name: "outbox"}
	values := []string{"da8d6de6-3b77-45ff-8f44-57db55a7a06c", "order", "agg-4711", "Created", `{"pad": "` + strings.Repeat("x", 190) + `"}`}
	columns := []string{"id", "aggregatetype", "aggregateid", "type", "payload"}
	if wide {
		columns = append(columns, "tenant", "trace", "span", "source", "region", "version")
		values = append(values, "acme", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "checkout", "eu-1", "3")
		rule.AdditionalPlacement = "type:header,tenant:header,trace:header,span:header,source:header,region:header,version:header"
		rule.PositionHeaders = true
	}
	row := make([][]byte, len(values))
	for i, v := range values {
		rel.Columns = append(rel.Columns, replication.Column{Name: columns[i], TypeOID: 25, TypeMod: -1, Key: i == 0})
		row[i] = []byte(v)
	}
	r, err := router.New([]router.Config{rule}, router.DefaultFormat(), router.Options{})
	require.NoError(t, err)

	b := &replication.Batch{}
	at, lsn := time.Now(), pglogrepl.LSN(1<<40)
	for len(b.Events) < 900 { // about what one read brings
		lsn += 100
		b.Events = append(b.Events, replication.Event{Kind: replication.Begin, XID: 7, LSN: lsn, Time: at})
		for i := range rows {
			b.Events = append(b.Events, replication.Event{Kind: replication.Insert, XID: 7, LSN: lsn, Index: uint32(i), Time: at, Relation: rel, Values: row})
		}
		b.Events = append(b.Events, replication.Event{Kind: replication.Commit, XID: 7, LSN: lsn + 50, Time: at})
	}
	s := &session{
		cfg: DefaultConfig(), log: zerolog.Nop(), metrics: metrics.New(prometheus.NewRegistry(), "bench"), router: r,
		bufferBytes: func() int64 { return 0 },
		window:      newWindow(1, DefaultConfig().limits()), fail: func(error) {},
		recent: &recent{}, candidates: &candidates{}, missing: &missing{}, published: &publishedCounts{}, clockSkew: func() time.Duration { return 0 },
	}
	s.sink = atOnce{s.delivered}
	return s, b
}

// relayRows takes at least that many rows through the session.
func relayRows(t testing.TB, s *session, b *replication.Batch, rows int) {
	t.Helper()
	for before := s.acknowledged.Load(); s.acknowledged.Load()-before < uint64(rows); {
		if err := s.handleBatch(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// The whole way of a row from a decoded batch to its acknowledgement. One operation is one row, with its share of Begin and Commit.
func BenchmarkPump(b *testing.B) {
	for _, c := range []struct {
		name string
		wide bool
		rows int
	}{
		{"plain/rows=1", false, 1},
		{"plain/rows=10", false, 10},
		{"plain/rows=800", false, 800},
		{"headers/rows=10", true, 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, batch := pumping(b, c.wide, c.rows)
			relayRows(b, s, batch, 10_000)
			b.ReportAllocs()
			b.ResetTimer()
			relayRows(b, s, batch, b.N)
		})
	}
}

// Messages are used again when they are acknowledged, so that nothing is made for a row between the batch and the broker.
func TestPump_AllocatesNothingPerRow(t *testing.T) {
	const rows = 10_000
	for name, wide := range map[string]bool{"plain": false, "headers": true} {
		s, b := pumping(t, wide, 10)
		relayRows(t, s, b, rows)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		relayRows(t, s, b, rows)
		runtime.ReadMemStats(&after)
		require.Less(t, after.Mallocs-before.Mallocs, uint64(rows/20), name)
	}
}
