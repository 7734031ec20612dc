package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/demo"
)

// warmUp is how long the load runs before it counts: connections, caches, growth of buffers.
const warmUp = time.Second

// carriedShare is the part of the rate that the writers must reach, or the machine does not carry
// it.
const carriedShare = 0.97

// rate writes one-row transactions at a steady rate while the relay streams and a consumer reads.
func (b *bench) rate(ctx context.Context, conn *pgx.Conn, w Workload, prefix string) (*Result,
	error) {
	rows := newRows(w.Size)
	warm := int64(float64(w.Rate) * warmUp.Seconds())
	total := warm + int64(float64(w.Rate)*w.Duration.Seconds())
	relay, reader, end, err := b.startStreaming(ctx, prefix, rows, total)
	if err != nil {
		return nil, err
	}
	defer end()
	conns, closeAll, err := b.connections(ctx, writerCount)
	if err != nil {
		return nil, err
	}
	defer closeAll()

	committed := make([]int64, total) // Unix ns; each written by one writer
	load := &steady{rate: float64(w.Rate), total: total, params: b.rowParams(rows),
		start: time.Now().Add(100 * time.Millisecond),
		committed: func(n int64, at time.Time) {
			committed[n] = at.UnixNano()
			b.tally.Wrote(rows.key(n), rows.number(n))
		}}
	load.until = load.start.Add(warmUp + w.Duration)
	counting := load.start.Add(warmUp)
	loading, endLoad := context.WithCancelCause(ctx)
	defer endLoad(nil)
	written := make(chan error, 1)
	// Ends with the load, or with endLoad; waited for below.
	go func() { written <- load.write(loading, conns, insertOne(b.table())) }()
	demo.WaitUntil(ctx, counting)
	before, err := b.used(ctx, conn, relay)
	if err != nil {
		endLoad(err)
	}
	if err := <-written; err != nil {
		return nil, err
	}
	ended := time.Now()
	behind, delivered := b.tally.Counts()
	behind -= delivered
	if err := b.awaitDelivered(ctx, relay, behind+delivered); err != nil {
		return nil, err
	}
	settled := time.Now()
	after, err := b.used(ctx, conn, relay)
	if err != nil {
		return nil, err
	}
	if err := relay.stop(); err != nil {
		return nil, err
	}
	if err := b.readToEnd(ctx, prefix, reader); err != nil {
		return nil, err
	}

	result := &Result{MaxRSSBytes: after.rss, BehindRows: known(float64(behind)),
		AckLatencyMS: bucketLatency(before.reading, after.reading)}
	counted := result.latencies(load, reader, committed, warm)
	result.WrittenPerSecond = known(float64(counted) / ended.Sub(counting).Seconds())
	result.Seconds = known(settled.Sub(counting).Seconds())
	result.RowsPerSecond = per(known(float64(counted)), result.Seconds)
	result.costs(before, after, counted)
	return result, nil
}

// latencies fills in those of the rows from first on, and returns how many of them were written.
func (r *Result) latencies(load *steady, reader *reader, committed []int64,
	first int64) (counted int64) {
	reader.mu.Lock()
	defer reader.mu.Unlock()
	var sinceCommit, sinceDue []time.Duration
	for n := first; n < int64(len(committed)); n++ {
		if committed[n] == 0 {
			continue // the load ended before it
		}
		counted++
		if at := reader.times[n]; at != 0 {
			// The consumer may have the record before the writer has the answer to its commit.
			sinceCommit = append(sinceCommit, max(0, time.Duration(at-committed[n])))
			sinceDue = append(sinceDue, time.Unix(0, at).Sub(load.due(n)))
		}
	}
	r.LatencyMS, r.IntendedLatencyMS = newLatency(sinceCommit), newLatency(sinceDue)
	r.ValueBytes = known(float64(reader.bytes))
	return counted
}

// behind is why a rate was not kept up; empty: it was.
func (m *Measured) behind() string {
	switch {
	case m.Kind != Rate || m.WrittenPerSecond == nil || m.BehindRows == nil:
		return ""
	case *m.WrittenPerSecond < carriedShare*float64(m.Rate):
		return fmt.Sprintf("%d/s is more than this machine carries: the writers "+
			"committed %.0f/s, so the latencies from the intended time grow with the duration",
			m.Rate, *m.WrittenPerSecond)
	case *m.BehindRows > float64(m.Rate):
		return fmt.Sprintf("%d/s is more than the relay or the broker carries here: %.0f rows "+
			"were not delivered when the writing ended, so the latencies grow with the duration",
			m.Rate, *m.BehindRows)
	}
	return ""
}

// startStreaming starts a relay that streams and a reader that reads. end ends both.
func (b *bench) startStreaming(ctx context.Context, prefix string, rows *rows,
	total int64) (*relay, *reader, func(), error) {
	relay, err := b.startRelay(ctx, prefix)
	if err != nil {
		return nil, nil, nil, err
	}
	reader, closeReader, err := b.follow(ctx, prefix, rows, total)
	if err != nil {
		relay.kill()
		return nil, nil, nil, err
	}
	end := func() { relay.kill(); closeReader() }
	if err := relay.awaitStreaming(ctx); err != nil {
		end()
		return nil, nil, nil, err
	}
	return relay, reader, end, nil
}

// rowParams are those of insertOne.
func (b *bench) rowParams(rows *rows) func(n int64) [][]byte {
	return func(n int64) [][]byte {
		return [][]byte{rows.appendID(nil, n), []byte(aggregateOf(n)), []byte(rows.key(n)),
			rows.appendPayload(nil, n)}
	}
}
