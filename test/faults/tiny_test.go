package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// insert commits nothing by itself: event number of a key, with a payload that long.
func (r *rig) insert(ctx context.Context, conn *pgx.Conn, key string, number uint64, pad int) error {
	_, err := conn.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		VALUES ($1, $2, jsonb_build_object('key', $2::text, 'number', $3::bigint, 'pad', repeat('x', $4)), $3)`, r.topic, key, int64(number), pad)
	return err
}

// tiny commits n transactions of one event, a third of them with a savepoint that is rolled back, and as many again that are rolled back.
func (r *rig) tiny(ctx context.Context, random *rand.Rand, key string, n int) error {
	conn, err := pgx.Connect(ctx, r.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var failed error
	do := func(sql string) {
		if failed == nil {
			_, failed = conn.Exec(ctx, sql)
		}
	}
	insert := func(key string, number uint64) {
		if failed == nil {
			failed = r.insert(ctx, conn, key, number, 10)
		}
	}
	for number := uint64(1); number <= uint64(n) && failed == nil; {
		do("BEGIN")
		commits := true
		switch random.IntN(3) {
		case 0:
			insert(key+"-rolled-back", number)
			do("ROLLBACK")
			commits = false
		case 1:
			do("SAVEPOINT s")
			insert(key+"-rolled-back", number)
			do("ROLLBACK TO SAVEPOINT s")
			fallthrough
		default:
			insert(key, number)
			do("COMMIT")
		}
		if commits && failed == nil {
			r.tally.Wrote(key, number)
			number++
		}
	}
	return failed
}

func TestFault23_TinyTransactionsOfManySessions(t *testing.T) {
	t.Parallel()
	const sessions = 64
	broker := parts.RealKafka(t)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"max_connections": "150"}})
	r := newRig(t, pg.DSN(), broker)
	p := r.started(t)
	transactions := full(t, 3_200, 100_000)
	errs := make([]error, sessions)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range sessions {
		random := random(t, uint64(i))
		wg.Go(func() {
			errs[i] = r.tiny(context.WithoutCancel(t.Context()), random, fmt.Sprint("session-", i), transactions/sessions)
		})
	}
	wg.Wait()
	written := time.Since(began)
	for _, err := range errs {
		require.NoError(t, err)
	}
	back := r.caughtUp(t)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 23, "", fmt.Sprintf("%d transactions committed in %.1f s, caught up %.1f s later", transactions, written.Seconds(), back.Seconds()))
}
