package faults

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// partitioned replaces the outbox by one with partitions, whose rows come under their names.
func (r *rig) partitioned(t testing.TB, of string) {
	t.Helper()
	execute(t, r.dsn, "SELECT pg_drop_replication_slot('"+r.slot+"')")
	execute(t, r.dsn, "DROP PUBLICATION "+r.publication+"; DROP TABLE outbox")
	execute(t, r.dsn, `CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), day int NOT NULL DEFAULT 0, aggregate_type text NOT NULL,
		aggregate_id text NOT NULL, event_type text NOT NULL DEFAULT 'changed', payload jsonb NOT NULL, number bigint NOT NULL) PARTITION BY LIST (day);
		CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN (0);
		CREATE PUBLICATION `+r.publication+` `+of+` WITH (publish = 'insert')`)
	execute(t, r.dsn, "SELECT pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
}

// Retention takes partitions away as soon as their rows are in the topic, and before the slot is confirmed. Sessions end meanwhile, and the rows come again.
func TestFault40_RetentionUnderLoadNeverHaltsARelayThatKeepsUp(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		r.partitioned(t, "FOR ALL TABLES")
		p := r.started(t)
		conn := parts.Connect(t, r.dsn)
		published := func() (n int64) {
			for _, end := range r.broker.EndOffsets(t, "outbox.event."+r.topic) {
				n += end
			}
			return n
		}
		sessions, repeated := 0, int64(0) // of what the topic has
		cycles := full(t, 20, 200)
		for day := range cycles {
			// Made as people make them: at once, or from a table that is there before.
			next := fmt.Sprintf("CREATE TABLE outbox_%[1]d PARTITION OF outbox FOR VALUES IN (%[1]d)", day+1)
			if day%2 == 1 {
				next = fmt.Sprintf("CREATE TABLE outbox_%[1]d (LIKE outbox INCLUDING DEFAULTS); ALTER TABLE outbox ATTACH PARTITION outbox_%[1]d FOR VALUES IN (%[1]d)", day+1)
			}
			execute(t, r.dsn, next)
			r.insertBulk(t, conn, 2)
			written := int64(r.bulk * bulkKeys)
			eventually(t, time.Minute, "rows in the topic", func() bool { return published() >= written+repeated })
			switch day % 3 {
			case 0:
				execute(t, r.dsn, fmt.Sprintf("ALTER TABLE outbox ALTER COLUMN day SET DEFAULT %d; DROP TABLE outbox_%d", day+1, day))
			case 1:
				execute(t, r.dsn, fmt.Sprintf("ALTER TABLE outbox ALTER COLUMN day SET DEFAULT %[1]d; ALTER TABLE outbox DETACH PARTITION outbox_%[2]d; "+
					"CREATE TABLE archive_%[2]d AS SELECT * FROM outbox_%[2]d; DROP TABLE outbox_%[2]d", day+1, day))
			default:
				execute(t, r.dsn, fmt.Sprintf("ALTER TABLE outbox ALTER COLUMN day SET DEFAULT %d; DROP TABLE outbox_%d", day+1, day))
				execute(t, r.dsn, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+r.slot+"' AND active")
				sessions++
				r.drained(t, time.Minute)
				repeated = published() - written
			}
		}
		r.drained(t, time.Minute)
		p.stop(t)
		v := r.judge(t)
		requireNothingLost(t, v)
		matrix(t, 40, "", fmt.Sprintf("%d partitions taken away at once, %d sessions ended meanwhile", cycles, sessions))
	})
}

var offeredDecision = regexp.MustCompile(`partitions = \["([^"]* = public\.outbox)"\]`)

// Nobody saw the partitions that were made, filled and taken away while the relay did not run.
func TestFault40_PartitionsDroppedWhileStoppedHaltTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		r.partitioned(t, "FOR TABLE outbox")
		r.backlog(t, 500)
		p := r.started(t)
		r.drained(t, time.Minute)
		p.stop(t)

		r.backlog(t, 500)
		execute(t, r.dsn, "CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1); ALTER TABLE outbox ALTER COLUMN day SET DEFAULT 1")
		r.backlog(t, 500)
		execute(t, r.dsn, "CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2); ALTER TABLE outbox ALTER COLUMN day SET DEFAULT 2; DROP TABLE outbox_1")
		r.backlog(t, 500)
		p = r.start(t)
		require.Equal(t, 78, p.Wait(t), "exit code")
		said := p.Log.String()
		for _, part := range []string{"public.outbox_1 (OID ", "is not known", "publish_via_partition_root"} {
			require.Contains(t, said, part)
		}
		decision := offeredDecision.FindStringSubmatch(said)
		require.NotNil(t, decision, "%s", said)
		r.settings["replication.partitions"] = fmt.Sprintf("[%q]", decision[1])
		p = r.started(t)
		r.drained(t, time.Minute)
		eventually(t, time.Minute, "word that the decision has done its work", func() bool {
			return regexp.MustCompile(`no longer needed: remove it`).MatchString(p.Log.String())
		})
		p.stop(t)
		requireExact(t, r.judge(t))
		matrix(t, 40, "", "one partition dropped while the relay was stopped: halted in front of its first row, went on after the decision")
	})
}
