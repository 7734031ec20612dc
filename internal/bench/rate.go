package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/demo"
)

// warmUp is how long the load runs before it counts: connections, caches, growth of buffers.
const warmUp = time.Second

// carriedShare is the part of the rate that the writers must reach, or the machine does not carry
// it.
const carriedShare = 0.97

// rate writes one-row transactions at a steady rate while the relay streams and a consumer reads.
func (r *run) rate(ctx context.Context) error {
	var ended time.Time // the writing
	err := inOrder(ctx, r.startStreaming, func(ctx context.Context) error {
		err := r.writeSteadily(ctx)
		ended = time.Now()
		written, delivered := r.tally.Counts()
		r.result.BehindRows = known(float64(written - delivered))
		return err
	}, r.awaitDelivered, r.useAfter, r.stopRelay, r.readToEnd)
	if err != nil {
		return err
	}
	began := r.load.start.Add(warmUp)
	counted := r.latencies(int64(len(r.committed)) - r.total())
	r.costs(counted)
	r.result.AckLatencyMS = bucketLatency(r.before.reading, r.after.reading)
	r.result.WrittenPerSecond = known(float64(counted) / ended.Sub(began).Seconds())
	seconds := r.after.at.Sub(began).Seconds()
	r.result.Seconds, r.result.RowsPerSecond = known(seconds), known(float64(counted)/seconds)
	return nil
}

// writeSteadily writes the load, and reads the usage when the warm-up is over.
func (r *run) writeSteadily(ctx context.Context) (err error) {
	r.load, err = r.newLoad(ctx, writerCount, insertOne(r.table()), float64(r.Rate),
		int64(len(r.committed)), warmUp+r.Duration)
	if err != nil {
		return err
	}
	loading, endLoad := context.WithCancelCause(ctx)
	defer endLoad(nil)
	written := make(chan error, 1)
	go func() { written <- r.load.write(loading) }() // ends with the load, or with endLoad
	demo.WaitUntil(ctx, r.load.start.Add(warmUp))
	if r.before, err = r.used(ctx); err != nil {
		endLoad(err)
	}
	return <-written
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

// startStreaming starts a relay that streams and a reader that reads.
func (r *run) startStreaming(ctx context.Context) error {
	return inOrder(ctx, r.startRelay, r.follow, r.awaitStreaming)
}
