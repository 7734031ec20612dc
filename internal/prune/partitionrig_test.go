package prune

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

// partitionRig is a table with partitions for the days from 2026-01-01 on, a publication, a slot and a relay.
type partitionRig struct {
	conn  *pgx.Conn
	cfg   postgres.Config
	slot  string
	relay *miniRelay
}

const outboxColumns = "id uuid NOT NULL DEFAULT gen_random_uuid(), created_at timestamptz NOT NULL, payload jsonb"

func newPartitionRig(t *testing.T, version string, withDefault bool) *partitionRig {
	t.Helper()
	return newPartitionRigIn(t, parts.Postgres(t, version), withDefault)
}

func newPartitionRigIn(t *testing.T, db *parts.Database, withDefault bool) *partitionRig {
	t.Helper()
	r := &partitionRig{conn: db.Connect(t), cfg: testdb.ConfigOf(db.DSN()), slot: parts.Unique("slot")}
	r.exec(t, "CREATE TABLE outbox ("+outboxColumns+") PARTITION BY RANGE (created_at)")
	for day := 1; day <= 3; day++ {
		r.exec(t, fmt.Sprintf("CREATE TABLE outbox_%d PARTITION OF outbox FOR VALUES FROM ('2026-01-%02d 00:00+00') TO ('2026-01-%02d 00:00+00')", day, day, day+1))
	}
	if withDefault {
		r.exec(t, "CREATE TABLE outbox_default PARTITION OF outbox DEFAULT")
	}
	r.exec(t, "CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)")
	r.exec(t, "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'postrider') THEN CREATE ROLE postrider; END IF; "+
		"EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
	r.exec(t, sql.Prune())
	r.exec(t, "SELECT pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
	r.startRelay(t)
	return r
}

func (r *partitionRig) exec(t testing.TB, statements string) {
	t.Helper()
	_, err := r.conn.PgConn().Exec(t.Context(), statements).ReadAll()
	require.NoError(t, err, statements)
}

// insert writes n rows of a time, as 2026-01-01 12:00.
func (r *partitionRig) insert(t testing.TB, at string, n int) {
	t.Helper()
	_, err := r.conn.Exec(t.Context(), "INSERT INTO outbox (created_at, payload) SELECT $1::text::timestamptz, '{}' FROM generate_series(1, $2)", at+"+00", n)
	require.NoError(t, err)
}

// run is a new process of the pruner: a connection, and a run as of the end of 2026-01-02.
func (r *partitionRig) run(t testing.TB) (*partitionRun, *Prover) {
	t.Helper()
	conn, err := postgres.ConnectRows(t.Context(), r.cfg)
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(conn) })
	return r.runOn(t, conn)
}

func (r *partitionRig) runOn(t testing.TB, conn *pgx.Conn) (*partitionRun, *Prover) {
	t.Helper()
	table, err := readPartitioned(t.Context(), conn, "public", "outbox", [][2]string{{"public", "outbox"}})
	require.NoError(t, err)
	prover, err := NewProver(t.Context(), conn, r.slot, "pub", time.Hour)
	require.NoError(t, err)
	prover.fenceTimeout = parts.Patience // for the transactions of other tests
	return &partitionRun{conn: conn, table: table, slot: r.slot, lockTimeout: 200 * time.Millisecond, detachTimeout: time.Second,
		cutoff: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), postponed: postponed[uint32]{}, uncreated: postponed[string]{}, letters: []string{}, result: &PartitionReport{}}, prover
}

// look has the pruner see the partitions, so that rows from now on are covered.
func (r *partitionRig) look(t testing.TB) {
	t.Helper()
	run, prover := r.run(t)
	_, err := prover.Look(t.Context(), run.table.relations("created_at", "timestamp with time zone"), Save)
	require.NoError(t, err)
	postgres.Close(run.conn)
}

// pruneUntil runs until n partitions were removed: an open transaction, also of another test's database, keeps rows
// of later ones from being proven. The report is the last one, with all that were removed.
func (r *partitionRig) pruneUntil(t testing.TB, n int) *PartitionReport {
	t.Helper()
	var removed []string
	var last *PartitionReport
	parts.Await(t, "partitions to be removed", func() (bool, error) {
		last = r.prune(t)
		removed = append(removed, last.Removed...)
		last.Removed = removed
		return len(removed) >= n, nil
	})
	return last
}

// prune is one run.
func (r *partitionRig) prune(t testing.TB) *PartitionReport {
	t.Helper()
	run, prover := r.run(t)
	require.NoError(t, run.looked(t.Context(), prover, "created_at", "timestamp with time zone"))
	require.NoError(t, run.whole(t.Context(), 0))
	postgres.Close(run.conn)
	return run.result
}

// whole is what a Pruner does with a table.
func (r *partitionRun) whole(ctx context.Context, ahead int) error {
	err := r.refusal(ctx, "public.outbox")
	if advised := new(slot.Error); errors.As(err, &advised) {
		r.result.keep("outbox", advised.Error()+"; "+advised.Fix)
		return nil
	}
	if err == nil {
		err = r.ahead(ctx, ahead, nil)
	}
	if err == nil {
		err = r.remove(ctx)
	}
	return err
}

// looked sets the coverage.
func (r *partitionRun) looked(ctx context.Context, prover *Prover, column, columnType string) error {
	relations := r.table.relations(column, columnType)
	coverages, err := prover.Look(ctx, relations, Save)
	r.coverage = map[uint32]*Coverage{}
	for i, c := range coverages {
		r.coverage[relations[i].OID] = c
	}
	return err
}

func (r *partitionRig) seals(t testing.TB) int {
	t.Helper()
	return query[int](t, r.conn, "SELECT count(*) FROM pg_constraint WHERE conname = 'postrider_pruned'")
}

func (r *partitionRig) partition(t *testing.T, name string) *partition {
	t.Helper()
	run, _ := r.run(t)
	for i := range run.table.Partitions {
		if run.table.Partitions[i].Name == name {
			return &run.table.Partitions[i]
		}
	}
	require.Fail(t, "no such partition", name)
	return nil
}

// miniRelay streams a slot, remembers the ids of the rows, and confirms all that it has received.
type miniRelay struct {
	stop func() // waits
	mu   sync.Mutex
	seen map[string]bool
	open bool // a transaction is: a keepalive inside it says nothing
}

func (r *partitionRig) startRelay(t testing.TB) {
	t.Helper()
	conn, err := postgres.ConnectReplication(t.Context(), r.cfg)
	require.NoError(t, err)
	parts.Await(t, "the slot", func() (bool, error) {
		err = pglogrepl.StartReplication(t.Context(), conn, r.slot, 0, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names 'pub'"}})
		if postgres.SQLState(err) == "55006" { // object_in_use: the end of the last one takes a moment
			return false, nil
		}
		return true, err
	})
	require.NoError(t, err)
	if r.relay == nil {
		r.relay = &miniRelay{seen: map[string]bool{}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		r.relay.stream(ctx, conn)
		postgres.Close(conn)
	}()
	r.relay.stop = func() { cancel(); <-ended }
	t.Cleanup(r.relay.stop)
}

func (m *miniRelay) stream(ctx context.Context, conn *pgconn.PgConn) {
	var received pglogrepl.LSN
	m.open = false
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		msg, err := conn.ReceiveMessage(within)
		cancel()
		if err == nil {
			received = max(received, m.receive(msg))
			continue
		}
		if !pgconn.Timeout(err) || received > 0 &&
			pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: received}) != nil {
			return
		}
	}
}

func (m *miniRelay) receive(msg pgproto3.BackendMessage) (end pglogrepl.LSN) {
	data, ok := msg.(*pgproto3.CopyData)
	if !ok {
		return 0
	}
	if data.Data[0] == pglogrepl.PrimaryKeepaliveMessageByteID {
		keepalive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data.Data[1:])
		if err != nil {
			panic(err)
		}
		if m.open {
			return 0
		}
		return keepalive.ServerWALEnd
	}
	wal, err := pglogrepl.ParseXLogData(data.Data[1:])
	if err != nil {
		panic(err)
	}
	logical, err := pglogrepl.Parse(wal.WALData)
	if err != nil {
		panic(err)
	}
	switch logical := logical.(type) {
	case *pglogrepl.InsertMessage:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen[string(logical.Tuple.Columns[0].Data)] = true
	case *pglogrepl.BeginMessage:
		m.open = true
	case *pglogrepl.CommitMessage:
		m.open = false
		return logical.TransactionEndLSN
	}
	return 0
}

// rows are the ids of what was received.
func (m *miniRelay) rows() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]bool{}
	for id := range m.seen {
		all[id] = true
	}
	return all
}
