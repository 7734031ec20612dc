package e2e

import (
	"context"
	"crypto/md5" //nolint:gosec // no secret is kept with it
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// write inserts the next event of each key, in a transaction of the caller's.
func write(t testing.TB, tx pgx.Tx, d *draft, table string, keys ...string) {
	t.Helper()
	require.NoError(t, insertEvents(t.Context(), tx, d, table, keys...))
}

// insertEvents is write for other goroutines than the test's.
func insertEvents(ctx context.Context, tx pgx.Tx, d *draft, table string, keys ...string) error {
	for _, key := range keys {
		_, err := tx.Exec(ctx, `INSERT INTO `+table+` (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', $1, 'changed', $2)`,
			key, d.payload(key))
		if err != nil {
			return err
		}
	}
	return nil
}

// begin opens a transaction on a connection of its own.
func (s *shop) begin(t testing.TB) pgx.Tx {
	t.Helper()
	tx, err := s.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	return tx
}

func TestStream_DeliversExactlyWhatWasCommitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL+`
		CREATE SCHEMA sales;
		CREATE TABLE sales.outbox (LIKE public.outbox INCLUDING ALL);
		CREATE TABLE unrelated (LIKE public.outbox INCLUDING ALL);
		ALTER PUBLICATION postrider ADD TABLE sales.outbox, unrelated;
		ALTER PUBLICATION postrider SET (publish = 'insert, update, delete, truncate');`,
		routeTo(topic, `
[replication]
tables = ["public.outbox", "sales.outbox"]`))
	r := s.run(t)
	ledger := newLedger()
	ctx := t.Context()

	t.Run("several tables in one transaction", func(t *testing.T) {
		tx, d := s.begin(t), ledger.draft()
		for range 5 {
			write(t, tx, d, "outbox", "a", "b")
			write(t, tx, d, "sales.outbox", "a", "c")
			_, err := tx.Exec(ctx, "INSERT INTO unrelated (aggregate_type, aggregate_id) VALUES ('order', 'never')")
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit(ctx))
		d.committed()
	})
	t.Run("rollbacks and savepoints", func(t *testing.T) {
		tx := s.begin(t)
		write(t, tx, ledger.draft(), "outbox", "a", "a", "rolled back")
		require.NoError(t, tx.Rollback(ctx))

		tx, d := s.begin(t), ledger.draft()
		write(t, tx, d, "outbox", "a")
		undone, err := tx.Begin(ctx) // a savepoint
		require.NoError(t, err)
		write(t, undone, ledger.draft(), "outbox", "a", "rolled back")
		require.NoError(t, undone.Rollback(ctx))
		kept, err := tx.Begin(ctx)
		require.NoError(t, err)
		write(t, kept, d, "sales.outbox", "a", "b")
		deeper, err := kept.Begin(ctx)
		require.NoError(t, err)
		write(t, deeper, d, "outbox", "a")
		require.NoError(t, deeper.Commit(ctx))
		require.NoError(t, kept.Commit(ctx))
		write(t, tx, d, "outbox", "a")
		require.NoError(t, tx.Commit(ctx))
		d.committed()
	})
	t.Run("a transaction that begins first and commits last", func(t *testing.T) {
		early, d := s.begin(t), ledger.draft()
		write(t, early, d, "outbox", "early")
		for range 3 {
			late, quick := s.begin(t), ledger.draft()
			write(t, late, quick, "outbox", "late", "late")
			require.NoError(t, late.Commit(ctx))
			quick.committed()
			write(t, early, d, "outbox", "early")
		}
		require.NoError(t, early.Commit(ctx))
		d.committed()
	})
	t.Run("updates, deletes and a truncation, all of them published", func(t *testing.T) {
		tx, d := s.begin(t), ledger.draft()
		write(t, tx, d, "outbox", "a", "b")
		_, err := tx.Exec(ctx, `UPDATE outbox SET payload = '{"key": "a", "number": 999}'`)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "DELETE FROM outbox WHERE aggregate_id = 'a'")
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "TRUNCATE outbox, sales.outbox")
		require.NoError(t, err)
		write(t, tx, d, "outbox", "a")
		require.NoError(t, tx.Commit(ctx))
		d.committed()
	})
	t.Run("COPY, whose rows share positions", func(t *testing.T) {
		d := ledger.draft()
		var rows [][]any
		for i := range 2000 {
			key := fmt.Sprintf("copied-%d", i%7)
			rows = append(rows, []any{"order", key, "copied", d.payload(key)})
		}
		n, err := s.sql.CopyFrom(ctx, pgx.Identifier{"outbox"}, []string{"aggregate_type", "aggregate_id", "event_type", "payload"}, pgx.CopyFromRows(rows))
		require.NoError(t, err)
		require.EqualValues(t, len(rows), n)
		d.committed()
	})
	t.Run("a hundred transactions side by side", func(t *testing.T) {
		s.writeConcurrently(t, ledger, 20, 5)
	})

	s.awaitConfirmed(t, r)
	r.Stop(t)
	ledger.received(t, s.All(t, topic))
	ledger.requireExact(t, 2000+20*5*2)
}

// writeConcurrently has writers of their own keys commit transactions of two events each.
func (s *shop) writeConcurrently(t *testing.T, l *ledger, writers, transactions int) {
	t.Helper()
	var wg sync.WaitGroup
	failures := make(chan error, writers)
	for w := range writers {
		conn := s.Connect(t)
		wg.Go(func() { // ends with its last transaction, or the first that fails
			for range transactions {
				d := l.draft()
				key := fmt.Sprintf("writer-%d", w)
				err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return insertEvents(t.Context(), tx, d, "outbox", key, key) })
				if err != nil {
					failures <- err
					return
				}
				d.committed()
			}
		})
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
}

// One transaction must not have to fit into anything: its first rows are in Kafka while its last ones, and its commit, have not
// even reached the relay. A gate in the connection holds them back.
func TestStream_PublishesATransactionBeforeItsEnd(t *testing.T) {
	t.Parallel()
	const rows, passes = 100_000, 4 << 20 // bytes, of about 20 MB
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(topic, ""))
	gate := newGate(t, s.DSN(), passes)
	r := s.run(t, map[string]string{"POSTRIDER_POSTGRES_URL": gate.dsn})

	s.do(t, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'key-' || n %% 1000, 'changed', jsonb_build_object('key', 'key-' || n %% 1000, 'number', n / 1000 + 1)
		FROM generate_series(0, %d) n`, rows-1))
	committed := s.lsn(t, "SELECT pg_current_wal_flush_lsn()")
	parts.Await(t, "a message of a transaction whose end the relay has not seen", func() (bool, error) {
		return s.count(t, topic) > 0, nil
	})
	// The gate is still closed, so the rest of the transaction is on the other side of it.
	require.Less(t, s.confirmed(t), committed, "nothing of an open transaction is confirmed")
	require.Less(t, s.count(t, topic), rows)
	gate.open()

	s.awaitConfirmed(t, r)
	r.Stop(t)
	ledger := newLedger()
	for n := range rows {
		ledger.tally.Wrote(fmt.Sprintf("key-%d", n%1000), uint64(n/1000+1))
	}
	ledger.received(t, s.All(t, topic))
	ledger.requireExact(t, rows)
}

// What was read is written again while the broker still takes requests: a byte that was written too early would be in another's record. Programs
// that look for races also spoil what nobody may read any more.
func TestStream_BytesAreThoseThatWereInserted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(topic, ""))
	r := s.run(t)
	const rows = 20_000
	s.Exec(t, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'key-' || i, 'changed', to_jsonb(repeat(md5(i::text), 1 + i %% 60)) FROM generate_series(1, %d) i`, rows))
	s.awaitConfirmed(t, r)
	seen := make([]bool, rows+1)
	for _, record := range c.Consume(t, topic, rows) {
		number, err := strconv.Atoi(strings.TrimPrefix(string(record.Key), "key-"))
		require.NoError(t, err)
		want := fmt.Sprintf("%x", md5.Sum([]byte(strconv.Itoa(number)))) //nolint:gosec // PostgreSQL has it without an extension
		want = `"` + strings.Repeat(want, 1+number%60) + `"`
		if string(record.Value) != want {
			require.Equal(t, want, string(record.Value), "row %d", number)
		}
		require.False(t, seen[number], "row %d comes twice", number)
		seen[number] = true
	}
}
