package pages

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

const outbox = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL,
	payload jsonb, created_at timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON outbox (created_at)`

func TestPruning_DoesWhatThePageSays(t *testing.T) {
	t.Parallel()
	p, s := open(t, "PRUNING.md"), newSite(t, outbox)
	s.configure("")
	s.start().Stop(t)
	s.insert(5) // nothing proves that they were delivered
	s.psql(p.inline("psql -v ON_ERROR_STOP=1 -f sql/prune.sql"))
	s.configure(p.block("[prune]"))
	s.execAs(s.app, p.block("ALTER TABLE outbox SET (autovacuum"))
	p.benchmark("prunebench_test.go")
	r := s.start()
	require.Regexp(t, `public\.outbox +5 +0 +0 +0 `, s.run(p.inline("postrider prune --dry-run")))
	require.Contains(t, s.run("postrider prune"), "are kept: it is not proven that the slot sends them")

	// The retention of the page is a day.
	s.insert(10)
	r.Stop(t)
	r = s.start("POSTRIDER_PRUNE_INTERVAL=100ms")
	p.exports(s, r, "postrider_prune_", "postrider_prune_last_autovacuum_timestamp_seconds") // none comes
	r.Stop(t)
	r = s.start("POSTRIDER_PRUNE_RETENTION=1ms", "POSTRIDER_PRUNE_INTERVAL=100ms")
	parts.Await(t, "the delivered rows to go", func() (bool, error) { return s.count(`SELECT count(*) FROM outbox`) == 5, nil })
	r.Stop(t)
	s.run(p.inline("postrider recover"))
	s.start("POSTRIDER_PRUNE_RETENTION=1ms", "POSTRIDER_PRUNE_INTERVAL=100ms")
	require.Contains(t, s.run(p.inline("postrider prune --accept-gap"), "--yes"), "REMOVED")
	parts.Await(t, "all rows to go", func() (bool, error) { return s.count(`SELECT count(*) FROM outbox`) == 0, nil })
}

func TestPruning_TreatsPartitionsAsThePageSays(t *testing.T) {
	t.Parallel()
	p := open(t, "PRUNING.md")
	p.unused = nil // the test of the whole page has them
	s := newSite(t, `CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL,
		payload jsonb, created_at timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (created_at);
		CREATE TABLE outbox_20260101 PARTITION OF outbox FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-01-02 00:00+00')`)
	s.psql("psql -v ON_ERROR_STOP=1 -f sql/prune.sql")
	s.exec(`ALTER ROLE app RENAME TO outbox_owner`)
	s.configure("[prune]\nenabled = true\ninterval = \"100ms\"\n")

	// As a run leaves it that was killed, with no run to follow.
	const late = `INSERT INTO outbox (aggregate_type, aggregate_id, payload, created_at) VALUES ('order', '1', '{}', '2026-01-01 12:00+00')`
	s.execAs(s.app, "ALTER TABLE outbox_20260101 "+p.inline("ADD CONSTRAINT postrider_pruned CHECK (false) NOT VALID"))
	_, err := s.app.Exec(t.Context(), late)
	require.ErrorContains(t, err, p.inline(`violates check constraint "postrider_pruned"`))
	s.execAs(s.app, p.inline("ALTER TABLE outbox_20260101 DROP CONSTRAINT postrider_pruned;"))

	r := s.start()
	r.AwaitLog(t, "rows are not pruned")
	require.Contains(t, r.Log.String(), `GRANT \"outbox_owner\" TO \"postrider\"`)
	s.exec(p.inline("GRANT outbox_owner TO postrider;"))
	parts.Await(t, "the old partition to go", func() (bool, error) {
		return s.count(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_20260101'`) == 0, nil
	})
	require.GreaterOrEqual(t, s.count(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass AND pg_get_userbyid((SELECT relowner
		FROM pg_class WHERE oid = inhrelid)) = 'outbox_owner'`), 3, "partitions_ahead, of the owner of the table")
	s.insert(1) // into one of them
}
