package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// changingSQL is a table with columns to be changed, some of them before those that are routed.
const changingSQL = `
CREATE TABLE outbox (
	spare_inside   text DEFAULT 'gone soon',
	spare_between  text DEFAULT 'gone soon',
	id             int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	unused_inside  text,
	unused_between text,
	aggregate_type varchar(20) NOT NULL,
	width_inside   int DEFAULT 1,
	width_between  int DEFAULT 1,
	aggregate_id   varchar(30),
	event_type     varchar(100),
	payload        json
);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`

// Each happens twice: between two transactions that write events, and inside of one. WHEN says which.
var changes = []string{
	`ALTER TABLE outbox ADD COLUMN added_WHEN text NOT NULL DEFAULT 'constant'`,
	`ALTER TABLE outbox ADD COLUMN rewritten_WHEN uuid DEFAULT gen_random_uuid()`,
	`ALTER TABLE outbox DROP COLUMN spare_WHEN`,
	`ALTER TABLE outbox RENAME COLUMN unused_WHEN TO renamed_WHEN`,
	`ALTER TABLE outbox ALTER COLUMN width_WHEN TYPE bigint`,
	`ALTER TABLE outbox ALTER COLUMN aggregate_id TYPE varchar(3WIDTH)`,
	`ALTER TABLE outbox ALTER COLUMN event_type TYPE text, ALTER COLUMN aggregate_id SET NOT NULL`,
	`ALTER TABLE outbox ALTER COLUMN payload TYPE jsonb`,
	`ALTER TABLE outbox ALTER COLUMN id TYPE bigint`,
	`ALTER TABLE outbox REPLICA IDENTITY FULL`,
}

// onOldAndNew runs a test on the oldest and on the newest server.
func onOldAndNew(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, version)
		})
	}
}

// events writes some, in a transaction of its own.
func (s *shop) events(t testing.TB, l *ledger, table string, keys ...string) (written pglogrepl.LSN) {
	t.Helper()
	return s.eventsAround(t, l, "SELECT", table, table, keys...)
}

// eventsAround writes events before and after a statement, in one transaction. Its table may have another name then. It returns a position behind
// them and before the commit: between the commit and a look at the server's position others may write, which a relay that halts need not have heard of.
func (s *shop) eventsAround(t testing.TB, l *ledger, statement, before, after string, keys ...string) (written pglogrepl.LSN) {
	t.Helper()
	tx, err := s.sql.Begin(t.Context())
	require.NoError(t, err)
	d := l.draft()
	write(t, tx, d, before, keys...)
	_, err = tx.Exec(t.Context(), statement)
	require.NoError(t, err, "%s", statement)
	write(t, tx, d, after, keys...)
	written = s.lsn(t, "SELECT pg_current_wal_insert_lsn()")
	require.NoError(t, tx.Commit(t.Context()))
	d.committed()
	return written
}

func TestSchema_ChangesInMidStream(t *testing.T) {
	t.Parallel()
	onOldAndNew(t, func(t *testing.T, version string) {
		c := newCluster(t)
		topic := c.Topic(t, partitions)
		s := newShop(t, version, changingSQL, routeTo(topic, ""))
		r := s.run(t)
		ledger := newLedger()
		s.events(t, ledger, "outbox", "a", "b")
		for _, change := range changes {
			s.do(t, strings.NewReplacer("WHEN", "between", "WIDTH", "1").Replace(change))
			s.events(t, ledger, "outbox", "a", "b")
			s.eventsAround(t, ledger, strings.NewReplacer("WHEN", "inside", "WIDTH", "2").Replace(change), "outbox", "outbox", "b", "a")
		}
		s.awaitConfirmed(t, r)
		require.Equal(t, 1, r.state(t).Sessions, "no change needs a new session")
		r.Stop(t)
		ledger.received(t, s.All(t, topic))
		ledger.requireExact(t, len(changes)*8)
	})
}

func TestSchema_RenamedTableLosesNothing(t *testing.T) {
	t.Parallel()
	onOldAndNew(t, func(t *testing.T, version string) {
		c := newCluster(t)
		topic := c.Topic(t, partitions)
		s := newShop(t, version, changingSQL, routeTo(topic, ""))
		r := s.run(t)
		ledger := newLedger()
		s.events(t, ledger, "outbox", "a", "b")
		s.do(t, "ALTER TABLE outbox RENAME TO renamed")
		s.events(t, ledger, "renamed", "a", "b")
		s.eventsAround(t, ledger, "ALTER TABLE renamed RENAME TO twice", "renamed", "twice", "a", "b")

		require.Equal(t, 78, r.Wait(t), "exit code")
		require.Contains(t, r.Log.String(), "public.outbox")
		require.Contains(t, r.Log.String(), "table public.outbox does not exist")

		// While it does not run, too.
		s.events(t, ledger, "twice", "a", "b")
		s.eventsAround(t, ledger, "ALTER TABLE twice RENAME TO events", "twice", "events", "a", "b")
		s.configure(t, routeTo(topic, `
[replication]
tables = ["public.events"]`))
		r = s.run(t)
		s.events(t, ledger, "events", "a", "b")
		s.awaitConfirmed(t, r)
		r.Stop(t)
		ledger.received(t, s.All(t, topic))
		ledger.requireExact(t, 24)
	})
}

func TestSchema_DroppedColumnHaltsAndLosesNothing(t *testing.T) {
	t.Parallel()
	onOldAndNew(t, func(t *testing.T, version string) {
		c := newCluster(t)
		topic := c.Topic(t, partitions)
		s := newShop(t, version, changingSQL, routeTo(topic, ""))
		r := s.run(t)
		ledger := newLedger()
		before := s.events(t, ledger, "outbox", "a", "b")
		// From here on the payload is in another column.
		s.do(t, "ALTER TABLE outbox ADD COLUMN body json; ALTER TABLE outbox DROP COLUMN payload")
		insert := func(key string) {
			d := ledger.draft()
			_, err := s.sql.Exec(t.Context(), "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, body) VALUES ('order', $1, 'changed', $2)", key, d.payload(key))
			require.NoError(t, err)
			d.committed()
		}
		insert("a")
		insert("b")

		halted := func(r *relay) {
			require.Equal(t, 78, r.Wait(t), "exit code")
			said := r.Log.String()
			for _, part := range []string{"public.outbox", `"payload"`, "router.table.field.event.payload", "body", "WAL:", "next:"} {
				require.Contains(t, said[strings.Index(said, "postrider: "):], part)
			}
			require.Greater(t, s.confirmed(t), before, "what came before is confirmed")
		}
		halted(r)
		halted(s.launch(t))

		insert("a")
		r = s.run(t, map[string]string{"POSTRIDER_ROUTER_TABLE_FIELD_EVENT_PAYLOAD": "body"})
		insert("b")
		s.awaitConfirmed(t, r)
		r.Stop(t)
		ledger.received(t, s.All(t, topic))
		ledger.requireExact(t, 8)
	})
}

// Rows that were written before a column was renamed wait in the WAL with its old name, and the configuration has the new one.
func TestSchema_ColumnRenamedWhileStopped(t *testing.T) {
	t.Parallel()
	onOldAndNew(t, func(t *testing.T, version string) {
		c := newCluster(t)
		topic := c.Topic(t, partitions)
		s := newShop(t, version, changingSQL, routeTo(topic, ""))
		r := s.run(t)
		ledger := newLedger()
		s.events(t, ledger, "outbox", "a", "b")
		s.awaitConfirmed(t, r)
		r.Stop(t)
		s.events(t, ledger, "outbox", "a", "b")
		s.do(t, "ALTER TABLE outbox RENAME COLUMN payload TO content")
		s.renamedEvent(t, ledger, "content")
		s.do(t, "ALTER TABLE outbox RENAME COLUMN content TO body")
		require.Equal(t, 78, s.launch(t).Wait(t), "the old name is not in the table")
		s.renamedEvent(t, ledger, "body")
		r = s.run(t, map[string]string{"POSTRIDER_ROUTER_TABLE_FIELD_EVENT_PAYLOAD": "body"})
		s.awaitConfirmed(t, r)
		s.renamedEvent(t, ledger, "body")
		s.awaitConfirmed(t, r)
		r.Stop(t)
		ledger.received(t, s.All(t, topic))
		ledger.requireExact(t, 7)
	})
}

// renamedEvent writes one event with the payload in a column of another name.
func (s *shop) renamedEvent(t testing.TB, l *ledger, column string) {
	t.Helper()
	d := l.draft()
	s.do(t, fmt.Sprintf("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, %s) VALUES ('order', 'a', 'changed', '%s')", column, d.payload("a")))
	d.committed()
}

// In a table that has lost a column nobody can tell which column of an old row is which of the table: it might be the one that is gone. An empty
// column of the old name is the way around, as docs/OUTBOX-TABLES.md says.
func TestSchema_ColumnRenamedWhileStoppedBesideADroppedOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, changingSQL+"ALTER TABLE outbox DROP COLUMN spare_inside", routeTo(topic, ""))
	r := s.run(t)
	ledger := newLedger()
	s.events(t, ledger, "outbox", "a", "b")
	s.awaitConfirmed(t, r)
	r.Stop(t)
	s.events(t, ledger, "outbox", "a", "b")
	s.do(t, "ALTER TABLE outbox RENAME COLUMN payload TO body")
	require.Equal(t, 78, s.launch(t).Wait(t), "the old name is not in the table")
	fixed := map[string]string{"POSTRIDER_ROUTER_TABLE_FIELD_EVENT_PAYLOAD": "body"}
	halted := s.launch(t, fixed)
	require.Equal(t, 78, halted.Wait(t), "the new name is not in the rows")
	require.Contains(t, halted.Log.String(), "add an empty column of the old name")

	s.do(t, "ALTER TABLE outbox ADD COLUMN payload json")
	r = s.run(t)
	s.awaitConfirmed(t, r)
	r.Stop(t)
	s.do(t, "ALTER TABLE outbox DROP COLUMN payload")
	r = s.run(t, fixed)
	s.renamedEvent(t, ledger, "body")
	s.awaitConfirmed(t, r)
	r.Stop(t)
	ledger.received(t, s.All(t, topic))
	ledger.requireExact(t, 5)
}
