package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tables of different shapes, each with options of its own: relayed in one stream, printed by tail, judged by check.
func TestRouters_RelayTablesOfDifferentShapes(t *testing.T) {
	t.Parallel()
	onOldAndNew(t, func(t *testing.T, version string) {
		c := newCluster(t)
		orders, tasks := c.Topic(t, partitions), c.Topic(t, partitions)
		s := newShop(t, version, outboxSQL+`
			CREATE TABLE tasks (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text, body jsonb, created_at timestamptz DEFAULT now());
			ALTER PUBLICATION postrider ADD TABLE tasks;`,
			fmt.Sprintf(`
[replication]
tables = ["public.outbox", "public.tasks"]
messages = ["audit"]

[[router]]
tables = ["public.tasks"]
route.by.field = "kind"
route.topic.regex = ".*"
route.topic.replacement = %q
table.field.event.id = "number"
table.field.event.key = "number"
table.field.event.payload = "body"
header_id = "task"

[[router]]
route.topic.regex = ".*"
route.topic.replacement = %q
`, tasks, orders))
		out := start(t, s.environment(), "check", "--config", s.file, "--json")
		require.Zero(t, out.Wait(t), out.Stdout.String())
		var result struct {
			Findings []struct{ Severity, Code, Subject string }
		}
		require.NoError(t, json.Unmarshal(out.Stdout.Bytes(), &result))
		for _, table := range []string{"public.outbox", "public.tasks"} {
			require.Contains(t, result.Findings, struct{ Severity, Code, Subject string }{"ok", "columns", table})
		}

		r := s.run(t)
		looker := start(t, s.environment(), "tail", "--config", s.file)
		looker.AwaitLog(t, "streaming started")
		s.do(t,
			`BEGIN; INSERT INTO tasks (kind, body) VALUES ('mail', '{"n": 1}');
				INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'a', '{"n": 2}');
				INSERT INTO tasks (kind, body) VALUES ('call', '{"n": 3}'); COMMIT`,
			`SELECT pg_logical_emit_message(true, 'audit', '{"id": "9", "aggregate_type": "order", "aggregate_id": "b", "payload": "{\"n\": 4}"}')`,
			`ALTER TABLE tasks RENAME COLUMN created_at TO made_at`,
			`INSERT INTO tasks (kind, body) VALUES ('mail', '{"n": 5}')`,
		)
		s.awaitConfirmed(t, r)
		require.Equal(t, 1, r.state(t).Sessions)
		r.Stop(t)
		for topic, want := range map[string]struct {
			header string
			values map[string]string
		}{
			tasks:  {"task", map[string]string{"1": `{"n": 1}`, "2": `{"n": 3}`, "3": `{"n": 5}`}},
			orders: {"id", map[string]string{"a": `{"n": 2}`, "b": `{"n": 4}`}},
		} {
			records := s.All(t, topic)
			require.Len(t, records, len(want.values), topic)
			for key, value := range want.values {
				of := byKey(records, key)
				require.Len(t, of, 1)
				require.Equal(t, value, string(of[0].Value))
				require.Equal(t, want.header, of[0].Headers[0].Key)
			}
		}
		for i, topic := range []string{tasks, orders, tasks, orders, tasks} {
			require.Equal(t, topic, printed(t, looker, 5)[i].Topic)
		}
		looker.Stop(t)
	})
}

func TestRouters_CheckNamesTheRuleSet(t *testing.T) {
	t.Parallel()
	s := newShop(t, "17", outboxSQL+`
		CREATE TYPE level AS ENUM ('low', 'high');
		CREATE TABLE tasks (id int PRIMARY KEY, kind text, payload jsonb, level level);
		ALTER PUBLICATION postrider ADD TABLE tasks;`, `
[replication]
tables = ["public.outbox", "public.tasks"]

[[router]]
[[router]]
tables = ["public.tasks"]
route.by.field = "kind"
table.field.event.key = "id"
table.fields.additional.placement = "level:partition"
`)
	out := start(t, s.environment(), "check", "--config", s.file)
	require.Equal(t, 78, out.Wait(t))
	require.Contains(t, out.Stdout.String(), `column "level" is of type level, which is no partition (router[2].table.fields.additional.placement)`)
}
