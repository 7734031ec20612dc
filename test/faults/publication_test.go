package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

const insertOne = "INSERT INTO outbox (aggregate_type, aggregate_id, payload, number) VALUES ('%s', 'unsent', '{}', 1)"

// stopsAfter changes something under the feet of a relay under load, and expects it to stop with a complaint about the publication.
func stopsAfter(t *testing.T, version, complaint string, change func(r *rig) string) (r *rig, p *process) {
	t.Helper()
	r = newRig(t, server(t, version), parts.RealKafka(t))
	p = r.started(t)
	l := r.load(t, 50)
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)

	began := time.Now()
	execute(t, r.dsn, change(r))
	require.Equal(t, 78, p.Wait(t), "exit code")
	t.Logf("PostgreSQL %s: ended after %.1f s", version, time.Since(began).Seconds())
	require.False(t, p.ready())
	require.Contains(t, p.Log.String(), r.publication)
	require.Contains(t, p.Log.String(), complaint)
	return r, p
}

func onOldestAndNewest(t *testing.T, f func(t *testing.T, version string)) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f(t, version)
		})
	}
}

func TestFault12_PublicationDroppedStopsTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r, _ := stopsAfter(t, version, "does not exist", func(r *rig) string {
			return "DROP PUBLICATION " + r.publication + "; " + fmt.Sprintf(insertOne, r.topic)
		})
		// The row above is in the same transaction: neither may be confirmed.
		dropped := query[string](t, r.dsn, "SELECT 'unsent:' || count(*) FROM outbox WHERE aggregate_id = 'unsent'")
		require.Equal(t, "unsent:1", dropped)
		requireExact(t, r.judge(t))
	})
}

func TestFault12_PublicationDroppedConfirmsNothingAfterIt(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		p := r.started(t)
		r.drained(t, time.Minute)
		execute(t, r.dsn, "DROP PUBLICATION "+r.publication)
		execute(t, r.dsn, fmt.Sprintf(insertOne, r.topic))
		after := currentLSN(t, r.dsn)
		require.Equal(t, 78, p.Wait(t), "exit code")
		require.Less(t, r.confirmed(t), after, "a row that was not sent is confirmed")
		require.Zero(t, len(r.broker.All(t, "outbox.event."+r.topic)))
	})
}

func TestFault12_TableRemovedFromPublicationStopsTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r, _ := stopsAfter(t, version, "public.outbox", func(r *rig) string { return "ALTER PUBLICATION " + r.publication + " DROP TABLE outbox" })
		requireExact(t, r.judge(t))
	})
}

func TestFault12_PublicationWithoutInsertStopsTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r, _ := stopsAfter(t, version, "insert", func(r *rig) string { return "ALTER PUBLICATION " + r.publication + " SET (publish = 'update')" })
		requireExact(t, r.judge(t))
	})
}

func TestFault12_TableRecreatedStopsTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r, _ := stopsAfter(t, version, "public.outbox", func(*rig) string { return "DROP TABLE outbox; " + createOutbox })
		requireExact(t, r.judge(t))
	})
}

func TestFault12_TableRecreatedAndPublishedAgainStopsTheRelay(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r, _ := stopsAfter(t, version, "recreated", func(r *rig) string {
			return "DROP TABLE outbox; " + createOutbox + "; ALTER PUBLICATION " + r.publication + " ADD TABLE outbox"
		})
		requireExact(t, r.judge(t))
	})
}
