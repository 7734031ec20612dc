package faults

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

const (
	partitionWidth  = 2 * time.Second
	partitionsAhead = 60 // enough for two minutes without a relay that makes more
)

// prunedPartitions replaces the table by one with a partition for every two seconds, which the relay creates and removes.
func (r *rig) prunedPartitions(t *testing.T, viaRoot, withDefault bool) {
	t.Helper()
	execute(t, r.dsn, "SELECT pg_drop_replication_slot('"+r.slot+"')")
	first := query[time.Time](t, r.dsn, "SELECT now()").UTC().Truncate(partitionWidth)
	execute(t, r.dsn, fmt.Sprintf(`DROP TABLE outbox; CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), created_at timestamptz NOT NULL DEFAULT now(),
		aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL DEFAULT 'changed', payload jsonb NOT NULL, number bigint NOT NULL)
		PARTITION BY RANGE (created_at); CREATE INDEX ON outbox (created_at);
		CREATE TABLE outbox_first PARTITION OF outbox FOR VALUES FROM ('%s+00') TO ('%s+00');
		ALTER PUBLICATION %s SET (publish_via_partition_root = %v); ALTER PUBLICATION %[3]s ADD TABLE outbox;
		DO $$ BEGIN CREATE ROLE postrider; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`,
		first.Format(time.DateTime), first.Add(partitionWidth).Format(time.DateTime), r.publication, viaRoot))
	execute(t, r.dsn, sql.Prune())
	if withDefault {
		execute(t, r.dsn, "CREATE TABLE outbox_default PARTITION OF outbox DEFAULT")
	}
	execute(t, r.dsn, "SELECT pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
	r.settings["prune.enabled"], r.settings["prune.interval"], r.settings["prune.retention"] = "true", `"200ms"`, `"1s"`
	r.settings["prune.partitions_ahead"] = strconv.Itoa(partitionsAhead)
}

// removedPartitions is how many the relay has removed so far.
func removedPartitions(relays []*process) (n int) {
	for _, p := range relays {
		n += p.Log.Count("partition removed: ")
	}
	return n
}

// TestFault42_PruneRemovesPartitionsUnderLoad: the relay creates and removes partitions while rows are written, and is killed meanwhile. Every row is in the
// topic, though nearly all of the table is gone. The log has how long inserts took.
func TestFault42_PruneRemovesPartitionsUnderLoad(t *testing.T) {
	t.Parallel()
	parts.Binary(t)
	for i, c := range []struct {
		version              string
		viaRoot, withDefault bool
	}{{"14", true, false}, {"18", false, false}, {"17", true, true}} {
		t.Run(fmt.Sprintf("%s/via_root=%v/default=%v", c.version, c.viaRoot, c.withDefault), func(t *testing.T) {
			t.Parallel()
			random := random(t, uint64(4711+i))
			r := newRig(t, server(t, c.version), parts.RealKafka(t))
			r.prunedPartitions(t, c.viaRoot, c.withDefault)
			relays := []*process{r.started(t)}
			eventually(t, time.Minute, "partitions ahead", func() bool {
				return query[int](t, r.dsn, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass") > partitionsAhead
			})
			stop, end := context.WithCancel(t.Context())
			times := make(chan []time.Duration, 1)
			go func() { times <- r.insertSingly(stop, t) }() // ends with stop
			kills := full(t, 1, 50)
			for n := range kills {
				want := removedPartitions(relays) + 2
				eventually(t, 2*time.Minute, "partitions removed", func() bool {
					r.backlog(t, 200)
					return removedPartitions(relays) >= want
				})
				if n%2 == 0 {
					r.backlog(t, 100*random.IntN(10))
				}
				relays[len(relays)-1].Kill(t)
				relays = append(relays, r.started(t))
			}
			want := removedPartitions(relays) + 2
			eventually(t, 2*time.Minute, "partitions removed", func() bool { return removedPartitions(relays) >= want })
			end()
			took := <-times
			r.drained(t, time.Minute)
			relays[len(relays)-1].stop(t)
			requireNothingLost(t, r.judge(t))
			slices.Sort(took)
			matrix(t, 42, "", fmt.Sprintf("%d kills, %d partitions removed; of %d inserts the median took %s, 99 %% less than %s, the longest %s", kills, removedPartitions(relays),
				len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1]))
		})
	}
}

// insertSingly inserts one row after the other, of a key of its own, and returns how long each took.
func (r *rig) insertSingly(ctx context.Context, t *testing.T) (took []time.Duration) {
	conn, err := pgx.Connect(t.Context(), r.dsn)
	if err != nil {
		t.Error(err)
		return took
	}
	defer conn.Close(context.Background())
	for number := uint64(1); ctx.Err() == nil; number++ {
		began := time.Now()
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
			VALUES ($1, 'single', jsonb_build_object('key', 'single', 'number', $2::bigint), $2)`, r.topic, int64(number))
		if err != nil {
			t.Error(err)
			return took
		}
		took = append(took, time.Since(began))
		r.tally.Wrote("single", number)
		<-time.After(5 * time.Millisecond) // the rate, not a wait
	}
	return took
}
