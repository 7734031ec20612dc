package prune

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

func TestPartition_RemovesWhatIsOldAndDelivered(t *testing.T) {
	for _, version := range versions {
		for _, withDefault := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/default=%v", version, withDefault), func(t *testing.T) {
				t.Parallel()
				r := newPartitionRig(t, version, withDefault)
				r.look(t)
				for day := 1; day <= 3; day++ {
					r.insert(t, fmt.Sprintf("2026-01-%02d 12:00", day), 5)
				}
				result := r.pruneUntil(t, 2)
				require.Equal(t, []string{`"public"."outbox_1"`, `"public"."outbox_2"`}, result.Removed, "%v", result.Kept)
				require.Equal(t, 5, count(t, r.conn, "SELECT count(*) FROM outbox"))
				require.Nil(t, query[*string](t, r.conn, "SELECT to_regclass('outbox_1')::text"))
				require.Len(t, r.relay.rows(), 15)
			})
		}
	}
}

// TestPartition_KeepsWhatIsNotCovered: rows of before the first look are in no message of this slot.
func TestPartition_KeepsWhatIsNotCovered(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	r.insert(t, "2026-01-01 12:00", 5)
	r.look(t)
	r.insert(t, "2026-01-01 13:00", 5)
	r.insert(t, "2026-01-02 12:00", 5)
	result := r.pruneUntil(t, 1)
	require.Equal(t, []string{`"public"."outbox_2"`}, result.Removed)
	require.Equal(t, []KeptPartition{{`"public"."outbox_1"`, "5 of its rows are not proven to be delivered"}}, result.Kept)
	require.Zero(t, r.seals(t))
}

// TestPartition_RemovesRangesOfIDs when all rows, and one behind them, were committed before the retention began. The
// last partition stays, however old: the next id belongs to it.
func TestPartition_RemovesRangesOfIDs(t *testing.T) {
	for keyType, bounds := range map[string][4]string{
		"bigint": {"0", "10", "20", "30"},
		"uuid": {"01900000-0000-7000-8000-000000000000", "01910000-0000-7000-8000-000000000000", "01920000-0000-7000-8000-000000000000",
			"01930000-0000-7000-8000-000000000000"},
	} {
		t.Run(keyType, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, false)
			r.exec(t, "DROP TABLE outbox; CREATE TABLE outbox (id "+keyType+" NOT NULL) PARTITION BY RANGE (id); ALTER PUBLICATION pub ADD TABLE outbox")
			for i := range 3 {
				r.exec(t, fmt.Sprintf("CREATE TABLE outbox_p%d PARTITION OF outbox FOR VALUES FROM ('%s') TO ('%s')", i, bounds[i], bounds[i+1]))
			}
			prune := func(cutoff time.Time) *PartitionReport {
				run, prover := r.run(t)
				defer postgres.Close(run.conn)
				prover.retention = time.Millisecond // so that each look leaves a mark
				require.NoError(t, run.looked(t.Context(), prover, "", ""))
				run.cutoff = cutoff
				require.NoError(t, run.whole(t.Context(), 0))
				return run.result
			}
			now := func() time.Time { return query[time.Time](t, r.conn, "SELECT clock_timestamp()") }
			prune(now())
			before := now()
			for i := range 3 {
				r.exec(t, "INSERT INTO outbox VALUES ('"+bounds[i]+"')")
			}
			require.Empty(t, prune(before).Removed)
			var removed []string
			parts.Await(t, "two partitions to be removed", func() (bool, error) {
				removed = append(removed, prune(now()).Removed...)
				return len(removed) == 2, nil
			})
			require.Equal(t, []string{`"public"."outbox_p0"`, `"public"."outbox_p1"`}, removed)
			require.Empty(t, prune(now().Add(time.Hour)).Removed)
			require.Equal(t, 1, count(t, r.conn, "SELECT count(*) FROM outbox"))
		})
	}
}
