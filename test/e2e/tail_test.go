package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// printed waits until the process has printed so many messages, and returns them.
func printed(t testing.TB, p *parts.Relay, n int) []message {
	t.Helper()
	parts.Await(t, fmt.Sprintf("%d printed lines", n), func() (bool, error) {
		if !p.Running() {
			return false, errEnded
		}
		return bytes.Count(p.Stdout.Bytes(), []byte("\n")) >= n, nil
	})
	var messages []message
	for line := range bytes.Lines(p.Stdout.Bytes()) {
		var m message
		require.NoError(t, json.Unmarshal(line, &m), "%s", line)
		messages = append(messages, m)
	}
	require.Len(t, messages, n)
	return messages
}

// slots are those of the test's database.
func (s *shop) slots(t testing.TB) []string {
	t.Helper()
	var names []string
	require.NoError(t, s.sql.QueryRow(t.Context(),
		"SELECT coalesce(array_agg(slot_name::text), '{}') FROM pg_replication_slots WHERE database = current_database()").Scan(&names))
	return names
}

func TestTail_PrintsAndTouchesNothing(t *testing.T) {
	for name, command := range map[string][]string{"tail": {"tail"}, "run --dry-run": {"run", "--dry-run"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			topic := c.Topic(t, partitions)
			s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(topic, ""))
			insert := func(key string) {
				s.do(t, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '%s', NULL, '{"é": 1}')`, key))
			}
			r := s.run(t)
			insert("published")
			s.awaitConfirmed(t, r)
			r.Stop(t)
			position := s.confirmed(t)

			insert("not printed: before it looked")
			looker := start(t, s.environment(), append(command, "--config", s.file)...)
			looker.AwaitLog(t, "streaming started")
			insert("1")
			s.do(t, "BEGIN; INSERT INTO outbox (aggregate_type, aggregate_id) VALUES ('order', 'rolled back'); ROLLBACK")
			insert("2")
			shown := printed(t, looker, 2)
			looker.Stop(t)

			require.Equal(t, position, s.confirmed(t), "position of the relay's slot")
			parts.Await(t, "the end of its slot, when the server notices", func() (bool, error) { return slices.Equal(s.slots(t), []string{s.slot}), nil })
			require.Equal(t, 1, s.count(t, topic), "records in the topic")

			// The relay publishes what was printed.
			r = s.run(t)
			s.awaitConfirmed(t, r)
			r.Stop(t)
			records := s.All(t, topic)
			require.Len(t, records, 4)
			for i, m := range shown {
				of := byKey(records, fmt.Sprint(i+1))
				require.Len(t, of, 1)
				requireRecord(t, m, time.Time{}, time.Time{}, of[0])
			}
		})
	}
}

// The server makes a slot when the transactions that were writing have ended, and says nothing meanwhile.
func TestTail_SaysForWhomItWaits(t *testing.T) {
	t.Parallel()
	s := newShop(t, parts.AnyVersion, outboxSQL, "")
	writer := s.Connect(t)
	_, err := writer.Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id()")
	require.NoError(t, err)
	looker := start(t, s.environment(), "tail", "--config", s.file)
	waits := looker.AwaitLog(t, "temporary slot not created yet")
	pid := writer.PgConn().PID()
	require.Contains(t, waits["reason"], fmt.Sprintf("waits for open transactions: pid %d (user postgres", pid))
	require.Contains(t, waits["next"], fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = %d AND ", pid))
	s.do(t, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
	looker.AwaitLog(t, "streaming started")
	looker.Stop(t)
}

// A relay at work is not disturbed either, and what stands in the table can be printed first.
func TestTail_PrintsFromTheTableBesideARelay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL+"ALTER TABLE outbox ADD COLUMN created_at timestamptz NOT NULL DEFAULT clock_timestamp()", routeTo(topic, ""))
	r := s.run(t)
	s.do(t,
		`INSERT INTO outbox (aggregate_type, aggregate_id, created_at) VALUES ('order', 'old', now() - interval '2 hours')`,
		`INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'second', '{"n": [1, null]}')`,
		`INSERT INTO outbox (aggregate_type, aggregate_id, created_at) VALUES ('order', 'first', now() - interval '1 minute')`,
	)
	looker := start(t, s.environment(), "tail", "--since", "1h", "--config", s.file)
	looker.AwaitLog(t, "streaming started")
	s.do(t, `INSERT INTO outbox (aggregate_type, aggregate_id) VALUES ('order', 'third')`)
	var keys []string
	for _, m := range printed(t, looker, 3) {
		require.Equal(t, topic, m.Topic)
		keys = append(keys, *m.Key)
	}
	require.Equal(t, []string{"first", "second", "third"}, keys)
	looker.Stop(t)
	s.awaitConfirmed(t, r)
	require.Equal(t, 1, r.state(t).Sessions)
	r.Stop(t)
	require.Equal(t, 4, s.count(t, topic))
}
