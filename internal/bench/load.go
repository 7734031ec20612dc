package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/internal/postgres"
)

const (
	// writerCount is how many connections write at a steady rate.
	writerCount = 16

	// burst is how many transactions a writer that is late sends without waiting for the first, as
	// independent clients would. Each has a commit of its own.
	burst = 64

	// backlogBurst is the same for a backlog.
	backlogBurst = 200
)

// backlog writes the rows of a drain.
func (r *run) backlog(ctx context.Context) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	// The speed of these commits is not measured.
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return fmt.Errorf("set synchronous_commit: %w", err)
	}
	const name = "backlog"
	size, sql := fmt.Append(nil, r.Size), insertRange(r.table())
	params := func(first, last int64) [][]byte {
		return [][]byte{fmt.Append(nil, first), fmt.Append(nil, last), size}
	}
	if r.Tx == 1 { // cheaper than a statement that computes its rows
		sql, params = insertOne(r.table()), func(n, _ int64) [][]byte { return r.params(n) }
	}
	if _, err := conn.Prepare(ctx, name, sql); err != nil {
		return fmt.Errorf("prepare the backlog: %w", err)
	}
	for n := int64(0); n < r.Rows; {
		var transactions [][][]byte
		for ; n < r.Rows && len(transactions) < backlogBurst; n += r.Tx {
			transactions = append(transactions, params(n, min(n+r.Tx, r.Rows)-1))
		}
		if err := pipeline(ctx, conn, name, transactions, func(int, time.Time) {}); err != nil {
			return fmt.Errorf("write the backlog: %w", err)
		}
	}
	for n := range r.Rows {
		r.tally.Wrote(r.key(n), r.number(n))
	}
	return nil
}

// steady is an open load: transaction n is due n/rate after start, also when those before it were
// slow.
type steady struct {
	conns  []*pgx.Conn // of a writer each
	start  time.Time
	rate   float64 // a second
	total  int64
	until  time.Time                // nothing is sent later, even if it was due before
	first  int64                    // row of transaction 0
	params func(row int64) [][]byte // of the statement
	// committed is called from any writer's goroutine with the time of the answer to a commit.
	committed func(row int64, at time.Time)
}

// statement is the name of a writer's prepared statement.
const statement = "steady"

// newLoad connects the writers of a load of rows, which begins now.
func (r *run) newLoad(ctx context.Context, writers int, sql string, rate float64, total int64,
	duration time.Duration) (*steady, error) {
	s := &steady{rate: rate, total: total, params: r.params, committed: r.wrote}
	for range writers {
		conn, err := r.connect(ctx)
		if err != nil {
			return nil, err
		}
		r.atEnd(func(context.Context) error {
			postgres.Close(conn)
			return nil
		})
		if _, err := conn.Prepare(ctx, statement, sql); err != nil {
			return nil, fmt.Errorf("prepare a writer: %w", err)
		}
		s.conns = append(s.conns, conn)
	}
	s.start = time.Now()
	s.until = s.start.Add(duration)
	return s, nil
}

func (s *steady) due(n int64) time.Time {
	return s.start.Add(time.Duration(float64(n) / s.rate * float64(time.Second)))
}

// write runs the writers until all is written, or until the end. Writer w has transactions w,
// w+len(conns), ...
func (s *steady) write(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writers sync.WaitGroup
	for w, conn := range s.conns {
		writers.Go(func() {
			if err := s.writer(ctx, conn, int64(w), int64(len(s.conns))); err != nil {
				cancel(fmt.Errorf("write at a steady rate: %w", err))
			}
		})
	}
	writers.Wait()
	return context.Cause(ctx)
}

func (s *steady) writer(ctx context.Context, conn *pgx.Conn, n, step int64) error {
	for n < s.total {
		if !demo.WaitUntil(ctx, s.due(n)) {
			return nil // write returns the cause
		}
		now := time.Now()
		if now.After(s.until) {
			return nil
		}
		first := n
		var transactions [][][]byte
		for ; n < s.total && len(transactions) < burst && !s.due(n).After(now); n += step {
			transactions = append(transactions, s.params(s.first+n))
		}
		err := pipeline(ctx, conn, statement, transactions, func(i int, at time.Time) {
			s.committed(s.first+first+int64(i)*step, at)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pipeline sends transactions of one statement without waiting between them, and calls committed
// at the answer to each commit.
func pipeline(ctx context.Context, conn *pgx.Conn, name string, transactions [][][]byte,
	committed func(i int, at time.Time)) error {
	p := conn.PgConn().StartPipeline(ctx)
	for _, params := range transactions {
		p.SendQueryPrepared(name, params, nil, nil)
		p.SendPipelineSync() // ends the transaction
	}
	err := p.Flush()
	for i := 0; err == nil && i < len(transactions); {
		var result any
		result, err = p.GetResults()
		switch result := result.(type) {
		case *pgconn.ResultReader:
			_, err = result.Close()
		case *pgconn.PipelineSync:
			committed(i, time.Now())
			i++
		}
	}
	if err != nil {
		_ = p.Close()
		return err
	}
	return p.Close()
}
