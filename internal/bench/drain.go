package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

const (
	// How often the ends of the topics are read: often until the first record is there, since that
	// time is measured, then seldom, since it costs the broker CPU. The time of the drain is taken
	// from the records.
	firstEvery = 10 * time.Millisecond
	drainEvery = 50 * time.Millisecond
)

// drain writes a backlog, then starts the relay. The records are read and audited after the drain.
func (r *run) drain(ctx context.Context) error {
	r.before = usage{broker: r.brokerCPU()} // the relay and the walsender are new
	var toFirst time.Duration
	var first reading // after the allocations of the start
	records := func() (int64, error) { return demo.CountRecords(ctx, r.client, topics(r.prefix)...) }
	err := inOrder(ctx, r.backlog, r.flush, r.startRelay, func(ctx context.Context) (err error) {
		if err = r.relay.awaitProgress(ctx, firstEvery, 1, records); err == nil {
			toFirst = time.Since(r.relay.started)
			first, err = r.relay.read(ctx)
		}
		return err
	}, func(ctx context.Context) error {
		return r.relay.awaitProgress(ctx, drainEvery, r.Rows, records)
	}, r.awaitConfirmed, r.useAfter, r.stopRelay, func(ctx context.Context) error {
		return r.readTopics(ctx, func(m *sink.Message) { r.take(m, m.Timestamp) })
	})
	if err != nil {
		return err
	}
	r.costs(r.Rows)
	r.result.allocations(first, r.after.reading)
	r.drained(toFirst)
	return nil
}

// drained takes the time of the drain from the records.
func (r *run) drained(toFirst time.Duration) {
	appended := slices.DeleteFunc(r.received, func(at int64) bool { return at == 0 })
	r.result.StartToFirstSeconds = known(toFirst.Seconds())
	r.result.ValueBytes, r.result.Seconds = known(float64(r.bytes)), known(0)
	r.result.LatencyMS = newLatency(nil)
	if len(appended) == 0 {
		return
	}
	first, last := slices.Min(appended), slices.Max(appended)
	var samples []time.Duration
	for _, at := range appended {
		samples = append(samples, toFirst+time.Duration(at-first))
	}
	r.result.LatencyMS = newLatency(samples)
	took := time.Duration(last - first)
	r.result.Seconds, r.result.TotalSeconds = known(took.Seconds()), known((toFirst + took).Seconds())
	r.result.RowsPerSecond = known(float64(len(appended)) / took.Seconds())
}

// flush makes the server flush its WAL, since a walsender sends nothing else, and notes a position
// behind all rows.
func (r *run) flush(ctx context.Context) error {
	var text string
	err := r.conn.QueryRow(ctx, `SELECT pg_catalog.pg_current_wal_insert_lsn()::text`).Scan(&text)
	if err != nil {
		return fmt.Errorf("read the server's position: %w", postgres.Error(err))
	}
	_, err = r.conn.Exec(ctx, `SET synchronous_commit = local; INSERT INTO `+r.unrelated()+
		` (body) VALUES ('flush')`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return fmt.Errorf("flush the WAL: %w", postgres.Error(err))
	}
	r.backlogEnd, err = postgres.ParseLSN(text)
	return err
}

// awaitConfirmed waits until the slot's confirmed position reaches the end of the backlog, as long
// as the relay runs.
func (r *run) awaitConfirmed(ctx context.Context) error {
	want := int64(r.backlogEnd) //nolint:gosec // only compared
	return r.relay.awaitProgress(ctx, drainEvery, want, func() (int64, error) {
		status, err := slot.Get(ctx, r.conn, r.cfg.Name)
		return int64(status.ConfirmedFlushLSN), err //nolint:gosec // only compared
	})
}
