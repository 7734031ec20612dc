package prune

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

// pruner is that of a relay of the table, whose partitions are long past.
func (r *partitionRig) pruner(t *testing.T, letters map[string][]string) *Pruner {
	cfg := DefaultConfig()
	cfg.PartitionsAhead = 2
	pruner := New(Parts{Postgres: r.cfg, Config: cfg, Slot: r.slot, Publication: "pub",
		Tables:      []Source{{Table: "public.outbox", ID: "id", Timestamp: "created_at"}},
		DeadLetters: func(context.Context) (own, foreign map[string][]string, err error) { return letters, nil, nil },
		Metrics:     metrics.New(prometheus.NewRegistry(), r.slot), Log: zerolog.New(zerolog.NewTestWriter(t))})
	t.Cleanup(pruner.Close)
	return pruner
}

func (r *partitionRig) once(t *testing.T, pruner *Pruner, mode Mode) *PartitionReport {
	t.Helper()
	report, err := pruner.Once(t.Context(), mode)
	require.NoError(t, err)
	require.Len(t, report.Tables, 1)
	require.Empty(t, report.Tables[0].Refused)
	return report.Tables[0].Partitions
}

func (r *partitionRig) partitionNames(t *testing.T) []string {
	t.Helper()
	return query[[]string](t, r.conn, "SELECT array_agg(c.relname::text ORDER BY c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE inhparent = 'outbox'::regclass")
}

func TestPruner_TreatsPartitions(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	before := r.partitionNames(t)
	id := "5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01"
	letters := map[string][]string{"public.outbox_2": {id}}
	pruner := r.pruner(t, letters)
	dry := r.once(t, pruner, DryRun)
	require.Len(t, dry.Created, 3, "that of today, and two ahead")
	require.Equal(t, before, r.partitionNames(t), "a dry run changes nothing")

	tomorrow := time.Now().UTC().Add(day)
	report := r.once(t, pruner, Save)
	require.Equal(t, []string{tomorrow.Format(`"public"."outbox_20060102"`), tomorrow.Add(day).Format(`"public"."outbox_20060102"`)}, report.Created[len(report.Created)-2:])
	require.Len(t, report.Removed, 3, "partitions without rows")
	require.Zero(t, r.seals(t))

	// Rows of a day, of which one has an open dead letter.
	for d := 1; d <= 2; d++ {
		r.exec(t, fmt.Sprintf("CREATE TABLE outbox_%[1]d PARTITION OF outbox FOR VALUES FROM ('2026-01-%02[1]d 00:00+00') TO ('2026-01-%02[2]d 00:00+00')", d, d+1))
	}
	r.look(t)
	r.exec(t, "INSERT INTO outbox VALUES ('"+id+"', '2026-01-02 12:00+00')")
	r.insert(t, "2026-01-01 12:00", 5)
	r.insert(t, "2026-01-02 13:00", 5)
	var dried *PartitionReport
	parts.Await(t, "rows to be proven", func() (bool, error) {
		dried = r.once(t, r.pruner(t, letters), DryRun)
		return len(dried.Removed) == 1, nil
	})
	require.Equal(t, []string{`"public"."outbox_1"`}, dried.Removed)
	require.Equal(t, []KeptPartition{{`"public"."outbox_2"`, "1 of its rows have an open dead letter"}}, dried.Kept)
	require.Equal(t, 11, count(t, r.conn, "SELECT count(*) FROM outbox"))
	report = r.once(t, r.pruner(t, letters), Save)
	require.Equal(t, dried.Removed, report.Removed)
	require.Equal(t, dried.Kept, report.Kept)
	require.Equal(t, 6, count(t, r.conn, "SELECT count(*) FROM outbox"))
	require.Len(t, r.once(t, r.pruner(t, nil), Save).Removed, 1, "redriven")
}

// The coverage of a partition is by its OID, and a dead letter has the name of then: of the table, or of the partition.
func TestPruner_KeepsPartitionsWithOpenDeadLettersOfARenamedTable(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	pruner := func(letters map[string][]string) *Pruner {
		pruner := r.pruner(t, letters)
		pruner.parts.Tables[0].Table = "public.outbox2"
		return pruner
	}
	const first, second = "5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01", "5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c02"
	letters := map[string][]string{"public.outbox": {first}, "public.outbox_2": {second}}
	r.look(t)
	r.exec(t, "INSERT INTO outbox VALUES ('"+first+"', '2026-01-01 12:00+00'), ('"+second+"', '2026-01-02 12:00+00')")
	r.insert(t, "2026-01-03 12:00", 1)
	r.exec(t, "ALTER TABLE outbox RENAME TO outbox2; ALTER TABLE outbox_2 RENAME TO outbox2_2")
	var removed []string
	parts.Await(t, "the rows to be proven", func() (bool, error) {
		report := r.once(t, pruner(letters), Save)
		removed = append(removed, report.Removed...)
		return len(removed) > 0, nil
	})
	require.Equal(t, []string{`"public"."outbox_3"`}, removed)
	require.Equal(t, []KeptPartition{{`"public"."outbox_1"`, "1 of its rows have an open dead letter"},
		{`"public"."outbox2_2"`, "1 of its rows have an open dead letter"}}, r.once(t, pruner(letters), DryRun).Kept)
	require.Len(t, r.once(t, pruner(nil), Save).Removed, 2, "redriven")
}

// A partition that is published under its own name may have a key that the table does not have, as by a template of
// pg_partman, and a letter names its row by that.
func TestPruner_KeepsPartitionsWithRowsThatALetterNamesByTheirOwnKey(t *testing.T) {
	for name, own := range map[string]string{
		"primary key":      "ALTER TABLE outbox_1 ADD PRIMARY KEY (number)",
		"replica identity": "CREATE UNIQUE INDEX u ON outbox_1 (number); ALTER TABLE outbox_1 REPLICA IDENTITY USING INDEX u",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, false)
			r.exec(t, "ALTER PUBLICATION pub SET (publish_via_partition_root = false); ALTER TABLE outbox ADD number text NOT NULL DEFAULT gen_random_uuid(); "+own)
			r.look(t)
			r.exec(t, "INSERT INTO outbox (created_at, number) VALUES ('2026-01-01 12:00+00', 'the letter''s')")
			r.insert(t, "2026-01-02 12:00", 1)
			pruner := r.pruner(t, map[string][]string{"public.outbox_1": {"the letter's"}})
			var report *PartitionReport
			parts.Await(t, "the other partitions to go", func() (bool, error) {
				report = r.once(t, pruner, Save)
				return !slices.Contains(r.partitionNames(t), "outbox_2"), nil
			})
			require.Equal(t, "outbox_1", r.partitionNames(t)[0])
			require.Contains(t, report.Kept, KeptPartition{`"public"."outbox_1"`, "1 of its rows have an open dead letter"})
			require.Len(t, r.pruneUntil(t, 1).Removed, 1, "redriven")
		})
	}
}

// TestPruner_ReportsTheGapsOfPartitionsAsLongAsTheyHaveRows: what stays is named once, with a way out.
func TestPruner_ReportsTheGapsOfPartitionsAsLongAsTheyHaveRows(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	r.insert(t, "2026-01-01 12:00", 5)
	r.insert(t, "2026-01-02 12:00", 5)
	pruner := r.pruner(t, nil)
	gaps := func(mode Mode) int {
		report, err := pruner.Once(t.Context(), mode)
		require.NoError(t, err)
		pruner.record(report, err)
		require.EqualValues(t, len(report.Tables[0].Gaps), testutil.ToFloat64(pruner.parts.Metrics.PruneGaps))
		return len(report.Tables[0].Gaps)
	}
	require.Equal(t, 1, gaps(Save), "of both partitions")
	require.Equal(t, []string{"outbox_1", "outbox_2"}, r.partitionNames(t)[:2], "their rows are not proven to be delivered")
	require.Zero(t, gaps(Accept))
	parts.Await(t, "the partitions to go", func() (bool, error) {
		require.Zero(t, gaps(Save))
		return !slices.Contains(r.partitionNames(t), "outbox_1"), nil
	})
}

// TestPruner_KeepsPartitionsFromBeforeARewrite, whose rows have another xmin, until they count as delivered.
func TestPruner_KeepsPartitionsFromBeforeARewrite(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	r.exec(t, "DROP TABLE outbox_3")
	r.look(t)
	r.insert(t, "2026-01-01 12:00", 5)
	pruner := r.pruner(t, nil)
	parts.Await(t, "the rows to be proven", func() (bool, error) {
		return slices.Contains(r.once(t, pruner, DryRun).Removed, `"public"."outbox_1"`), nil
	})
	r.exec(t, "ALTER TABLE outbox ALTER payload TYPE text")
	var report *PartitionReport
	parts.Await(t, "the partition without rows to go", func() (bool, error) {
		report = r.once(t, pruner, Save)
		return !slices.Contains(r.partitionNames(t), "outbox_2"), nil
	})
	require.Contains(t, report.Kept, KeptPartition{`"public"."outbox_1"`, "5 of its rows are not proven to be delivered"})
	r.once(t, pruner, Accept)
	parts.Await(t, "the partition to go", func() (bool, error) {
		r.once(t, pruner, Save)
		return !slices.Contains(r.partitionNames(t), "outbox_1"), nil
	})
}

// TestPruner_NoticesATableThatIsPartitionedMeanwhile: it was an ordinary one when the run began.
func TestPruner_NoticesATableThatIsPartitionedMeanwhile(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	pruner := r.pruner(t, nil)
	require.NoError(t, pruner.connect(t.Context()))
	err := pruner.remove(t.Context(), DryRun, &Report{}, map[string]*partitionRun{})
	require.ErrorIs(t, err, errChanged)
	require.ErrorContains(t, err, "public.outbox")
}

// TestPruner_WithoutARelayCreatesPartitionsAndLetsRowsIn: what a killed run has left is finished, and nothing else removed.
func TestPruner_WithoutARelayCreatesPartitionsAndLetsRowsIn(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, p *Pruner){
		"by the daemon":  func(t *testing.T, p *Pruner) { require.NoError(t, p.Ahead(t.Context())) },
		"by the command": func(t *testing.T, p *Pruner) { _, err := p.Once(t.Context(), Save); require.ErrorIs(t, err, ErrBehind) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, false)
			r.look(t)
			r.insert(t, "2026-01-01 12:00", 5)
			run, _ := r.run(t)
			require.NoError(t, run.seal(t.Context(), r.partition(t, "outbox_1")))
			require.NoError(t, run.recordProof(t.Context(), r.partition(t, "outbox_1")))
			require.NoError(t, run.seal(t.Context(), r.partition(t, "outbox_2")))
			postgres.Close(run.conn)
			r.exec(t, "ALTER TABLE outbox DETACH PARTITION outbox_1 CONCURRENTLY")
			r.relay.stop()
			r.exec(t, "INSERT INTO outbox (created_at) VALUES ('2026-01-03 12:00+00')")
			act(t, r.pruner(t, nil))
			require.Zero(t, r.seals(t))
			names := r.partitionNames(t)
			require.Equal(t, []string{"outbox_2", "outbox_3"}, names[:2])
			require.Contains(t, names, time.Now().UTC().Add(2*day).Format("outbox_20060102"))
			r.insert(t, "2026-01-02 12:00", 1)
		})
	}
}
