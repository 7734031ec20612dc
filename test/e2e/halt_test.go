package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// poison is a row that cannot be published, and what a person does about it.
type poison struct {
	name   string
	insert string            // has the id poisonID
	config string            // [router] of the relay that halts, beyond routeTo
	says   string            // in the error
	repair map[string]string // environment of the relay that goes on
	// skip advances the slot instead: the row is given up, with its transaction.
	skip bool
}

const poisonID = "00000000-0000-0000-0000-00000000dead"

var poisons = []poison{
	{
		name:   "no key",
		insert: `INSERT INTO outbox (id, aggregate_type, aggregate_id, payload) VALUES ('` + poisonID + `', 'order', NULL, '{}')`,
		says:   "column aggregate_id, which is the key, is NULL",
		repair: map[string]string{"POSTRIDER_ROUTER_NULL_KEY": "publish"},
	},
	{
		name:   "no topic",
		insert: `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('` + poisonID + `', 'order', 'poison', 'not a topic', '{}')`,
		config: `route.by.field = "event_type"`,
		says:   `routed value "not a topic" gives the topic name "not a topic"`,
		repair: map[string]string{"POSTRIDER_ROUTER_ROUTE_BY_FIELD": "aggregate_type"},
	},
	{
		name:   "too large",
		insert: `INSERT INTO outbox (id, aggregate_type, aggregate_id, payload) SELECT '` + poisonID + `', 'order', 'poison', to_jsonb(repeat('x', 20000))`,
		config: "[sink.kafka]\nmax_message_bytes = \"16KiB\"",
		says:   "sink.kafka.max_message_bytes is 16384",
		repair: map[string]string{"POSTRIDER_SINK_KAFKA_MAX_MESSAGE_BYTES": "64KiB"},
	},
	{
		name:   "given up",
		insert: `INSERT INTO outbox (id, aggregate_type, aggregate_id, payload) VALUES ('` + poisonID + `', 'order', NULL, '{}')`,
		says:   "column aggregate_id, which is the key, is NULL",
		skip:   true,
	},
}

func TestHalt_NamesTheRowAndLosesNothing(t *testing.T) {
	for _, p := range poisons {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			haltAndRepair(t, p)
		})
	}
}

func haltAndRepair(t *testing.T, p poison) {
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	// Whatever is no "not a topic" goes to the topic of the test.
	s := newShop(t, parts.AnyVersion, outboxSQL, fmt.Sprintf(`
[router]
route.topic.regex = "changed|order"
route.topic.replacement = %q
%s`, topic, p.config))
	ledger := newLedger()
	// In the transaction: behind its commit others may have written before we look, which a relay that halts need not have heard of.
	events := func(keys ...string) (written pglogrepl.LSN) {
		tx, err := s.sql.Begin(t.Context())
		require.NoError(t, err)
		d := ledger.draft()
		write(t, tx, d, "outbox", keys...)
		written = s.lsn(t, "SELECT pg_current_wal_insert_lsn()")
		require.NoError(t, tx.Commit(t.Context()))
		d.committed()
		return written
	}
	r := s.run(t)
	var before pglogrepl.LSN
	for range 20 {
		before = events("a", "b")
	}

	// Rows before and behind the poison in its transaction, and transactions behind it.
	tx, d := s.begin(t), ledger.draft()
	if !p.skip {
		write(t, tx, d, "outbox", "a", "in the transaction")
	}
	_, err := tx.Exec(t.Context(), p.insert)
	require.NoError(t, err)
	if !p.skip {
		write(t, tx, d, "outbox", "a", "in the transaction")
	}
	require.NoError(t, tx.Commit(t.Context()))
	after := s.lsn(t, "SELECT pg_current_wal_flush_lsn()")
	d.committed()
	for range 20 {
		events("b", "a")
	}

	index := 2
	if p.skip {
		index = 0
	}
	at := requireHalt(t, s, r, p, index)
	require.GreaterOrEqual(t, at, before, "the position is that of the poison's transaction")
	require.Less(t, at, after)
	require.Greater(t, s.confirmed(t), before, "everything before is confirmed")
	require.Less(t, s.confirmed(t), after)
	require.Equal(t, at, requireHalt(t, s, s.launch(t), p, index), "it halts at the same row as long as nothing changes")

	if p.skip {
		advance := start(t, s.environment(), "slot", "advance", s.slot, "--to", after.String(), "--yes")
		require.Zero(t, advance.Wait(t))
	}
	r = s.run(t, p.repair)
	s.awaitConfirmed(t, r)
	r.Stop(t)
	requireNothingLost(t, s, ledger, topic, p)
}

// The rows that are inserted while there is no publication never come: the server ends the stream there, each time. All before them is published
// before the relay halts, although it was read together with the error, and takes long to publish when the rate is limited: the server, which does not
// know the connection any more, is no reason to end the session. Whoever types what the relay prints loses nothing.
func TestHalt_AtAGapInThePublicationLosesNothing(t *testing.T) {
	for version, rate := range map[string]string{"14": "none", "17": "50 rows/s", "18": "none"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			topic := c.Topic(t, partitions)
			s := newShop(t, version, outboxSQL, routeTo(topic, ""))
			s.do(t, "SELECT pg_create_logical_replication_slot('"+s.slot+"', 'pgoutput')")
			ledger := newLedger()
			const before = 500
			for range before / 2 { // of two rows each
				s.events(t, ledger, "outbox", "a")
			}
			s.do(t, "DROP PUBLICATION postrider")
			s.events(t, ledger, "outbox", "a", "b")
			s.do(t, "CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')")
			s.events(t, ledger, "outbox", "a", "b")

			r := s.launch(t, map[string]string{"POSTRIDER_RELAY_MAX_RATE": rate})
			require.Equal(t, 78, r.Wait(t), "exit code")
			require.Equal(t, before, len(s.All(t, topic)), "rows before the gap")
			_, next, found := strings.Cut(r.Log.String(), "lack:\n")
			require.True(t, found, r.Log.String())
			for line := range strings.Lines(next) {
				words := strings.Fields(line)
				require.Equal(t, "postrider", words[0], next)
				typed := start(t, s.environment(), append(words[1:], "--yes", "--config", s.file)...)
				require.Zero(t, typed.Wait(t), "%s: %s", line, typed.Log.String())
			}

			r = s.run(t)
			s.events(t, ledger, "outbox", "a", "b")
			s.awaitConfirmed(t, r)
			r.Stop(t)
			ledger.received(t, s.All(t, topic))
			v := ledger.tally.Verdict()
			require.Equal(t, int64(before+3*4), v.Written)
			require.Zero(t, v.Lost)
			require.Zero(t, v.OutOfOrder)
		})
	}
}

// requireHalt waits until the relay has ended because of the row, and returns the position that it names.
func requireHalt(t testing.TB, s *shop, r *relay, p poison, index int) pglogrepl.LSN {
	t.Helper()
	require.Equal(t, 1, r.Wait(t), "exit code")
	said := r.Log.String()
	message := said[strings.Index(said, "postrider: "):]
	for _, part := range []string{p.says, poisonID, "public.outbox", fmt.Sprintf("index %d", index), "WAL:", s.confirmed(t).String(), "next: ", "deadletter."} {
		require.Contains(t, message, part)
	}
	require.NotContains(t, said, "session ended with messages in flight", "everything before it was waited for, and nothing else")
	_, rest, found := strings.Cut(message, "public.outbox at ")
	require.True(t, found, "%s", message)
	lsn, err := pglogrepl.ParseLSN(rest[:strings.Index(rest, " index")])
	require.NoError(t, err)
	return lsn
}

// requireNothingLost wants every event and, unless it was given up, the row that was poison. What stood before it in its transaction was
// published once with each halt: nothing of an unfinished transaction is confirmed.
func requireNothingLost(t testing.TB, s *shop, l *ledger, topic string, p poison) {
	t.Helper()
	records := s.All(t, topic)
	var poisoned int
	for _, r := range records {
		if string(r.Headers[0].Value) == poisonID {
			poisoned++
			records = remove(records, r)
		}
	}
	l.received(t, records)
	v := l.tally.Verdict()
	written := int64(80)
	if !p.skip {
		written += 4
	}
	require.Equal(t, written, v.Written)
	require.Zero(t, v.Lost)
	require.Zero(t, v.OutOfOrder)
	require.Zero(t, v.Phantom)
	if p.skip {
		require.Zero(t, v.Duplicated)
		require.Zero(t, poisoned)
		return
	}
	require.Equal(t, int64(2*2), v.Duplicated, "two halts, two rows before the poison")
	require.Equal(t, 1, poisoned)
}

// A session that makes the slot reads the sizes of the outbox tables: while one is locked, it publishes nothing of the others.
func TestRun_NamesTheTableThatIsLocked(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(topic, ""))
	ledger := newLedger()
	other := s.Connect(t)
	lock, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE outbox")
	require.NoError(t, err)
	r := s.launch(t)
	line := r.AwaitLog(t, "session ended")
	require.Contains(t, line["error"], "a table is locked for longer than 2s")
	require.Contains(t, line["next"], "WHERE mode = 'AccessExclusiveLock' AND relation IS NOT NULL;")
	require.NoError(t, lock.Rollback(t.Context()))
	r.AwaitLog(t, "streaming started")
	s.events(t, ledger, "outbox", "a", "b")
	s.awaitConfirmed(t, r)
	r.Stop(t)
}

// A session needs no lock on tables that it does not relay, whoever has made them.
func TestRun_WaitsForNoTableThatIsNoOutbox(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, "18", outboxSQL, routeTo(topic, ""))
	s.Exec(t, "DROP PUBLICATION postrider; CREATE TABLE unrelated (id int PRIMARY KEY); CREATE PUBLICATION postrider FOR ALL TABLES")
	ledger := newLedger()
	r := s.launch(t) // makes the slot
	r.AwaitLog(t, "streaming started")
	r.Stop(t)
	lock, err := s.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE unrelated")
	require.NoError(t, err)
	r = s.launch(t)
	r.AwaitLog(t, "streaming started")
	s.events(t, ledger, "outbox", "a", "b")
	s.awaitConfirmed(t, r)
	r.Stop(t)
	require.NoError(t, lock.Rollback(t.Context()))
}
