package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

const (
	// written to the outbox before it is idle, and again afterwards
	idleRows = 20
	// of them a second: slow enough to be acknowledged one by one
	idleRate  = 50
	idleEvery = 250 * time.Millisecond // how often the slot is read in between

	unrelatedWriters = 4 // to the other table
)

// idle writes nothing to the outbox while another table is written to. The latencies are those of
// the first rows afterwards.
func (b *bench) idle(ctx context.Context, conn *pgx.Conn, w Workload, prefix string) (*Result,
	error) {
	rows := newRows(w.Size)
	const total = 2 * idleRows
	relay, reader, end, err := b.startStreaming(ctx, prefix, rows, total)
	if err != nil {
		return nil, err
	}
	defer end()
	committed := make([]int64, total)
	if err := b.writeIdle(ctx, relay, rows, committed, 0); err != nil {
		return nil, err
	}

	result := &Result{}
	start, err := serverPosition(ctx, conn)
	if err != nil {
		return nil, err
	}
	before, err := b.used(ctx, conn, relay)
	if err != nil {
		return nil, err
	}
	if err := b.writeUnrelated(ctx, conn, w, relay, result); err != nil {
		return nil, err
	}
	after, err := b.used(ctx, conn, relay)
	if err != nil {
		return nil, err
	}
	stop, err := serverPosition(ctx, conn)
	if err != nil {
		return nil, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	result.Seconds = known(seconds)
	result.RowsPerSecond = known(0)
	result.WALBytes = known(stop - start)
	result.costs(before, after, 0)
	// Without rows there is no cost of a row.
	result.RelayCPUPerM, result.WalsenderCPUPerM, result.BrokerCPUPerM = nil, nil, nil
	result.AllocsPerRow, result.AllocBytesPerRow = nil, nil
	result.CPUPerSecond = times(result.CPUSeconds, 1/seconds)
	result.WalsenderCPUPerSecond = times(result.WalsenderCPUSeconds, 1/seconds)
	result.ReceivedBytes = minus(after.receivedBytes, before.receivedBytes)

	if err := b.writeIdle(ctx, relay, rows, committed, idleRows); err != nil {
		return nil, err
	}
	result.MaxRSSBytes = peakRSS(relay.pid)
	if err := relay.stop(); err != nil {
		return nil, err
	}
	if err := b.readToEnd(ctx, prefix, reader); err != nil {
		return nil, err
	}
	reader.mu.Lock()
	defer reader.mu.Unlock()
	var samples []time.Duration
	for n := idleRows; n < total; n++ {
		if at := reader.times[n]; at != 0 {
			samples = append(samples, max(0, time.Duration(at-committed[n])))
		}
	}
	result.LatencyMS = newLatency(samples)
	result.ValueBytes = known(float64(reader.bytes))
	return result, nil
}

// writeIdle writes idleRows rows from number first on, and waits until they are delivered.
func (b *bench) writeIdle(ctx context.Context, relay *relay, rows *rows, committed []int64,
	first int64) error {
	conns, closeAll, err := b.connections(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll()
	params := b.rowParams(rows)
	load := &steady{rate: idleRate, total: idleRows, start: time.Now(),
		until:  time.Now().Add(time.Minute),
		params: func(n int64) [][]byte { return params(first + n) },
		committed: func(n int64, at time.Time) {
			committed[first+n] = at.UnixNano()
			b.tally.Wrote(rows.key(first+n), rows.number(first+n))
		}}
	if err := load.write(ctx, conns, insertOne(b.table())); err != nil {
		return err
	}
	written, _ := b.tally.Counts()
	return b.awaitDelivered(ctx, relay, written)
}

// writeUnrelated writes to the other table, and reads what the slot retains in the meantime.
func (b *bench) writeUnrelated(ctx context.Context, conn *pgx.Conn, w Workload, relay *relay,
	result *Result) error {
	conns, closeAll, err := b.connections(ctx, unrelatedWriters)
	if err != nil {
		return err
	}
	defer closeAll()
	body := []byte(strings.Repeat("x", w.Size))
	load := &steady{rate: float64(w.Rate), total: int64(float64(w.Rate) * w.Duration.Seconds()),
		start:     time.Now(),
		params:    func(int64) [][]byte { return [][]byte{body} },
		committed: func(int64, time.Time) {}}
	load.until = load.start.Add(w.Duration)
	loading, endLoad := context.WithCancel(ctx)
	var writing sync.WaitGroup
	var writeErr error
	ended := make(chan struct{})
	writing.Go(func() { // ends with the load, or with endLoad
		defer close(ended)
		writeErr = load.write(loading, conns, `INSERT INTO `+b.unrelated()+` (body) VALUES ($1)`)
	})
	defer writing.Wait()
	defer endLoad()
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	most, mostLag := 0.0, 0.0
	for {
		over := false
		select {
		case <-tick.C:
		case <-ended:
			over = true
		}
		var retained, lag float64
		err := conn.QueryRow(ctx, slotLagSQL, b.cfg.Name).Scan(&retained, &lag)
		if err != nil {
			return fmt.Errorf("read slot %q: %w", b.cfg.Name, postgres.Error(err))
		}
		most, mostLag = max(most, retained), max(mostLag, lag)
		if err := relay.alive(); err != nil {
			return err
		}
		if over {
			result.RetainedBytes, result.RetainedMaxBytes, result.LagMaxBytes = known(retained),
				known(most), known(mostLag)
			return writeErr
		}
	}
}

const slotLagSQL = `SELECT
	pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(),
		restart_lsn)::double precision,
	pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(),
		confirmed_flush_lsn)::double precision
FROM pg_catalog.pg_replication_slots WHERE slot_name = $1`

// serverPosition is the end of the server's WAL, in bytes.
func serverPosition(ctx context.Context, conn *pgx.Conn) (bytes float64, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(),
		'0/0')::double precision`).Scan(&bytes)
	if err != nil {
		return 0, fmt.Errorf("read the server's position: %w", postgres.Error(err))
	}
	return bytes, nil
}
