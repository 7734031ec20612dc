package prune

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

func TestPartition_CreatesAhead(t *testing.T) {
	for _, withDefault := range []bool{false, true} {
		t.Run(fmt.Sprintf("default=%v", withDefault), func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, withDefault)
			today := time.Now().UTC().Truncate(day)
			r.exec(t, "DROP TABLE outbox_1, outbox_2, outbox_3; CREATE INDEX ON outbox (id); ALTER TABLE outbox OWNER TO postrider; GRANT CREATE ON SCHEMA public TO postrider; "+
				fmt.Sprintf("CREATE TABLE outbox_%s PARTITION OF outbox FOR VALUES FROM ('%s+00') TO ('%s+00')",
					today.Format("20060102"), today.Format(time.DateTime), today.Add(day).Format(time.DateTime)))
			created := func() []string {
				run, _ := r.run(t)
				require.NoError(t, run.createAhead(t.Context(), 2))
				require.Empty(t, run.result.Kept)
				return run.result.Created
			}
			want := []string{today.Add(day).Format(`"public"."outbox_20060102"`), today.Add(2 * day).Format(`"public"."outbox_20060102"`)}
			require.Equal(t, want, created())
			require.Empty(t, created())
			for _, name := range want {
				require.Equal(t, "postrider", query[string](t, r.conn, "SELECT tableowner FROM pg_tables WHERE schemaname || tablename = 'public' || $1", name[len(`"public"."`):len(name)-1]))
				require.Equal(t, 1, count(t, r.conn, "SELECT count(*) FROM pg_index WHERE indrelid = $1::text::regclass", name))
			}
			_, err := r.conn.Exec(t.Context(), "INSERT INTO outbox (created_at) VALUES ($1)", today.Add(3*day-time.Second))
			require.NoError(t, err)
			require.Equal(t, 1, count(t, r.conn, "SELECT count(*) FROM "+want[1]))
		})
	}
}

func TestPartition_CreatesAheadOfIDs(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	r.exec(t, "DROP TABLE outbox; CREATE TABLE outbox (id bigint) PARTITION BY RANGE (id); CREATE TABLE outbox_p0 PARTITION OF outbox FOR VALUES FROM (0) TO (10)")
	run, _ := r.run(t)
	require.NoError(t, run.createAhead(t.Context(), 2))
	require.Equal(t, []string{`"public"."outbox_p10"`}, run.result.Created, "outbox_p0 is empty: one of two")
	r.exec(t, "INSERT INTO outbox SELECT generate_series(1, 15)")
	run, _ = r.run(t)
	require.NoError(t, run.createAhead(t.Context(), 2))
	require.Equal(t, []string{`"public"."outbox_p20"`, `"public"."outbox_p30"`}, run.result.Created)
}

func TestPartition_SaysWhyItCreatesNone(t *testing.T) {
	t.Parallel()
	today := time.Now().UTC().Truncate(day)
	ofDay := func(name string, d int) string {
		return fmt.Sprintf("CREATE TABLE %s PARTITION OF outbox FOR VALUES FROM ('%s+00') TO ('%s+00'); ", name,
			today.Add(time.Duration(d)*day).Format(time.DateTime), today.Add(time.Duration(d+1)*day).Format(time.DateTime))
	}
	tomorrow := today.Add(day).Format("20060102")
	for name, c := range map[string]struct {
		sql, why string
		created  int // the one behind that which cannot be
	}{
		"rows in the default partition": {ofDay("outbox_"+today.Format("20060102"), 0) + "CREATE TABLE d PARTITION OF outbox DEFAULT; INSERT INTO outbox (created_at) VALUES ('" +
			today.Add(36*time.Hour).Format(time.DateTime) + "+00')", "rows of its range are in the default partition", 1},
		"a table of the name": {ofDay("outbox_"+today.Format("20060102"), 0) + "CREATE TABLE outbox_" + tomorrow + " ()", "another table has the name", 1},
		"none to continue":    {"", "there is none yet whose range could be continued", 0},
		"irregular ranges": {ofDay("a", 0) + "CREATE TABLE b PARTITION OF outbox FOR VALUES FROM ('" + today.Add(day).Format(time.DateTime) + "+00') TO ('" +
			today.Add(3*day).Format(time.DateTime) + "+00')", "differ in width", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, false)
			r.exec(t, "DROP TABLE outbox_1, outbox_2, outbox_3; "+c.sql)
			run, _ := r.run(t)
			require.NoError(t, run.createAhead(t.Context(), 2))
			require.Len(t, run.result.Created, c.created)
			require.Len(t, run.result.Kept, 1)
			require.Contains(t, run.result.Kept[0].Why, c.why)
		})
	}
}

// TestPartition_GoesOnBehindRowsInTheDefaultPartition: the relay was stopped for two days, and rows of today came.
func TestPartition_GoesOnBehindRowsInTheDefaultPartition(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, true)
	today := time.Now().UTC().Truncate(day)
	r.exec(t, fmt.Sprintf("DROP TABLE outbox_1, outbox_2, outbox_3; CREATE TABLE outbox_%s PARTITION OF outbox FOR VALUES FROM ('%s+00') TO ('%s+00')",
		today.Add(-2*day).Format("20060102"), today.Add(-2*day).Format(time.DateTime), today.Add(-day).Format(time.DateTime)))
	r.insert(t, today.Format(time.DateTime), 1)
	pruner := r.pruner(t, nil)
	report := r.once(t, pruner, Save)
	named := func(days time.Duration) string { return today.Add(days * day).Format(`"public"."outbox_20060102"`) }
	require.Equal(t, []string{named(1), named(2)}, report.Created)
	require.Contains(t, report.Kept[0].Why, "rows of its range are in the default partition")
	require.Equal(t, named(0), report.Kept[0].Name)
	require.Empty(t, r.once(t, pruner, Save).Created)
}

// TestPartition_GoesOnBehindIDsInTheDefaultPartition: no partition was created for a long time, and each run is a process of its own.
func TestPartition_GoesOnBehindIDsInTheDefaultPartition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bound, ids string
		created    []string
		kept       []string // the reasons
	}{
		"many ranges":         {"(0) TO (10)", "SELECT generate_series(1, 500)", []string{"outbox_p510", "outbox_p520", "outbox_p530"}, []string{"rows of its range"}},
		"up to a bound":       {"(0) TO (10)", "SELECT generate_series(1, 499)", []string{"outbox_p500", "outbox_p510", "outbox_p520"}, []string{"rows of its range"}},
		"one far ahead":       {"(0) TO (10)", "VALUES (1), (1000000)", []string{"outbox_p10", "outbox_p20", "outbox_p30"}, nil},
		"the largest":         {"(0) TO (10)", "VALUES (1), (10), (9223372036854775807)", nil, []string{"rows of its range", "there is no larger id"}},
		"more than int64 has": {"(-9223372036854775800) TO (-9223372036854775790)", "VALUES (-9223372036854775800), (-9223372036854775790), (1)", []string{"outbox_10", "outbox_20", "outbox_30"}, []string{"rows of its range"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, false)
			r.exec(t, "DROP TABLE outbox; CREATE TABLE outbox (number bigint) PARTITION BY RANGE (number); CREATE TABLE outbox_p0 PARTITION OF outbox FOR VALUES FROM "+c.bound+
				"; CREATE TABLE outbox_default PARTITION OF outbox DEFAULT; INSERT INTO outbox "+c.ids)
			ahead := func(uncreated postponed[string], ahead int) *PartitionReport {
				run, _ := r.run(t)
				run.uncreated = uncreated
				require.NoError(t, run.createAhead(t.Context(), ahead))
				return run.result
			}
			var created []string
			for n := 1; n <= 3; n++ { // the first attempt is refused
				created = append(created, ahead(postponed[string]{}, n).Created...)
				require.LessOrEqual(t, len(created), n)
			}
			for i := range c.created {
				c.created[i] = `"public"."` + c.created[i] + `"`
			}
			require.Equal(t, c.created, created)
			require.Empty(t, ahead(postponed[string]{}, 3).Created)
			if created != nil {
				r.exec(t, "DROP TABLE "+strings.Join(created, ", "))
			}

			// A daemon knows what was refused.
			uncreated := postponed[string]{}
			for range 2 {
				report := ahead(uncreated, 3)
				require.Equal(t, c.created, report.Created)
				require.Len(t, report.Kept, len(c.kept))
				for i, why := range c.kept {
					require.Contains(t, report.Kept[i].Why, why)
				}
				require.LessOrEqual(t, len(uncreated), 1)
				if report.Created != nil {
					r.exec(t, "DROP TABLE "+strings.Join(report.Created, ", "))
				}
			}
		})
	}
}

// TestPartition_IsNotTriedAgainSoon: each attempt keeps writers out, and reads the default partition.
func TestPartition_IsNotTriedAgainSoon(t *testing.T) {
	t.Parallel()
	today := time.Now().UTC().Truncate(day)
	for name, c := range map[string]struct {
		hinder, free string
		created      []string // by the second run
	}{
		"rows in the default partition": {"INSERT INTO outbox (created_at) VALUES ('" + today.Add(36*time.Hour).Format(time.DateTime) + "+00')",
			"TRUNCATE outbox_default", []string{today.Add(2 * day).Format(`"public"."outbox_20060102"`)}},
		"a large default partition": {"CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); END'; " +
			"CREATE EVENT TRIGGER slow ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION slow()", "DROP EVENT TRIGGER slow", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, true)
			r.exec(t, fmt.Sprintf("DROP TABLE outbox_1, outbox_2, outbox_3; CREATE TABLE outbox_%s PARTITION OF outbox FOR VALUES FROM ('%s+00') TO ('%s+00')",
				today.Format("20060102"), today.Format(time.DateTime), today.Add(day).Format(time.DateTime)))
			r.exec(t, c.hinder)
			pruner := r.pruner(t, nil)
			pruner.parts.Config.PartitionsAhead = 1
			first := r.once(t, pruner, Save)
			require.Empty(t, first.Created)
			require.Len(t, first.Kept, 1)
			r.exec(t, c.free)
			second := r.once(t, pruner, Save)
			require.Equal(t, c.created, second.Created)
			require.Equal(t, first.Kept, second.Kept)
		})
	}
}
