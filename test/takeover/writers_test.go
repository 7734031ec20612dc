package takeover

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/test/parts"
)

// event is the payload of a row, and the key that its record has.
type event struct {
	Key string `json:"-"`
	N   uint64 `json:"n"`   // counts the rows of the key
	XID uint64 `json:"xid"` // of the transaction that wrote it
}

// writers write transactions until they are told to stop.
type writers struct {
	stop chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex
	errs []error
	rows int
}

// startWriters has two sessions write rows, so that transactions overlap: single rows, several in
// one statement, and several by COPY, which share one LSN. Between them come events of which
// nothing is published: updates, deletions, other tables.
func startWriters(t *testing.T, db *parts.Database, tally *audit.Tally, round int) *writers {
	t.Helper()
	w := &writers{stop: make(chan struct{})}
	for i := range 2 {
		conn, err := pgx.Connect(t.Context(), db.DSN())
		require.NoError(t, err)
		w.done.Go(func() {
			defer func() { _ = conn.Close(context.Background()) }()
			if err := w.write(context.Background(), conn, tally,
				fmt.Sprintf("%d/%d", round, i)); err != nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.errs = append(w.errs, err)
			}
		})
	}
	return w
}

func (w *writers) write(ctx context.Context, conn *pgx.Conn, tally *audit.Tally,
	name string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	next := map[string]uint64{}
	for turn := 0; ; turn++ {
		select {
		case <-w.stop:
			return nil
		case <-tick.C:
		}
		written := map[string][]uint64{}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var xid uint64
			if err := tx.QueryRow(ctx,
				`SELECT pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
				return err
			}
			var rows [][]any
			for i := range 1 + turn%4 {
				key := fmt.Sprintf("%s/%d", name, (turn+i)%5)
				next[key]++
				written[key] = append(written[key], next[key])
				payload, err := json.Marshal(event{N: next[key], XID: xid})
				if err != nil {
					return err
				}
				rows = append(rows, []any{"order", key, "changed", string(payload)})
			}
			return w.transaction(ctx, tx, turn, rows)
		})
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		for key, numbers := range written {
			for _, n := range numbers {
				tally.Wrote(key, n)
				w.mu.Lock()
				w.rows++
				w.mu.Unlock()
			}
		}
	}
}

func (w *writers) transaction(ctx context.Context, tx pgx.Tx, turn int, rows [][]any) error {
	columns := []string{"aggregatetype", "aggregateid", "type", "payload"}
	if turn%3 == 0 {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"outbox"}, columns,
			pgx.CopyFromRows(rows)); err != nil {
			return err
		}
	} else {
		values := make([]string, len(rows))
		for i, r := range rows {
			values[i] = fmt.Sprintf("('%s', '%s', '%s', '%s')", r...)
		}
		if _, err := tx.Exec(ctx,
			`INSERT INTO outbox (`+strings.Join(columns, ", ")+`) VALUES `+strings.Join(values,
				", ")); err != nil {
			return err
		}
	}
	var err error
	switch turn % 5 {
	case 0:
		_, err = tx.Exec(ctx, `INSERT INTO orders (note) VALUES ('not an event')`)
	case 1:
		_, err = tx.Exec(ctx,
			`DELETE FROM outbox WHERE id = (SELECT id FROM outbox WHERE aggregateid = $1 LIMIT 1)`,
			rows[0][1])
	case 2:
		_, err = tx.Exec(ctx,
			`UPDATE outbox SET type = 'seen'
			WHERE id = (SELECT id FROM outbox WHERE aggregateid = $1 LIMIT 1)`, rows[0][1])
	}
	return err
}

// end stops the writers and returns how many rows they wrote.
func (w *writers) end(t *testing.T) int {
	t.Helper()
	close(w.stop)
	w.done.Wait()
	require.Empty(t, w.errs)
	return w.rows
}

// receive reports the records to the tally, and returns the events that came for the second time,
// with their places among the records.
func receive(t *testing.T, tally *audit.Tally, records []*kgo.Record) (events []event,
	repeated []int) {
	t.Helper()
	for i, r := range records {
		e := event{Key: string(r.Key)}
		require.NoError(t, json.Unmarshal(r.Value, &e), "%s", r.Value)
		events = append(events, e)
		if !tally.Received(e.Key, e.N) {
			repeated = append(repeated, i)
		}
	}
	return events, repeated
}
