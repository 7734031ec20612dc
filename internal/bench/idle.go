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
func (r *run) idle(ctx context.Context) error {
	end, err := r.startStreaming(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := r.writeIdle(ctx, 0); err != nil {
		return err
	}

	start, err := serverPosition(ctx, r.conn)
	if err != nil {
		return err
	}
	before, err := r.used(ctx)
	if err != nil {
		return err
	}
	if err := r.writeUnrelated(ctx); err != nil {
		return err
	}
	after, err := r.used(ctx)
	if err != nil {
		return err
	}
	stop, err := serverPosition(ctx, r.conn)
	if err != nil {
		return err
	}
	result, seconds := &r.result, after.at.Sub(before.at).Seconds()
	result.Seconds, result.RowsPerSecond = known(seconds), known(0)
	result.WALBytes = known(stop - start)
	result.costs(before, after, 0)
	result.CPUPerSecond = times(result.CPUSeconds, 1/seconds)
	result.WalsenderCPUPerSecond = times(result.WalsenderCPUSeconds, 1/seconds)
	result.ReceivedBytes = minus(after.receivedBytes, before.receivedBytes)

	load, err := r.writeIdle(ctx, idleRows)
	if err != nil {
		return err
	}
	result.MaxRSSBytes = peakRSS(r.relay.PID)
	if err := r.relay.stop(); err != nil {
		return err
	}
	if err := r.readToEnd(ctx); err != nil {
		return err
	}
	r.latencies(load, idleRows)
	return nil
}

// writeIdle writes idleRows rows from number first on, and waits until they are delivered.
func (r *run) writeIdle(ctx context.Context, first int64) (*steady, error) {
	conns, closeAll, err := r.connections(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	load := r.load(idleRate, idleRows, first)
	load.until = load.start.Add(time.Minute)
	if err := load.write(ctx, conns, insertOne(r.table())); err != nil {
		return nil, err
	}
	return load, r.awaitDelivered(ctx)
}

// writeUnrelated writes to the other table, and reads what the slot retains in the meantime.
func (r *run) writeUnrelated(ctx context.Context) error {
	conns, closeAll, err := r.connections(ctx, unrelatedWriters)
	if err != nil {
		return err
	}
	defer closeAll()
	body := []byte(strings.Repeat("x", r.Size))
	load := &steady{rate: float64(r.Rate), total: r.total(), start: time.Now(),
		until:     time.Now().Add(r.Duration),
		params:    func(int64) [][]byte { return [][]byte{body} },
		committed: func(int64, time.Time) {}}
	loading, endLoad := context.WithCancel(ctx)
	var writing sync.WaitGroup
	var writeErr error
	ended := make(chan struct{})
	writing.Go(func() { // ends with the load, or with endLoad
		defer close(ended)
		writeErr = load.write(loading, conns, `INSERT INTO `+r.unrelated()+` (body) VALUES ($1)`)
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
		err := r.conn.QueryRow(ctx, slotLagSQL, r.cfg.Name).Scan(&retained, &lag)
		if err != nil {
			return fmt.Errorf("read slot %q: %w", r.cfg.Name, postgres.Error(err))
		}
		most, mostLag = max(most, retained), max(mostLag, lag)
		if err := r.relay.alive(); err != nil {
			return err
		}
		if over {
			r.result.RetainedBytes, r.result.RetainedMaxBytes, r.result.LagMaxBytes =
				known(retained), known(most), known(mostLag)
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
