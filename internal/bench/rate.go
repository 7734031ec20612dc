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
	end, err := r.startStreaming(ctx)
	if err != nil {
		return err
	}
	defer end()
	conns, closeAll, err := r.connections(ctx, writerCount)
	if err != nil {
		return err
	}
	defer closeAll()

	load := r.load(float64(r.Rate), int64(len(r.committed)), 0)
	load.start = time.Now().Add(100 * time.Millisecond)
	load.until = load.start.Add(warmUp + r.Duration)
	counting := load.start.Add(warmUp)
	loading, endLoad := context.WithCancelCause(ctx)
	defer endLoad(nil)
	written := make(chan error, 1)
	// Ends with the load, or with endLoad; waited for below.
	go func() { written <- load.write(loading, conns, insertOne(r.table())) }()
	demo.WaitUntil(ctx, counting)
	before, err := r.used(ctx)
	if err != nil {
		endLoad(err)
	}
	if err := <-written; err != nil {
		return err
	}
	ended := time.Now()
	all, delivered := r.tally.Counts()
	r.result.BehindRows = known(float64(all - delivered))
	if err := r.awaitDelivered(ctx); err != nil {
		return err
	}
	settled := time.Now()
	after, err := r.used(ctx)
	if err != nil {
		return err
	}
	if err := r.relay.stop(); err != nil {
		return err
	}
	if err := r.readToEnd(ctx); err != nil {
		return err
	}

	counted := r.latencies(load, int64(len(r.committed))-r.total())
	r.result.AckLatencyMS = bucketLatency(before.reading, after.reading)
	r.result.WrittenPerSecond = known(float64(counted) / ended.Sub(counting).Seconds())
	r.result.Seconds = known(settled.Sub(counting).Seconds())
	r.result.RowsPerSecond = per(known(float64(counted)), r.result.Seconds)
	r.result.costs(before, after, counted)
	return nil
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
func (r *run) startStreaming(ctx context.Context) (end func(), err error) {
	if err := r.startRelay(ctx); err != nil {
		return nil, err
	}
	closeReader, err := r.follow(ctx)
	if err != nil {
		r.relay.kill()
		return nil, err
	}
	end = func() {
		r.relay.kill()
		closeReader()
	}
	if err := r.relay.awaitStreaming(ctx); err != nil {
		end()
		return nil, err
	}
	return end, nil
}
