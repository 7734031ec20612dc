package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
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
func (b *bench) drain(ctx context.Context, conn *pgx.Conn, w Workload, prefix string) (*Result,
	error) {
	rows := newRows(w.Size)
	result, writing := &Result{}, time.Now()
	if err := b.backlog(ctx, rows, w.Rows, w.Tx); err != nil {
		return nil, err
	}
	result.LoadSeconds = known(time.Since(writing).Seconds())
	end, err := b.flushed(ctx, conn)
	if err != nil {
		return nil, err
	}

	// the relay and the walsender are new
	before := usage{broker: b.brokerCPU(), walsender: known(0)}
	before.cpu, before.requests, before.requestBytes = known(0), known(0), known(0)
	relay, err := b.startRelay(ctx, prefix)
	if err != nil {
		return nil, err
	}
	defer relay.kill()
	records := func() (int64, error) { return demo.CountRecords(ctx, b.admin, topics(prefix)...) }
	if err := relay.awaitProgress(ctx, firstEvery, 1, records); err != nil {
		return nil, err
	}
	toFirst := time.Since(relay.started)
	result.StartToFirstSeconds = known(toFirst.Seconds())
	first, err := relay.read(ctx) // after the allocations of the start
	if err != nil {
		return nil, err
	}
	if err := relay.awaitProgress(ctx, drainEvery, w.Rows, records); err != nil {
		return nil, err
	}
	if err := b.awaitConfirmed(ctx, conn, relay, end); err != nil {
		return nil, err
	}
	after, err := b.used(ctx, conn, relay)
	if err != nil {
		return nil, err
	}
	result.costs(before, after, w.Rows)
	result.allocations(first, after.reading)
	result.MaxRSSBytes = after.rss
	if err := relay.stop(); err != nil {
		return nil, err
	}

	reader := b.newReader(rows, w.Rows)
	if err := b.readTopics(ctx, prefix, func(m *sink.Message) {
		reader.take(m, m.Timestamp)
	}); err != nil {
		return nil, err
	}
	result.drained(reader, toFirst)
	return result, nil
}

// drained takes the time of the drain from the records.
func (r *Result) drained(reader *reader, toFirst time.Duration) {
	reader.mu.Lock()
	defer reader.mu.Unlock()
	appended := slices.DeleteFunc(reader.times, func(at int64) bool { return at == 0 })
	r.ValueBytes, r.Seconds = known(float64(reader.bytes)), known(0)
	if len(appended) == 0 {
		r.LatencyMS = newLatency(nil)
		return
	}
	first, last := slices.Min(appended), slices.Max(appended)
	var samples []time.Duration
	for _, at := range appended {
		samples = append(samples, toFirst+time.Duration(at-first))
	}
	r.LatencyMS = newLatency(samples)
	seconds := time.Duration(last - first).Seconds()
	r.Seconds, r.TotalSeconds = known(seconds), known(toFirst.Seconds()+seconds)
	if seconds > 0 {
		r.RowsPerSecond = known(float64(len(appended)) / seconds)
	}
}

// flushed makes the server flush its WAL, since a walsender sends nothing else, and returns a
// position behind all rows.
func (b *bench) flushed(ctx context.Context, conn *pgx.Conn) (pglogrepl.LSN, error) {
	var text string
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_current_wal_insert_lsn()::text`).Scan(&text)
	if err != nil {
		return 0, fmt.Errorf("read the server's position: %w", postgres.Error(err))
	}
	_, err = conn.Exec(ctx, `SET synchronous_commit = local; INSERT INTO `+b.unrelated()+
		` (body) VALUES ('flush')`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return 0, fmt.Errorf("flush the WAL: %w", postgres.Error(err))
	}
	return postgres.ParseLSN(text)
}

// awaitConfirmed waits until the slot's confirmed position reaches end, as long as the relay runs.
func (b *bench) awaitConfirmed(ctx context.Context, conn *pgx.Conn, relay *relay,
	end pglogrepl.LSN) error {
	want := int64(end) //nolint:gosec // only compared
	return relay.awaitProgress(ctx, drainEvery, want, func() (int64, error) {
		status, err := slot.Get(ctx, conn, b.cfg.Name)
		return int64(status.ConfirmedFlushLSN), err //nolint:gosec // only compared
	})
}
