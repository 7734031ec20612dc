package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

const (
	writers         = 8
	ordersPerWriter = 125
)

// payload is the payload of an event. The audit needs Key and Number.
type payload struct {
	Key    string  `json:"key"`
	Number uint64  `json:"number"`
	Amount float64 `json:"amount"`
}

// One statement, one transaction: the change and its event, as in any service with an outbox.
const writeSQL = `
WITH changed AS (
	INSERT INTO ` + Schema + `.orders (id, changes) VALUES ($1, 1)
	ON CONFLICT (id) DO UPDATE SET changes = orders.changes + 1, changed_at = pg_catalog.now()
)
INSERT INTO ` + Table + ` (aggregate_type, aggregate_id, event_type, payload)
VALUES ($2, $1, $3, $4)`

// write runs the writers until the configured end or until stop ends. The load is open: a
// transaction is due at its time, also when the one before it was slow.
func (d *Demo) write(ctx, stop context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	open, closing := context.WithCancel(ctx)
	defer closing()
	defer context.AfterFunc(stop, closing)()
	conns := make([]*pgx.Conn, writers)
	for i := range conns {
		conn, err := d.connect(ctx)
		if err != nil {
			return fmt.Errorf("connect a writer: %w", err)
		}
		defer postgres.Close(conn)
		conns[i] = conn
	}
	start := time.Now()
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			if err := d.writer(ctx, open, conn, i, start); err != nil {
				cancel(fmt.Errorf("write an order: %w", err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// writer has keys of its own, so that the numbers of a key are in commit order. Transaction n of
// all is due n/Rate after start, unless open has ended.
func (d *Demo) writer(ctx, open context.Context, conn *pgx.Conn, index int,
	start time.Time) error {
	numbers := make([]uint64, ordersPerWriter)
	for n := int64(index); d.cfg.Rows == 0 || n < d.cfg.Rows; n += writers {
		due := start.Add(time.Duration(float64(n) / d.cfg.Rate * float64(time.Second)))
		if d.cfg.Duration > 0 && due.Sub(start) >= d.cfg.Duration {
			return nil
		}
		if !WaitUntil(open, due) {
			return nil
		}
		order := rand.IntN(ordersPerWriter)
		aggregate := aggregates[order%len(aggregates)]
		p := payload{Key: fmt.Sprintf("%s-%d-%d", aggregate, index, order),
			Number: numbers[order] + 1, Amount: rand.Float64() * 100}
		document, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, writeSQL, p.Key, aggregate, aggregate+"_changed",
			document); err != nil {
			return err
		}
		numbers[order]++
		d.meter.committed(event{p.Key, p.Number}, time.Now())
		d.tally.Wrote(p.Key, p.Number)
	}
	return nil
}
