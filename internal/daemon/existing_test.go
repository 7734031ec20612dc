package daemon

import (
	"bytes"
	"context"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

// printer calls first before it takes the first line, and last when it has the line with a key.
type printer struct {
	first, last func()
	key         []byte
	lines       int
}

func (p *printer) Write(line []byte) (int, error) {
	if p.lines == 0 {
		p.first()
	}
	p.lines += bytes.Count(line, []byte("\n"))
	if bytes.Contains(line, p.key) {
		p.last()
	}
	return len(line), nil
}

func outboxOf(t *testing.T) (*testdb.DB, config.Config) {
	t.Helper()
	db := testdb.Shared(t, "17")
	db.Exec(`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text,
		payload jsonb, created_at timestamptz DEFAULT now())`)
	db.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	cfg := config.Default()
	cfg.Postgres, cfg.Slot.Name = db.Postgres, db.Name
	cfg.Sink.Kind = config.SinkStdout // needs no brokers
	cfg.Replication.Tables = []string{"public.outbox"}
	return db, cfg
}

func TestDryRun_MissesNothingBetweenTableAndSlot(t *testing.T) {
	const rows = 2000 // more than socket buffers hold
	db, cfg := outboxOf(t)
	db.Exec(`INSERT INTO outbox (aggregate_type, aggregate_id, payload) SELECT 'order', 'old', to_jsonb(repeat('x', 20000)) FROM generate_series(1, $1::int)`, rows)
	ctx, cancel := context.WithCancel(parts.Within(t, time.Minute))
	defer cancel()
	var reading bool
	out := &printer{key: []byte("between"), last: cancel, first: func() {
		var err error
		reading, err = postgres.One[bool](ctx, db.Conn, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND state = 'active' AND query LIKE '%WHERE created_at >= $1%' AND pid <> pg_backend_pid())`)
		require.NoError(t, err)
		db.Exec(`INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'between', '{}')`)
	}}
	env := testEnvironment(io.Discard)
	env.Stdout = out
	_ = DryRun(ctx, cfg, env, time.Now().Add(-time.Hour), zerolog.Nop()) // of a context that ended
	require.True(t, reading, "rows are printed while the server still sends them")
	require.Equal(t, rows+1, out.lines)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// stopped closes itself at the log line of a stop.
type stopped chan struct{}

func (s stopped) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("stop requested")) {
		close(s)
	}
	return len(line), nil
}

func TestDryRun_EndsCleanlyAtASignalWhileItPrints(t *testing.T) {
	db, cfg := outboxOf(t)
	db.Exec(`INSERT INTO outbox (aggregate_type, aggregate_id, payload) SELECT 'order', 'old', to_jsonb(repeat('x', 20000)) FROM generate_series(1, 2000)`)
	ctx, stop := parts.Within(t, time.Minute), make(stopped)
	env := testEnvironment(io.Discard)
	out := &printer{key: []byte("nothing has this"), first: func() {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		select {
		case <-stop:
		case <-ctx.Done():
		}
	}}
	env.Stdout = out
	require.NoError(t, DryRun(ctx, cfg, env, time.Now().Add(-time.Hour), zerolog.New(stop)))
	require.NoError(t, ctx.Err())
	require.Positive(t, out.lines)
}

func TestDryRun_SaysWhyRowsCannotBePrinted(t *testing.T) {
	db, cfg := outboxOf(t)
	db.Exec(`ALTER TABLE outbox DROP created_at`)
	err := DryRun(t.Context(), cfg, testEnvironment(io.Discard), time.Now(), zerolog.Nop())
	require.ErrorContains(t, err, "there is no column created_at")
}
