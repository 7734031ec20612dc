package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

const (
	// How often the ends of the topics are looked at: often until the first record is there, since that moment is measured; then
	// seldom, since the broker pays for it. How long the drain took is read from the records.
	firstEvery = 10 * time.Millisecond
	drainEvery = 50 * time.Millisecond
)

// drain writes a backlog, then starts the relay. Nobody consumes meanwhile; the records are read and audited afterwards.
func (b *bench) drain(ctx context.Context, conn *pgx.Conn, w Workload, prefix string) (*Result, error) {
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

	before := usage{broker: b.brokerCPU(), walsender: known(0)} // the relay and the walsender are new
	before.cpu, before.requests, before.requestBytes = known(0), known(0), known(0)
	relay, err := b.startRelay(ctx, prefix)
	if err != nil {
		return nil, err
	}
	defer relay.kill()
	records := func() (int64, error) { return b.records(ctx, prefix) }
	if err := awaitProgress(ctx, firstEvery, 1, records, relay.alive); err != nil {
		return nil, err
	}
	toFirst := time.Since(relay.started)
	result.StartToFirstSeconds = known(toFirst.Seconds())
	first, err := relay.read(ctx) // what the start allocated is behind it
	if err != nil {
		return nil, err
	}
	if err := awaitProgress(ctx, drainEvery, w.Rows, records, relay.alive); err != nil {
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

	reader, err := b.openReader(prefix, rows, w.Rows)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	if err := b.readToEnd(ctx, prefix, reader); err != nil {
		return nil, err
	}
	result.drained(reader, toFirst)
	return result, nil
}

// drained reads from the records how long it took.
func (r *Result) drained(reader *reader, toFirst time.Duration) {
	reader.mu.Lock()
	defer reader.mu.Unlock()
	first, last, arrived := int64(0), int64(0), 0
	for _, at := range reader.appended {
		if at == 0 {
			continue
		}
		if arrived++; arrived == 1 {
			first, last = at, at
		}
		first, last = min(first, at), max(last, at)
	}
	var samples []time.Duration
	for _, at := range reader.appended {
		if at != 0 {
			samples = append(samples, toFirst+time.Duration(at-first)*time.Millisecond)
		}
	}
	r.LatencyMS = newLatency(samples)
	r.ValueBytes = known(float64(reader.bytes))
	seconds := float64(last-first) / 1000
	r.Seconds = known(seconds)
	if total := toFirst.Seconds() + seconds; arrived > 0 {
		r.TotalSeconds = known(total)
	}
	if seconds > 0 {
		r.RowsPerSecond = known(float64(arrived) / seconds)
	}
}

// flushed makes the server write out everything, so that a walsender may send it, and returns a position that is behind all rows.
func (b *bench) flushed(ctx context.Context, conn *pgx.Conn) (pglogrepl.LSN, error) {
	var text string
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_current_wal_insert_lsn()::text`).Scan(&text); err != nil {
		return 0, fmt.Errorf("read the server's position: %w", postgres.Error(err))
	}
	if _, err := conn.Exec(ctx, `SET synchronous_commit = local; INSERT INTO `+b.unrelated()+` (body) VALUES ('flush')`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return 0, fmt.Errorf("flush the WAL: %w", postgres.Error(err))
	}
	return postgres.ParseLSN(text)
}

// awaitConfirmed waits until the server knows that everything up to end is delivered. It gives up as soon as the relay's log would tell why.
func (b *bench) awaitConfirmed(ctx context.Context, conn *pgx.Conn, relay *relay, end pglogrepl.LSN) error {
	confirmed := func() (int64, error) {
		status, err := slot.Get(ctx, conn, b.cfg.Name)
		return int64(status.ConfirmedFlushLSN), err //nolint:gosec // as far as it goes: only compared
	}
	return awaitProgress(ctx, drainEvery, int64(end), confirmed, relay.alive) //nolint:gosec // the same
}
