package prune

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

var (
	long = flag.Bool("long", false, "run each fault with 50 seeds instead of 2")
	seed = flag.Uint64("seed", 0, "run the faults with this seed alone")
)

// partitionFaults are what happens, at random moments, while rows are written and partitions removed.
var partitionFaults = map[string]func(f *partitionFault){
	"the relay is down":     func(f *partitionFault) { f.relay.stop(); f.within(1 + f.rand.IntN(3)); f.startRelay(f.t) },
	"the slot is lost":      (*partitionFault).loseSlot,
	"a transaction is open": func(f *partitionFault) { f.open(); f.within(1 + f.rand.IntN(3)); f.end() },
	"two prune at once":     func(f *partitionFault) { f.prunes(2, 0) },
	"a run is killed":       func(f *partitionFault) { f.prunes(1, 1+f.rand.IntN(40)) },
}

// TestPartition_RemovesNothingUndelivered: after each run every row that was ever committed is in a table, or the
// relay has it. The rows are those of transactions of all kinds, for days that are old, being removed, or to come.
func TestPartition_RemovesNothingUndelivered(t *testing.T) {
	seeds := []uint64{rand.Uint64(), rand.Uint64()}
	switch {
	case *seed != 0:
		seeds = []uint64{*seed}
	case *long:
		for len(seeds) < 50 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	var removed atomic.Int64
	t.Run("faults", func(t *testing.T) {
		for name, happens := range partitionFaults {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, seed := range seeds {
					t.Run(fmt.Sprint(seed), func(t *testing.T) {
						f := newPartitionFault(t, seed)
						for range 2 {
							f.within(1 + f.rand.IntN(3))
							happens(f)
						}
						f.day = 6
						f.prunes(1, 0)
						f.prunes(1, 0)
						removed.Add(int64(f.removed))
					})
				}
			})
		}
	})
	require.Positive(t, removed.Load(), "partitions that were removed in all")
}

// Transactions are of the whole server: an open one keeps a coverage in any database from beginning.
func newPartitionFaultServer(t *testing.T, version string) string {
	t.Helper()
	return parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}).DSN()
}

// partitionFault is a rig with writers.
type partitionFault struct {
	*partitionRig
	t       *testing.T
	rand    *rand.Rand
	day     int // runs are as of its begin
	removed int
	opened  []*openTransaction

	mu        sync.Mutex
	committed map[string]bool
}

type openTransaction struct {
	conn *pgx.Conn
	ids  []string
}

func newPartitionFault(t *testing.T, seed uint64) *partitionFault {
	r := rand.New(rand.NewPCG(seed, 0))
	return newPartitionFaultOn(t, r, newPartitionFaultServer(t, versions[r.IntN(len(versions))]))
}

func newPartitionFaultOn(t *testing.T, r *rand.Rand, server string) *partitionFault {
	f := &partitionFault{t: t, rand: r, day: 1, committed: map[string]bool{},
		partitionRig: newPartitionRigIn(t, parts.NewDatabase(t, server), r.IntN(3) == 0)}
	for day := 4; day <= 6; day++ {
		f.exec(t, fmt.Sprintf("CREATE TABLE outbox_%d PARTITION OF outbox FOR VALUES FROM ('2026-01-%02d 00:00+00') TO ('2026-01-%02d 00:00+00')", day, day, day+1))
	}
	f.look(t)
	return f
}

// within does ordinary things.
func (f *partitionFault) within(n int) {
	for range n {
		switch f.rand.IntN(5) {
		case 0:
			f.open()
		case 1:
			f.end()
		case 2:
			f.prunes(1, 0)
		default:
			f.write(f.conn, f.rand.IntN(6)+1, 1+f.rand.IntN(5))
		}
		if f.rand.IntN(3) == 0 {
			f.day = min(f.day+1, 6)
		}
	}
}

// write commits rows of a day, unless the partition is sealed or gone.
func (f *partitionFault) write(conn *pgx.Conn, day, n int) {
	ids, err := insertInto(f.t.Context(), conn, day, n)
	if err != nil {
		require.Equal(f.t, "23514", postgres.SQLState(err), "%v", err)
		return
	}
	f.commit(ids)
}

func (f *partitionFault) commit(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.committed[id] = true
	}
}

func insertInto(ctx context.Context, conn *pgx.Conn, day, n int) ([]string, error) {
	rows, err := conn.Query(ctx, `INSERT INTO outbox (created_at, payload) SELECT $1::text::timestamptz + i * interval '1 microsecond' + (clock_timestamp() - '2026-01-01') / 10000, '{}'
		FROM generate_series(1, $2) i RETURNING id::text`, fmt.Sprintf("2026-01-%02d 01:00+00", day), n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// open begins a transaction that has a snapshot, and maybe rows, of now.
func (f *partitionFault) open() {
	conn := connect(f.t, f.cfg)
	level := []string{"READ COMMITTED", "REPEATABLE READ"}[f.rand.IntN(2)]
	_, err := conn.Exec(f.t.Context(), "BEGIN ISOLATION LEVEL "+level)
	require.NoError(f.t, err)
	_, err = conn.Exec(f.t.Context(), "SELECT count(*) FROM outbox")
	require.NoError(f.t, err)
	o := &openTransaction{conn: conn}
	if f.rand.IntN(2) == 0 {
		_, err = conn.Exec(f.t.Context(), "SAVEPOINT s")
		require.NoError(f.t, err)
		o.ids, err = insertInto(f.t.Context(), conn, f.rand.IntN(6)+1, 2)
		if err != nil {
			_, err = conn.Exec(f.t.Context(), "ROLLBACK TO s")
		}
		require.NoError(f.t, err)
	}
	f.opened = append(f.opened, o)
}

// end lets an open transaction write more, and commits it or rolls it back.
func (f *partitionFault) end() {
	if len(f.opened) == 0 {
		return
	}
	o := f.opened[0]
	f.opened = f.opened[1:]
	f.finish(o, f.rand.IntN(6)+1, f.rand.IntN(4) > 0)
}

func (f *partitionFault) finish(o *openTransaction, day int, commit bool) {
	more, err := insertInto(f.t.Context(), o.conn, day, 2)
	if err != nil || !commit {
		_, err = o.conn.Exec(f.t.Context(), "ROLLBACK")
	} else if _, err = o.conn.Exec(f.t.Context(), "COMMIT"); err == nil {
		f.commit(append(o.ids, more...))
	}
	require.NoError(f.t, err)
	require.NoError(f.t, o.conn.Close(f.t.Context()))
}

// prunes is one or several runs at once, of which the first may be killed at a statement, beside a writer and a
// transaction that ends meanwhile.
func (f *partitionFault) prunes(n, killedAt int) {
	for len(f.opened) > 1 { // each one that is left costs the runs their patience
		f.end()
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	var writers sync.WaitGroup
	if f.rand.IntN(2) == 0 { // rows that are older than the retention keep their partition
		oldest, n := f.rand.IntN(6)+1, f.rand.IntN(15)
		writers.Go(func() { // ends by itself
			conn := connect(f.t, f.cfg)
			defer postgres.Close(conn)
			for i := range n {
				f.write(conn, oldest+i%(7-oldest), 1)
			}
		})
	}
	if len(f.opened) > 0 {
		o := f.opened[0]
		f.opened = f.opened[1:]
		writers.Go(func() {
			parts.Await(f.t, "a detachment that waits, or the end of the runs", func() (bool, error) {
				select {
				case <-stop:
					return true, nil
				default:
				}
				var pending bool
				err := o.conn.QueryRow(f.t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'ALTER TABLE%' AND wait_event_type = 'Lock')").Scan(&pending)
				return pending, err
			})
			f.finish(o, f.day, true)
		})
	}
	removed := make([]int, n)
	for i := range n {
		at := 0
		if i == 0 {
			at = killedAt
		}
		after := f.rand.IntN(2) == 0
		all.Go(func() { removed[i] = f.onePrune(at, after) })
	}
	all.Wait()
	close(stop)
	writers.Wait()
	for _, r := range removed {
		f.removed += r
	}
	f.judge()
}

// onePrune is a process of the pruner from its start to its end. Its errors are those of the faults.
func (f *partitionFault) onePrune(killedAt int, after bool) (removed int) {
	conn, cut := f.tracedConn(f.t)
	defer postgres.Close(conn)
	run, prover := f.runOn(f.t, conn)
	prover.fenceTimeout = time.Second // where a transaction stays open
	run.cutoff = time.Date(2026, 1, f.day, 0, 0, 0, 0, time.UTC)
	if err := run.looked(f.t.Context(), prover, "created_at", "timestamp with time zone"); err != nil {
		run.coverage = nil
	}
	cut.count, cut.at, cut.after = 0, killedAt, after
	err := run.whole(f.t.Context(), 0)
	require.True(f.t, err == nil || killedAt > 0, "%v", err)
	return len(run.result.Removed)
}

// loseSlot drops the slot, and makes it again after rows were written.
func (f *partitionFault) loseSlot() {
	f.relay.stop()
	parts.Await(f.t, "the end of the walsender", func() (bool, error) {
		_, err := f.conn.Exec(f.t.Context(), "SELECT pg_drop_replication_slot($1)", f.slot)
		if postgres.SQLState(err) == "55006" {
			return false, nil
		}
		return true, err
	})
	f.within(1 + f.rand.IntN(3))
	for len(f.opened) > 0 { // the creation of a slot waits for them
		f.end()
	}
	f.exec(f.t, "SELECT pg_create_logical_replication_slot('"+f.slot+"', 'pgoutput')")
	if f.rand.IntN(2) == 0 {
		f.within(1)
	}
	f.startRelay(f.t)
}

// judge requires that each committed row is in a table, or was received by the relay.
func (f *partitionFault) judge() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	tables, err := postgres.Collect(f.t.Context(), f.conn, pgx.RowTo[string], "SELECT relname::text FROM pg_class WHERE relname LIKE 'outbox\\_%' AND relkind = 'r'")
	require.NoError(f.t, err)
	there := map[string]bool{}
	for _, table := range tables {
		ids, err := postgres.Collect(f.t.Context(), f.conn, pgx.RowTo[string], "SELECT id::text FROM ONLY "+table)
		require.NoError(f.t, err)
		for _, id := range ids {
			there[id] = true
		}
	}
	received := f.relay.rows()
	lost := 0
	for id := range f.committed {
		if !there[id] && !received[id] {
			lost++
		}
	}
	require.Zero(f.t, lost, "rows of %d that were removed and not delivered; tables %v", len(f.committed), tables)
}

// TestPartition_RemovesNothingUndeliveredAfterARestore: the database is as it was in the middle of a run, or before it,
// with rows that the restored history adds.
func TestPartition_RemovesNothingUndeliveredAfterARestore(t *testing.T) {
	t.Parallel()
	seeds := 1
	if *long {
		seeds = 50
	}
	removed := 0
	for range seeds {
		seed := cmp.Or(*seed, rand.Uint64())
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			version := versions[random.IntN(len(versions))]
			server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
			backup := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
			require.NoError(t, backup.Stop(t.Context()))
			f := newPartitionFaultOn(t, random, server.DSN())
			f.within(3)
			f.day = 4
			f.prunes(1, random.IntN(40))
			f.restart(server, func() {
				require.NoError(t, backup.CopyFrom(server, nil))
			})
			then := maps.Clone(f.committed)
			f.within(3)
			f.day = 5
			f.prunes(1, 0)
			f.restart(server, func() {
				require.NoError(t, server.CopyFrom(backup, nil))
			})
			f.committed = then
			f.day = 6
			if random.IntN(2) == 0 {
				f.loseSlot()
			}
			f.within(4)
			f.prunes(1, 0)
			f.prunes(1, 0)
			removed += f.removed
		})
	}
	if *long {
		require.Positive(t, removed)
	}
}

// restart stops the server, with what is open, and starts it after f.
func (f *partitionFault) restart(server *embedded.Postgres, do func()) {
	f.t.Helper()
	for len(f.opened) > 0 {
		f.end()
	}
	f.relay.stop()
	postgres.Close(f.conn)
	require.NoError(f.t, server.Stop(f.t.Context()))
	do()
	require.NoError(f.t, server.Start(f.t.Context()))
	f.conn = connect(f.t, f.cfg)
	f.startRelay(f.t)
}
