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
	var walBefore, walAfter float64
	err := inOrder(ctx, r.startStreaming, r.writeIdle, func(ctx context.Context) (err error) {
		if walBefore, err = serverPosition(ctx, r.conn); err == nil {
			r.before, err = r.used(ctx)
		}
		return err
	}, r.writeUnrelated, r.useAfter, func(ctx context.Context) (err error) {
		walAfter, err = serverPosition(ctx, r.conn)
		return err
	}, r.writeIdle)
	if err != nil {
		return err
	}
	result, seconds := &r.result, r.after.at.Sub(r.before.at).Seconds()
	r.costs(0)
	result.MaxRSSBytes = known(peakRSS(r.relay.PID))
	result.Seconds, result.RowsPerSecond = known(seconds), known(0)
	result.WALBytes = known(walAfter - walBefore)
	result.CPUPerSecond = known((r.after.cpu - r.before.cpu) / seconds)
	result.WalsenderCPUPerSecond = known((r.after.walsender - r.before.walsender) / seconds)
	result.ReceivedBytes = known(r.after.receivedBytes - r.before.receivedBytes)
	if err := inOrder(ctx, r.stopRelay, r.readToEnd); err != nil {
		return err
	}
	r.latencies(idleRows)
	return nil
}

// writeIdle writes the next idleRows rows, and waits until they are delivered.
func (r *run) writeIdle(ctx context.Context) error {
	load, err := r.newLoad(ctx, 1, insertOne(r.table()), idleRate, idleRows, time.Minute)
	if err != nil {
		return err
	}
	if r.load != nil {
		load.first = idleRows
	}
	r.load = load
	return inOrder(ctx, load.write, r.awaitDelivered)
}

// writeUnrelated writes to the other table, and reads what the slot retains in the meantime.
func (r *run) writeUnrelated(ctx context.Context) error {
	load, err := r.newLoad(ctx, unrelatedWriters, `INSERT INTO `+r.unrelated()+` (body) VALUES ($1)`,
		float64(r.Rate), r.total(), r.Duration)
	if err != nil {
		return err
	}
	body := []byte(strings.Repeat("x", r.Size))
	load.params = func(int64) [][]byte { return [][]byte{body} }
	load.committed = func(int64, time.Time) {}
	loading, endLoad := context.WithCancel(ctx)
	var writing sync.WaitGroup
	var writeErr error
	ended := make(chan struct{})
	writing.Go(func() { // ends with the load, or with endLoad
		defer close(ended)
		writeErr = load.write(loading)
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
	err = conn.QueryRow(ctx, `SELECT
		pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::double precision`,
	).Scan(&bytes)
	if err != nil {
		return 0, fmt.Errorf("read the server's position: %w", postgres.Error(err))
	}
	return bytes, nil
}
