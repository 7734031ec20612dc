package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// tableChanges are made again and again, with %d for which time.
var tableChanges = []string{
	"ALTER TABLE outbox ADD COLUMN extra_%d text NOT NULL DEFAULT 'constant'",
	"ALTER TABLE outbox ADD COLUMN rewritten_%d uuid DEFAULT gen_random_uuid()",
	"ALTER TABLE outbox RENAME COLUMN extra_%[1]d TO renamed_%[1]d",
	"ALTER TABLE outbox ADD COLUMN width_%d int DEFAULT 1",
	"ALTER TABLE outbox ALTER COLUMN width_%d TYPE bigint",
	"ALTER TABLE outbox DROP COLUMN renamed_%d",
	"ALTER TABLE outbox DROP COLUMN rewritten_%d, DROP COLUMN width_%[1]d",
}

func TestFault13_TableChangesUnderLoadLoseNothing(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		p := r.started(t)
		l := r.load(t, 100)
		conn := parts.Connect(t, r.dsn)
		do := func(sql string) {
			_, err := conn.Exec(t.Context(), sql)
			require.NoError(t, err, sql)
		}
		changes := 0
		for i := range full(t, 2, 50) {
			for _, change := range tableChanges {
				// The second time, inside of a transaction that writes before it and after it.
				if i%2 == 1 {
					do("BEGIN")
					r.insertBulk(t, conn, 1)
				}
				do(fmt.Sprintf(change, i))
				changes++
				if i%2 == 1 {
					r.insertBulk(t, conn, 1)
					do("COMMIT")
				}
				l.more(t, 10)
			}
		}
		l.end(t)
		r.drained(t, time.Minute)
		require.Equal(t, 1, p.ask().Relay.Sessions, "no change needs a new session")

		// A table of another name is not the one that is configured.
		do("ALTER TABLE outbox RENAME TO elsewhere")
		require.Equal(t, 78, p.Wait(t), "exit code")
		require.Contains(t, p.Log.String(), "public.outbox")
		do("ALTER TABLE elsewhere RENAME TO outbox")
		p = r.started(t)
		r.backlog(t, 500)
		r.drained(t, time.Minute)

		// Neither is a column of another name, and this one is needed.
		r.tally.Wrote("renamed", 1)
		do("ALTER TABLE outbox RENAME COLUMN payload TO body; INSERT INTO outbox (aggregate_type, aggregate_id, body, number) VALUES ('" +
			r.topic + `', 'renamed', '{"key": "renamed", "number": 1}', 1)`)
		require.Equal(t, 78, p.Wait(t), "exit code")
		require.Contains(t, p.Log.String(), "router.table.field.event.payload")
		r.settings[`router."table.field.event.payload"`] = `"body"`
		p = r.started(t)
		r.drained(t, time.Minute)
		p.stop(t)
		requireExact(t, r.judge(t))
		matrix(t, 13, "", fmt.Sprintf("%d changes under load, a table and a column renamed", changes))
	})
}
