package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/outbox"
	outboxsql "github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

const (
	latencyClients = 8
	accounts       = 100_000
)

// BenchmarkTransaction prints the median latency of a business transaction of three statements, without an event and with one, written in each of the ways.
// Eight clients write at once, and each takes the ways in turns, so that all have the same conditions. The server is one of its own that flushes to disk,
// or that of POSTRIDER_TEST_POSTGRES.
func BenchmarkTransaction(b *testing.B) {
	dsn := latencyServer(b)
	event := outbox.Event{AggregateType: "account", AggregateID: "17", Type: "AccountChanged",
		Payload: map[string]any{"account": 17, "delta": 12.5, "note": "a payload of about 150 bytes, as an event has it that says what has changed, and no more than that"}}
	ways := []struct {
		name string
		// with adds the event to the batch of the third statement, or sends it itself.
		with func(ctx context.Context, tx pgx.Tx, batch *pgx.Batch) error
	}{
		{"none", func(context.Context, pgx.Tx, *pgx.Batch) error { return nil }},
		{"message", func(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
			return outbox.Message(ctx, tx, "outbox", event)
		}},
		{"message-in-batch", func(ctx context.Context, _ pgx.Tx, batch *pgx.Batch) error {
			return outbox.Message(ctx, batch, "outbox", event)
		}},
		{"row", func(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error { return outbox.Emit(ctx, tx, event) }},
		{"row-in-batch", func(ctx context.Context, _ pgx.Tx, batch *pgx.Batch) error { return outbox.Emit(ctx, batch, event) }},
		{"row-by-function", func(_ context.Context, _ pgx.Tx, batch *pgx.Batch) error {
			batch.Queue("SELECT public.outbox_emit($1, $2, $3, $4)", event.AggregateType, event.AggregateID, event.Type, event.Payload)
			return nil
		}},
	}
	var mu sync.Mutex
	latencies := make([][]time.Duration, len(ways))
	var clients sync.WaitGroup
	failed := make(chan error, latencyClients)
	b.ResetTimer()
	for client := range latencyClients {
		clients.Go(func() {
			conn, err := pgx.Connect(b.Context(), dsn)
			if err != nil {
				failed <- err
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			own := make([][]time.Duration, len(ways))
			const warmUp = 20
			turns := warmUp + b.N/latencyClients/len(ways)
			for turn := range turns {
				for _, way := range rand.Perm(len(ways)) {
					began := time.Now()
					if err := transaction(b.Context(), conn, client, ways[way].with); err != nil {
						failed <- fmt.Errorf("%s: %w", ways[way].name, err)
						return
					}
					if turn >= warmUp {
						own[way] = append(own[way], time.Since(began))
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range own {
				latencies[i] = append(latencies[i], own[i]...)
			}
		})
	}
	clients.Wait()
	b.StopTimer()
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
	median := func(way int) float64 {
		if len(latencies[way]) == 0 {
			return 0 // the first, short run of every benchmark
		}
		slices.Sort(latencies[way])
		return float64(latencies[way][len(latencies[way])/2].Nanoseconds()) / 1000
	}
	none := median(0)
	for i, way := range ways {
		b.ReportMetric(median(i), way.name+"-µs")
		if i > 0 && none > 0 {
			b.ReportMetric(100*(median(i)/none-1), way.name+"-%")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// transaction is one like pgbench's: a balance is changed and read, and the change is recorded.
func transaction(ctx context.Context, conn *pgx.Conn, client int, with func(context.Context, pgx.Tx, *pgx.Batch) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		account := rand.IntN(accounts/latencyClients)*latencyClients + client // clients do not wait for each other
		if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", account); err != nil {
			return err
		}
		var balance int
		if err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = $1", account).Scan(&balance); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO history (account, balance) VALUES ($1, $2)", account, balance)
		if err := with(ctx, tx, batch); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
}

func latencyServer(b *testing.B) (dsn string) {
	b.Helper()
	if os.Getenv("POSTRIDER_TEST_POSTGRES") != "" {
		dsn = parts.Postgres(b, parts.AnyVersion).DSN()
	} else {
		pg := parts.ExclusivePostgres(b, embedded.PostgresConfig{Params: map[string]string{"fsync": "on", "synchronous_commit": "on", "max_wal_size": "4GB"}})
		dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", pg.Port())
	}
	table, err := outboxsql.Outbox(outboxsql.Plain, "public", "outbox")
	require.NoError(b, err)
	function, err := outboxsql.Emit("public", "outbox")
	require.NoError(b, err)
	conn := parts.Connect(b, dsn)
	_, err = conn.Exec(b.Context(), table+function+fmt.Sprintf(`
		CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
		CREATE TABLE history (account int, balance int, at timestamptz DEFAULT now());
		INSERT INTO accounts SELECT n, 0 FROM generate_series(0, %d) n; CHECKPOINT`, accounts))
	require.NoError(b, err)
	return dsn
}
