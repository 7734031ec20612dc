package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// drainMemory bounds the resident memory of a relay with the limits that are set by default and few topics, in bytes: docs/INSTALL.md has 50 MiB, half
// of them pages of the program.
const drainMemory = 96.0 * (1 << 20)

// savepoints commits a transaction with n savepoints, a row in each. A third of the rows is rolled back: with its own savepoint, inside of two others, or
// released and rolled back with an outer one.
func (r *rig) savepoints(t testing.TB, n int) (committed int) {
	t.Helper()
	const keys, each = 20, 9
	rolledBack := 0
	var sql strings.Builder
	insert := func(key string, number int) {
		fmt.Fprintf(&sql, "INSERT INTO outbox (aggregate_type, aggregate_id, payload, number) VALUES ('%s', '%s', '{\"key\": \"%[2]s\", \"number\": %[3]d}', %[3]d); ", r.topic, key, number)
	}
	keep := func() {
		insert(fmt.Sprint("savepoint-", committed%keys), committed/keys+1)
		committed++
	}
	drop := func() {
		rolledBack++
		insert("savepoint-rolled-back", rolledBack)
	}
	do := func(text string) { sql.WriteString(text + "; ") }

	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	flush := func() {
		_, err := conn.PgConn().Exec(t.Context(), sql.String()).ReadAll()
		require.NoError(t, err)
		sql.Reset()
	}
	do("BEGIN")
	for done := 0; done < n; done += each {
		for range 3 {
			do("SAVEPOINT a")
			keep()
			do("RELEASE SAVEPOINT a")
		}
		do("SAVEPOINT a") // the first one of three levels
		keep()
		do("SAVEPOINT b")
		keep()
		do("SAVEPOINT c")
		drop()
		do("ROLLBACK TO SAVEPOINT c; RELEASE SAVEPOINT a")
		do("SAVEPOINT a")
		drop()
		do("SAVEPOINT b")
		drop()
		do("RELEASE SAVEPOINT b; ROLLBACK TO SAVEPOINT a") // it stays open, and what follows is in it
		do("SAVEPOINT d")
		keep()
		do("RELEASE SAVEPOINT a")
		if done/each%50 == 49 {
			flush()
		}
	}
	do("COMMIT")
	flush()
	for i := range committed {
		r.tally.Wrote(fmt.Sprint("savepoint-", i%keys), uint64(i/keys+1))
	}
	return committed
}

func TestFault52_SavepointsOfOneTransaction(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		n := full(t, 500, 100_000)
		r := newRig(t, server(t, version), parts.RealKafka(t))
		delete(r.settings, "relay.in_flight_messages")
		beside := r.slot + "_beside"
		execute(t, r.dsn, "SELECT pg_create_logical_replication_slot('"+beside+"', 'pgoutput')")
		p := r.started(t)
		began := time.Now()
		committed := r.savepoints(t, n)
		written := time.Since(began)
		back := r.caughtUp(t)
		require.Equal(t, 1, p.ask().Relay.Sessions)
		peak := p.peak(t)
		p.stop(t)

		began = time.Now()
		changes := query[int](t, r.dsn, "SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)", beside, r.publication)
		decoded := time.Since(began)
		require.Greater(t, changes, committed, "what the server decodes")
		v := r.judge(t)
		requireExact(t, v)
		require.Equal(t, int64(committed), v.Delivered)
		matrix(t, 52, "", fmt.Sprintf("%d savepoints written in %.1f s, caught up %.2f s later, the server alone decodes them in %.2f s; memory at most %s",
			n, written.Seconds(), back.Seconds(), decoded.Seconds(), mib(peak)))
		require.Less(t, peak, drainMemory, "resident memory")
	})
}
