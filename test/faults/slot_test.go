package faults

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/embedded"
	"postrider/test/parts"
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

func TestFault11_SlotMadeAnewWhileRunningSaysWhichPositionsAreSkipped(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)

	r.dropSlot(t, "SELECT pg_logical_emit_message(false, 'x', 'y'), pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
	eventually(t, 30*time.Second, "warning in the log", func() bool {
		p.requireRunning(t)
		return p.said.count("slot was moved on by somebody else") > 0
	})
	p.streams(t, 30*time.Second)
	p.stop(t)
	requireNothingLost(t, r.judge(t))
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
	require.Equal(t, 70, p.ended(t, 30*time.Second), "exit code")
	t.Logf("ended after %s", time.Since(began))
	require.Regexp(t, `is lost .*: everything before [0-9A-F]+/[0-9A-F]+ was delivered`, p.said.String())
	require.Contains(t, p.said.String(), "postrider slot create "+r.slot, "what to do next")
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
		require.Equal(t, 78, p.ended(t, 30*time.Second), "exit code with slot.create = %s", create)
		require.Contains(t, p.said.String(), "postrider slot create "+r.slot, "what to do next")
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
			network := r.throughKafkaProxy(t)
			p := r.started(t)
			l := r.load(t, 100)
			l.more(t, 100)
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
			require.Equal(t, 70, p.ended(t, 60*time.Second), "exit code")
			t.Logf("ended after %s", time.Since(began))
			require.Contains(t, p.said.String(), "everything before "+r.confirmed(t).String()+" was delivered")
			require.Equal(t, 1, r.slots(t))

			network.Resume()
			v := r.judge(t)
			require.Zero(t, v.OutOfOrder)
			require.Zero(t, v.Phantom)

			// A restart changes nothing: the gap stays known until somebody drops the slot.
			p = r.start(t)
			require.Equal(t, 70, p.ended(t, 30*time.Second), "exit code")
			require.Contains(t, p.said.String(), "everything before "+r.confirmed(t).String()+" was delivered")
		})
	}
}
