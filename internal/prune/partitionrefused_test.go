package prune

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

// TestPruner_LetsRowsIntoPartitionsOfARefusedTable: a killed run left a seal, and a table that it had detached, before
// there was a reason to refuse the table.
func TestPruner_LetsRowsIntoPartitionsOfARefusedTable(t *testing.T) {
	const function = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; "
	for name, c := range map[string]struct {
		sql, why string
		letters  map[string][]string
	}{
		"a trigger for each row":       {sql: function + "CREATE TRIGGER t BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION f()", why: "has a trigger"},
		"a trigger for each statement": {sql: function + "CREATE TRIGGER t AFTER DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION f()", why: "has a trigger"},
		"a rule":                       {sql: "CREATE RULE r AS ON DELETE TO outbox DO INSTEAD NOTHING", why: "has a rule"},
		"a foreign key": {sql: "ALTER TABLE outbox ADD PRIMARY KEY (id, created_at); CREATE TABLE copy (i uuid, c timestamptz, FOREIGN KEY (i, c) REFERENCES outbox)",
			why: "is referenced by a foreign key"},
		"a row filter":           {sql: "ALTER PUBLICATION pub SET TABLE outbox WHERE (created_at IS NOT NULL), plain", why: "has a row filter"},
		"an unnamed dead letter": {letters: map[string][]string{"public.outbox": {""}}, why: "an open dead letter without the id of its row"},
		"pg_partman":             {sql: partmanSQL + "INSERT INTO \"part man\".part_config VALUES ('public.outbox', '7 days')", why: "is pruned by pg_partman"},
	} {
		for _, tables := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d tables", name, tables), func(t *testing.T) {
				t.Parallel()
				r := newPartitionRig(t, "18", false)
				r.exec(t, "CREATE TABLE plain (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), created_at timestamptz NOT NULL); ALTER PUBLICATION pub ADD TABLE plain")
				r.look(t)
				r.leave(t, "outbox_1", "outbox_2")
				r.exec(t, c.sql)
				pruner := r.pruner(t, c.letters)
				pruner.parts.Config.PartitionsAhead = 0
				if tables == 2 {
					pruner.parts.Tables = append(pruner.parts.Tables, Source{Table: "public.plain", ID: "id", Timestamp: "created_at"})
				}
				_, err := pruner.Once(t.Context(), DryRun)
				require.NoError(t, err)
				require.Equal(t, 2, r.seals(t), "a dry run changes nothing")
				report, err := pruner.Once(t.Context(), Save)
				require.NoError(t, err)
				require.Contains(t, report.Tables[0].Refused, c.why)
				if tables == 2 {
					require.Empty(t, report.Tables[1].Refused)
				}
				require.Equal(t, []string{`"public"."outbox_2"`}, report.Tables[0].Partitions.Removed, "its rows were proven to be delivered")
				for _, kept := range report.Tables[0].Partitions.Kept {
					require.Equal(t, `"public"."outbox_1"`, kept.Name, "the reason of the table says it of the others")
				}
				r.requireOpen(t)

				r.leave(t, "outbox_1", "")
				require.NoError(t, pruner.Ahead(t.Context()))
				r.requireOpen(t)
			})
		}
	}
}

// leave has a killed run leave a sealed partition, and a table that it had proven and detached.
func (r *partitionRig) leave(t *testing.T, sealed, detached string) {
	t.Helper()
	run, _ := r.run(t)
	defer postgres.Close(run.conn)
	require.NoError(t, run.seal(t.Context(), r.partition(t, sealed)))
	if detached != "" {
		require.NoError(t, run.seal(t.Context(), r.partition(t, detached)))
		require.NoError(t, run.recordProof(t.Context(), r.partition(t, detached)))
		r.exec(t, "ALTER TABLE outbox DETACH PARTITION "+detached+" CONCURRENTLY")
	}
}

// requireOpen requires that rows come into outbox_1.
func (r *partitionRig) requireOpen(t *testing.T) {
	t.Helper()
	require.Zero(t, r.seals(t))
	r.insert(t, "2026-01-01 12:00", 1)
}

// TestPruner_NamesTheSealThatItMayNotTakeAway: the role is no longer a member of the owner.
func TestPruner_NamesTheSealThatItMayNotTakeAway(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	r.leave(t, "outbox_1", "")
	db := &testdb.DB{T: t, Conn: r.conn, DSN: dsn(t, r.cfg)}
	role := parts.Unique("role")
	r.cfg = db.Role(role)
	defer r.exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	// By pg_read_all_stats it sees the session of the slot, which is the superuser's here.
	r.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON postrider_prune, outbox TO "+role+"; GRANT pg_read_all_stats TO "+role)
	pruner := r.pruner(t, nil)
	report, err := pruner.Once(t.Context(), Save)
	require.NoError(t, err)
	const fix = `ALTER TABLE "public"."outbox_1" DROP CONSTRAINT postrider_pruned`
	refused := report.Tables[0]
	require.Contains(t, refused.Refused, `"public"."outbox_1"`)
	require.Contains(t, refused.Fix, fix+";")
	require.Empty(t, refused.Partitions.Kept, "it does not try")

	// Of a partition alone that belongs to another role.
	r.exec(t, "ALTER TABLE outbox OWNER TO "+role+"; ALTER TABLE outbox_2 OWNER TO "+role+"; ALTER TABLE outbox_3 OWNER TO "+role+"; GRANT SELECT ON outbox_1 TO "+role)
	report, err = pruner.Once(t.Context(), Save)
	require.NoError(t, err)
	require.Empty(t, report.Tables[0].Refused)
	kept := report.Tables[0].Partitions.Kept
	require.Equal(t, `"public"."outbox_1"`, kept[len(kept)-1].Name)
	require.Contains(t, kept[len(kept)-1].Why, fix)

	// A member of the owner that lacks another right takes it away.
	r.exec(t, "ALTER TABLE outbox_1 OWNER TO "+role+"; REVOKE SELECT ON outbox FROM "+role)
	report, err = pruner.Once(t.Context(), Save)
	require.NoError(t, err)
	require.Contains(t, report.Tables[0].Refused, "takes SELECT, DELETE")
	r.requireOpen(t)
}

// TestPruner_LetsRowsInWhateverElseFails: pg_partman's configuration of another table cannot be read.
func TestPruner_LetsRowsInWhateverElseFails(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*Pruner) error{
		"by the daemon":  func(p *Pruner) error { return p.Ahead(t.Context()) },
		"by the command": func(p *Pruner) error { _, err := p.Once(t.Context(), Save); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, false)
			r.leave(t, "outbox_1", "")
			r.exec(t, partmanSQL+`ALTER TABLE "part man".part_config DROP COLUMN retention`)
			require.Equal(t, "42703", postgres.SQLState(act(r.pruner(t, nil))))
			r.requireOpen(t)
		})
	}
}

func TestFinish_IsSilentOverALostConnection(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	run, _ := r.run(t)
	postgres.Close(run.conn)
	require.NoError(t, finish(t.Context(), map[string]*partitionRun{"public.outbox": run}, &Report{}))
}
