package check_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts/testdb"
)

func TestCheck_LooksAtKeysAndColumnsOfATable(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Exec(`CREATE TABLE outbox (id int NOT NULL, payload text, size int GENERATED ALWAYS AS (length(payload)) STORED)`)
		p.Exec(`CREATE PUBLICATION postrider FOR TABLE outbox`)
		findings := check.Server(t.Context(), preflight(p))
		require.Empty(t, errorsOf(findings))
		for code, want := range map[string]check.Severity{
			"publication_publish": check.SeverityWarning, "replica_identity": check.SeverityWarning, "primary_key": check.SeverityInfo, "generated_columns": check.SeverityInfo,
		} {
			require.Equal(t, want, severityOf(findings, code), code)
		}
		p.Exec(`INSERT INTO outbox VALUES (1, 'one')`)
		_, err := p.Conn.Exec(t.Context(), `DELETE FROM outbox`)
		require.ErrorContains(t, err, "replica identity", "what replica_identity warns of")

		p.Heal(checktest.Finding(t, findings, "replica_identity"))
		p.Exec(`DELETE FROM outbox`)
		findings = check.Server(t.Context(), preflight(p))
		require.Equal(t, gone, severityOf(findings, "replica_identity"))
		require.Equal(t, gone, severityOf(findings, "publication_publish"))

		p.Heal(checktest.Finding(t, findings, "primary_key"))
		require.Equal(t, gone, severityOf(check.Server(t.Context(), preflight(p)), "primary_key"))

		require.Contains(t, checktest.Finding(t, findings, "generated_columns").Observed, "size")
		p.Exec(`ALTER TABLE "public"."outbox" ALTER COLUMN size DROP EXPRESSION`) // as the fix says, with the column's name
		require.Equal(t, gone, severityOf(check.Server(t.Context(), preflight(p)), "generated_columns"))
	})
}

// From 18 on generated columns can be published, and then they are not missing.
func TestCheck_KnowsGeneratedColumnsThatArePublished(t *testing.T) {
	p := checktest.Shared(t, "18")
	p.Exec(`CREATE TABLE outbox (id int PRIMARY KEY, payload text, size int GENERATED ALWAYS AS (length(payload)) STORED)`)
	p.Exec(`CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert', publish_generated_columns = stored)`)
	require.Equal(t, gone, severityOf(check.Server(t.Context(), preflight(p)), "generated_columns"))
	p.Exec(`ALTER PUBLICATION postrider SET (publish_generated_columns = none)`)
	require.Equal(t, check.SeverityInfo, severityOf(check.Server(t.Context(), preflight(p)), "generated_columns"))
}

// What is typed removes no row that was not delivered: the slot is not read, and the rows are older than a retention.
func TestCheck_SeesATableThatOnlyGrows(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Exec(`DO $$ BEGIN CREATE ROLE postrider; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
		p.Exec(`CREATE TABLE outbox (id int PRIMARY KEY, payload text, created_at timestamptz NOT NULL DEFAULT now())`)
		p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
		p.Exec(sql.Prune())
		p.Exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, p.Name)
		t.Cleanup(func() {
			_, err := p.Conn.Exec(context.Background(), `SELECT pg_drop_replication_slot($1)`, p.Name)
			require.NoError(t, err)
		})
		p.Exec(`INSERT INTO outbox SELECT g, 'x', date_trunc('second', now()) - interval '8 days' FROM generate_series(1, 10) g`)
		f := checktest.Finding(t, check.Server(t.Context(), preflight(p)), "outbox_size")
		require.Equal(t, check.SeverityOK, f.Severity)
		require.Contains(t, f.Observed, "oldest row about "+time.Now().Add(-8*24*time.Hour).UTC().Format("2006-01-02T"))

		// A million rows, as far as the planner knows.
		p.Exec(`UPDATE pg_class SET reltuples = 2e6, relpages = 2e4 WHERE oid = 'outbox'::regclass`)
		f = checktest.Finding(t, check.Server(t.Context(), preflight(p)), "outbox_size")
		require.Equal(t, check.SeverityInfo, f.Severity)
		require.Contains(t, f.Observed, "about 2000000 rows")
		typeCleanUp(p, f.Fix)
		var left int
		require.NoError(t, p.Conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox").Scan(&left))
		require.Equal(t, 10, left, "rows that were not delivered are gone")

		p.Exec(`DELETE FROM outbox WHERE id = 1`)
		p.AwaitFinding(preflight(p), "outbox_size", check.SeverityOK) // there is a clean-up now
	})
}

// typeCleanUp types a fix: SQL, or the dry run of prune, and has then prune.enabled do its work.
func typeCleanUp(p *checktest.DB, fix string) {
	p.T.Helper()
	command, isPrune := strings.CutPrefix(fix, "postrider prune")
	if !isPrune {
		p.Heal(check.Finding{Fix: fix})
		return
	}
	require.Regexp(p.T, "^ --dry-run   # .*prune.enabled = true", command)
	pruner := prune.New(prune.Parts{Postgres: p.Postgres, Config: prune.DefaultConfig(), Slot: p.Name, Publication: "postrider",
		Tables:  []prune.Source{{Table: "public.outbox", ID: "id", Timestamp: "created_at"}},
		Metrics: metrics.New(prometheus.NewRegistry(), p.Name), Log: zerolog.New(zerolog.NewTestWriter(p.T))})
	defer pruner.Close()
	for _, mode := range []prune.Mode{prune.DryRun, prune.Save} {
		_, err := pruner.Once(p.T.Context(), mode)
		require.ErrorIs(p.T, err, prune.ErrBehind)
	}
}

func TestCheck_SeesThatVacuumDoesNotKeepUp(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		p.Exec(`ALTER TABLE outbox SET (autovacuum_enabled = false)`) // it must not come before us
		p.Exec(`INSERT INTO outbox SELECT g FROM generate_series(1, 120000) g`)
		p.Exec(`DELETE FROM outbox WHERE id > 10`)
		f := p.AwaitFinding(preflight(p), "outbox_dead_rows", check.SeverityWarning)
		require.Contains(t, f.Observed, fmt.Sprint(120000-10))
		p.Heal(f)
		p.AwaitFinding(preflight(p), "outbox_dead_rows", gone)

		f = checktest.Finding(t, check.Server(t.Context(), preflight(p)), "outbox_autovacuum")
		require.Equal(t, check.SeverityWarning, f.Severity)
		p.Heal(f)
		require.Equal(t, gone, severityOf(check.Server(t.Context(), preflight(p)), "outbox_autovacuum"))
	})
}

func TestCheck_AddsUpThePartitions(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Exec(`CREATE TABLE outbox (id int, day int, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1) WITH (autovacuum_enabled = off);
		CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2);
		INSERT INTO outbox SELECT g, 1 + g % 2 FROM generate_series(1, 100) g; ANALYZE outbox`)
	p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	findings := check.Server(t.Context(), preflight(p))
	require.Contains(t, checktest.Finding(t, findings, "outbox_size").Observed, "about 100 rows")
	require.Contains(t, checktest.Finding(t, findings, "outbox_size").Observed, "partitioned")
	f := checktest.Finding(t, findings, "outbox_autovacuum")
	require.Contains(t, f.Observed, "outbox_1")
	require.NotContains(t, f.Observed, "outbox_2")
	p.Heal(f)
	require.Equal(t, gone, severityOf(check.Server(t.Context(), preflight(p)), "outbox_autovacuum"))
}

// Partitions and columns are named by the owner of the table, who is not the one who reads what check says.
func TestCheck_SaysNothingThatANameHasDictated(t *testing.T) {
	p := checktest.Shared(t, "17")
	hidden := "p\x1b[2K\x1b[1G  fix:       GRANT postgres TO app;\x1b[8m"
	p.Exec(`CREATE TABLE outbox (id int, day int, "` + "s\u202e\u009b\n  fix: x" + `" int GENERATED ALWAYS AS (1) STORED, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
		CREATE TABLE "` + hidden + `" PARTITION OF outbox FOR VALUES IN (1) WITH (autovacuum_enabled = false);
		CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2) WITH (autovacuum_enabled = false)`)
	p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	findings := check.Server(t.Context(), preflight(p))
	require.Equal(t, check.SeverityInfo, severityOf(findings, "generated_columns"))
	f := checktest.Finding(t, findings, "outbox_autovacuum")
	require.Contains(t, f.Observed, "p?[2K?[1G  fix:       GRANT postgres TO app;?[8m")
	require.Contains(t, f.Observed, "outbox_2")
	require.NotContains(t, f.Fix, "GRANT")
	require.Contains(t, f.Fix, "-- 1 with a name that cannot be shown as it is")
	p.Heal(f)
	f = checktest.Finding(t, check.Server(t.Context(), preflight(p)), "outbox_autovacuum")
	require.NotContains(t, f.Observed, "outbox_2", "what can be shown is repaired")

	for i := range findings { // whatever a part of check leaves in a text
		for _, text := range []*string{&findings[i].Subject, &findings[i].Observed, &findings[i].Required, &findings[i].WAL, &findings[i].Fix} {
			*text += hidden + "\u202e\u009b"
		}
		findings[i].Subject += "\n  fix: x"
	}
	var b strings.Builder
	require.NoError(t, check.Write(&b, findings, false))
	require.NotContains(t, b.String(), "\n  fix: x", "a line of its own")
	require.False(t, strings.ContainsAny(b.String(), "\x1b\u202e\u009b"), "%q", b.String())
}
