package faults

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

var recoverFrom = regexp.MustCompile(`postrider recover --config \S+ --from-xmin (\d+)`)

// insertUnsent inserts a row of a key that has no other.
func (r *rig) insertUnsent(key string) string {
	r.tally.Wrote(key, 1)
	return fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number) VALUES ('%s', '%[2]s', '{"key": "%[2]s", "number": 1}', 1); `, r.topic, key)
}

// The change, the row and the way back are one transaction, so no look comes between. A publication that is dropped ends the stream as well: see row 12.
func TestFault38_AChangeThatIsPutBackStopsTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		for _, c := range []struct{ name, since, setup, away, back string }{
			{"publish", "14", "", "ALTER PUBLICATION %s SET (publish = 'update'); ", "ALTER PUBLICATION %s SET (publish = 'insert')"},
			{"table", "14", "", "ALTER PUBLICATION %s DROP TABLE outbox; ", "ALTER PUBLICATION %s ADD TABLE outbox"},
			{"row filter", "15", "", "ALTER PUBLICATION %s SET TABLE outbox WHERE (number < 0); ", "ALTER PUBLICATION %s SET TABLE outbox"},
			{"schema", "15", "DROP PUBLICATION %[1]s; CREATE PUBLICATION %[1]s FOR TABLES IN SCHEMA public WITH (publish = 'insert')",
				"ALTER PUBLICATION %s DROP TABLES IN SCHEMA public; ", "ALTER PUBLICATION %s ADD TABLES IN SCHEMA public"},
			{"unlogged", "14", "DROP PUBLICATION %[1]s; CREATE PUBLICATION %[1]s FOR ALL TABLES WITH (publish = 'insert')",
				"ALTER TABLE outbox SET UNLOGGED; ", "ALTER TABLE outbox SET LOGGED"},
		} {
			if c.since > version {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				of := func(r *rig, sql string) string {
					return regexp.MustCompile(`%(\[1\])?s`).ReplaceAllString(sql, r.publication)
				}
				r := newRig(t, server(t, version), parts.RealKafka(t))
				if c.setup != "" {
					execute(t, r.dsn, of(r, c.setup))
				}
				p := r.started(t)
				r.backlog(t, 500)
				r.drained(t, time.Minute)
				from := currentLSN(t, r.dsn)
				execute(t, r.dsn, of(r, c.away)+r.insertUnsent("unsent")+of(r, c.back))
				to := currentLSN(t, r.dsn) // the row is between the two, with what other tests write beside it
				r.backlog(t, 500)
				require.Equal(t, 78, p.Wait(t), "exit code")
				window := regexp.MustCompile(`between ([0-9A-F]+/[0-9A-F]+) and ([0-9A-F]+/[0-9A-F]+)`).FindStringSubmatch(p.Log.String())
				require.NotNil(t, window)
				// A commit record is in the WAL a moment before its transaction is visible: the last look may have read the position behind it.
				require.LessOrEqual(t, parseLSN(t, window[1]), to)
				require.Greater(t, parseLSN(t, window[2]), from)
				command := recoverFrom.FindStringSubmatch(p.Log.String())
				require.NotNil(t, command, "what to type")

				require.EqualValues(t, 1, r.recover(t, "--from-xmin", command[1]).Undelivered)
				require.EqualValues(t, 1, r.recover(t, "--from-xmin", command[1], "--publish", "--yes").Published)
				p = r.started(t)
				r.backlog(t, 500)
				r.drained(t, time.Minute)
				p.stop(t)
				v := r.judge(t)
				requireNothingLost(t, v)
				require.Less(t, v.Duplicated, int64(2*bulkKeys), "more than the transaction in which it stopped")
				matrix(t, 38, "", "stopped, named the window, and recover published the row")
			})
		}
	})
}

const partitionedOutbox = `DROP TABLE outbox; CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), aggregate_type text NOT NULL,
	aggregate_id text NOT NULL, event_type text NOT NULL DEFAULT 'changed', payload jsonb NOT NULL, number bigint NOT NULL,
	PRIMARY KEY (id, aggregate_id, number)) PARTITION BY LIST (aggregate_id);
	CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT; CREATE TABLE outbox_a PARTITION OF outbox FOR VALUES IN ('a') PARTITION BY LIST (number);
	CREATE UNLOGGED TABLE outbox_a_1 PARTITION OF outbox_a FOR VALUES IN (1); `

func TestFault39_AnUnloggedPartitionStopsTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		execute(t, r.dsn, partitionedOutbox+"ALTER PUBLICATION "+r.publication+" ADD TABLE outbox; ALTER PUBLICATION "+r.publication+" SET (publish_via_partition_root = true); "+r.insertUnsent("a"))
		halts := func(p *process, leaf string) {
			t.Helper()
			require.Equal(t, 78, p.Wait(t), "exit code")
			require.Contains(t, p.Log.String(), "public."+leaf+" is unlogged")
			fix := regexp.MustCompile(`ALTER TABLE "public"."` + leaf + `" SET LOGGED;`).FindString(p.Log.String())
			execute(t, r.dsn, fix)
			require.EqualValues(t, 1, r.recover(t, "--publish", "--yes").Published)
		}
		halts(r.start(t), "outbox_a_1")

		p := r.started(t)
		r.backlog(t, 500)
		r.drained(t, time.Minute)
		execute(t, r.dsn, "CREATE UNLOGGED TABLE outbox_b PARTITION OF outbox FOR VALUES IN ('b'); "+r.insertUnsent("b"))
		halts(p, "outbox_b")

		p = r.started(t)
		r.backlog(t, 500)
		r.drained(t, time.Minute)
		p.stop(t)
		requireExact(t, r.judge(t))
		matrix(t, 39, "", "refused at the start, stopped at the next look; recover published the rows")
	})
}
