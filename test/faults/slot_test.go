package faults

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

func (r *rig) slots(t testing.TB) int {
	t.Helper()
	return query[int](t, r.dsn, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", r.slot)
}

// dropSlot drops the slot under a running relay, and does something more before the relay can notice. A slot in use can't be dropped:
// it ends the walsender, and tries to be quicker than the relay.
func (r *rig) dropSlot(t testing.TB, andThen string) {
	t.Helper()
	conn := parts.Connect(t, r.dsn)
	eventually(t, 30*time.Second, "slot dropped", func() bool {
		_, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend(active_pid, 1000) FROM pg_replication_slots WHERE slot_name = $1", r.slot)
		require.NoError(t, err)
		_, err = conn.PgConn().Exec(t.Context(), "SELECT pg_drop_replication_slot('"+r.slot+"'); "+andThen).ReadAll()
		return err == nil
	})
}

func TestFault11_SlotRecreatedWhileRunningStopsTheRelay(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["snapshot.order_by"] = `"number"`
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)
	// Counters of decoding are how the slot is recognised, and the monitor has to have seen them.
	eventually(t, 30*time.Second, "decoding observed", func() bool {
		return p.metrics(t).Value("postrider_slot_decoded_bytes_total") > 0
	})

	// A row that neither slot sends.
	r.dropSlot(t, "SELECT 1")
	r.backlog(t, 100)
	execute(t, r.dsn, "SELECT pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
	require.Equal(t, 70, p.Wait(t), "exit code")
	require.Contains(t, p.Log.String(), "postrider recover --config ")

	did := r.recover(t, "--publish", "--yes")
	require.EqualValues(t, 100, did.Published)
	p = r.started(t)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 11, "recreated", "exit status 70; 100 rows in the gap, 100 published by recover")
}

func TestFault11_SlotDroppedWhileRunningStopsTheRelay(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)

	began := time.Now()
	r.dropSlot(t, "")
	require.Equal(t, 70, p.Wait(t), "exit code")
	t.Logf("ended after %s", time.Since(began))
	require.Regexp(t, `is lost .*: everything before [0-9A-F]+/[0-9A-F]+ was delivered`, p.Log.String())
	require.Regexp(t, `the gap is from [0-9A-F]+/[0-9A-F]+ to [0-9A-F]+/[0-9A-F]+, \S+ \S+ of WAL`, p.Log.String())
	require.Regexp(t, `at most \d+ rows of public.outbox are in it`, p.Log.String())
	require.Regexp(t, `postrider recover --config \S+ --from-xmin \d+`, p.Log.String(), "what to do next")
	require.Zero(t, r.slots(t), "slot created again without consent")
	requireNothingLost(t, r.judge(t))
}

func TestFault11_SlotDroppedWhileStoppedNeedsConsent(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	execute(t, r.dsn, "SELECT pg_drop_replication_slot('"+r.slot+"')")

	for _, create := range []string{"true", "false"} {
		r.settings["slot.create"] = create
		p = r.start(t)
		require.Equal(t, 78, p.Wait(t), "exit code with slot.create = %s", create)
		require.Contains(t, p.Log.String(), "postrider slot create "+r.slot, "what to do next")
		require.Zero(t, r.slots(t), "slot created again without consent")
	}

	// The consent.
	execute(t, r.dsn, "SELECT pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
	p = r.started(t)
	l = r.load(t, 100)
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
}

func TestFault10_SlotLostStopsTheRelayAndNamesTheGap(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			broker := parts.RealKafka(t)
			parts.Binary(t)
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version,
				Params: map[string]string{"max_slot_wal_keep_size": "1MB", "wal_keep_size": "0", "max_wal_size": "32MB"}})
			r := newRig(t, pg.DSN(), broker)
			r.settings["snapshot.order_by"] = `"number"`
			network := r.throughKafkaProxy(t)
			p := r.started(t)
			l := r.load(t, 100)
			l.more(t, 100)
			r.drained(t, time.Minute)
			network.Stall()
			l.more(t, 100)
			l.end(t)

			conn := parts.Connect(t, r.dsn)
			began := time.Now()
			eventually(t, 30*time.Second, "slot lost", func() bool {
				for _, sql := range []string{"SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT pg_switch_wal()", "CHECKPOINT"} {
					_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
					require.NoError(t, err)
				}
				return query[string](t, r.dsn, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1", r.slot) == "lost"
			})
			require.Equal(t, 70, p.Wait(t), "exit code")
			t.Logf("ended after %s", time.Since(began))
			require.Contains(t, p.Log.String(), "everything before "+r.confirmed(t).String()+" was delivered")
			require.Contains(t, p.Log.String(), "the gap is from "+r.confirmed(t).String()+" to ")
			require.Regexp(t, `at most \d+ rows of public.outbox are in it`, p.Log.String())
			require.Regexp(t, `the last transaction that this process delivered was committed at \d{4}-`, p.Log.String())
			require.Regexp(t, `postrider recover --config \S+`, p.Log.String())
			require.Equal(t, 1, r.slots(t))
			network.Cut() // what the relay had on its way is never written
			network.Resume()

			// A restart changes nothing: the gap stays known until somebody drops the slot.
			p = r.start(t)
			require.Equal(t, 70, p.Wait(t), "exit code")
			require.Contains(t, p.Log.String(), "everything before "+r.confirmed(t).String()+" was delivered")

			require.True(t, r.recover(t, "--publish", "--yes").Recreated)
			p = r.started(t)
			r.drained(t, time.Minute)
			p.stop(t)
			requireExact(t, r.judge(t))
		})
	}
}
