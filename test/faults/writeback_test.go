package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// writesBack makes the outbox that of a former poller, and has the relay write to it.
func (r *rig) writesBack(t testing.TB) *rig {
	t.Helper()
	execute(t, r.dsn, `DO $$ BEGIN CREATE ROLE postrider; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
	execute(t, r.dsn, `ALTER TABLE outbox ADD published_at timestamptz, ADD status text NOT NULL DEFAULT 'PENDING', ADD attempts int NOT NULL DEFAULT 0,
		ADD last_error text, ADD created_at timestamptz NOT NULL DEFAULT now()`)
	execute(t, r.dsn, sql.WriteBack())
	execute(t, r.dsn, `CREATE INDEX ON outbox (created_at) WHERE status = 'PENDING'`)
	for key, value := range map[string]string{
		"enabled": "true", "interval": `"100ms"`, "status": `"status"`, "attempts": `"attempts"`, "last_error": `"last_error"`,
	} {
		r.settings["write_back."+key] = value
	}
	return r
}

// requireMarkedOnlyWhatArrived reads the table first: what is marked then is in the topic now.
func (r *rig) requireMarkedOnlyWhatArrived(t testing.TB) (marked int) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT id::text FROM outbox WHERE published_at IS NOT NULL OR status = 'PUBLISHED'`)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	arrived := map[string]bool{}
	for _, record := range r.broker.All(t, "outbox.event."+r.topic) {
		arrived[headerOf(record, "id")] = true
	}
	for _, id := range ids {
		require.True(t, arrived[id], "%s is marked, and was not delivered", id)
	}
	return len(ids)
}

// marked waits until no row is pending, as the query of a poller's dashboard sees it.
func (r *rig) marked(t testing.TB) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	eventually(t, time.Minute, "every row is marked", func() bool {
		var pending int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE status = 'PENDING' AND published_at IS NULL`).Scan(&pending))
		return pending == 0
	})
}

// Relays are killed, two at a time run, and the broker keeps its answers back: nothing is marked that is not in the topic, and in the end everything is.
func TestWriteBack_MarksWhatIsInTheTopicAndNothingElse(t *testing.T) {
	t.Parallel()
	for round := range full(t, 2, 50) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			version := []string{"18", "14"}[round%2]
			r := newRig(t, server(t, version), parts.RealKafka(t)).writesBack(t)
			network := r.throughKafkaProxy(t)
			p, standby := r.started(t), r.start(t)
			eventually(t, time.Minute, "the write-back has begun", func() bool {
				return query[bool](t, r.dsn, "SELECT EXISTS (SELECT FROM postrider_prune)")
			})
			l := r.load(t, 200)
			when := random(t, 100)
			for range 4 {
				l.more(t, 1+when.Int64N(300))
				network.Stall()
				l.more(t, 1+when.Int64N(300))
				r.requireMarkedOnlyWhatArrived(t)
				if when.IntN(2) == 0 {
					p.Kill(t)
					p, standby = standby, r.start(t)
				}
				network.Resume()
				l.more(t, 1+when.Int64N(100))
				r.requireMarkedOnlyWhatArrived(t)
			}
			l.end(t)
			r.caughtUp(t)
			r.marked(t)
			require.Positive(t, r.requireMarkedOnlyWhatArrived(t))
			require.Zero(t, query[int](t, r.dsn, `SELECT count(*) FROM outbox WHERE attempts <> 1 OR last_error IS NOT NULL`))
			requireNothingLost(t, r.judge(t))
			standby.Kill(t)
			p.stop(t)
		})
	}
}

// What is written back is removed later: an update of the relay's own does not make a row look undelivered.
func TestWriteBack_LeavesRowsToPruning(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).writesBack(t)
	for key, value := range map[string]string{"enabled": "true", "retention": `"5s"`, "interval": `"200ms"`} { // longer than a busy machine takes to mark a row
		r.settings["prune."+key] = value
	}
	p := r.started(t)
	eventually(t, time.Minute, "both have begun", func() bool {
		return query[int](t, r.dsn, "SELECT count(*) FROM postrider_prune") == 2
	})
	l := r.load(t, 100)
	l.more(t, 1000)
	l.end(t)
	eventually(t, time.Minute, "every row is removed", func() bool { return query[int](t, r.dsn, "SELECT count(*) FROM outbox") == 0 })
	require.Positive(t, p.metric(t, "postrider_write_back_rows_total", "result", "published"))
	p.stop(t)
	requireNothingLost(t, r.judge(t))
}

// A dead letter and the rows of its parked key are FAILED until they are redriven.
func TestWriteBack_FollowsDeadLetters(t *testing.T) {
	t.Parallel()
	t.Run("at least once", func(t *testing.T) { t.Parallel(); followsDeadLetters(t, newPoisonRig(t, "dead_letter_key")) })
	t.Run("exactly once", func(t *testing.T) { // a dead letter may be committed a moment before that can be read
		t.Parallel()
		p := newPoisonRig(t, "dead_letter_key")
		p.exactlyOnce(t)
		followsDeadLetters(t, p)
	})
}

func followsDeadLetters(t *testing.T, p *poisonRig) {
	p.writesBack(t)
	relay := p.started(t)
	eventually(t, time.Minute, "the write-back has begun", func() bool {
		return query[bool](t, p.dsn, "SELECT EXISTS (SELECT FROM postrider_prune)")
	})
	p.row(t, "good", 1)
	execute(t, p.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number, headers) VALUES ('%s', 'bad', '{}', 1, '[]')`, p.topic))
	p.rows(t, "bad", 2, 3)
	conn := connect(t, p.dsn)
	defer conn.Close(context.WithoutCancel(t.Context()))
	states := func(want ...string) {
		t.Helper()
		var found []string
		defer func() { t.Logf("found %q", found) }() // beside what was waited for in vain
		eventually(t, time.Minute, fmt.Sprint(want), func() bool {
			rows, err := conn.Query(t.Context(), `SELECT concat_ws(' ', aggregate_id, number, status, published_at IS NOT NULL, attempts,
				regexp_replace(last_error, '[0-9a-f]{24}|[^ ]+@[^ ]+ at [^ ]+Z|route event .* index 0', '...', 'g')) FROM outbox ORDER BY aggregate_id, number`)
			require.NoError(t, err)
			found, err = pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			return fmt.Sprint(found) == fmt.Sprint(want)
		})
	}
	poisoned := "dead letter ...: malformed: invalid_headers: ...: column headers, whose members become headers, holds no JSON object"
	states("bad 1 FAILED f 1 "+poisoned, "bad 2 FAILED f 1 dead letter ...: parked", "bad 3 FAILED f 1 dead letter ...: parked", "good 1 PUBLISHED t 1")
	for _, letter := range p.list(t) {
		if letter.Cause == "malformed" {
			_, errs, code := p.cli(t, "deadletter", "discard", letter.ID, "--yes")
			require.Zero(t, code, errs)
		}
	}
	states("bad 1 FAILED f 2 discarded by ...: "+poisoned, "bad 2 FAILED f 1 dead letter ...: parked", "bad 3 FAILED f 1 dead letter ...: parked", "good 1 PUBLISHED t 1")
	_, errs, code := p.cli(t, "deadletter", "redrive", "--key", "bad", "--yes")
	require.Zero(t, code, errs)
	states("bad 1 FAILED f 2 discarded by ...: "+poisoned, "bad 2 PUBLISHED t 2", "bad 3 PUBLISHED t 2", "good 1 PUBLISHED t 1")
	require.Equal(t, []int{2, 3}, p.numbers(t, "bad"))
	relay.stop(t)
}
