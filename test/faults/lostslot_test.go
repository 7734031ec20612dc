package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// recovered is what `postrider recover --json` prints.
type recovered struct {
	State       string `json:"state"`
	BySlot      int64  `json:"by_slot"`
	Undelivered int64  `json:"undelivered"`
	Published   int64  `json:"published"`
	Recreated   bool   `json:"recreated"`
	Refusal     string `json:"refusal"`
	Tables      []struct {
		Rows      int64 `json:"rows"`
		Delivered int64 `json:"delivered"`
	} `json:"tables"`
}

// startRecover starts postrider recover with the relay's configuration.
func (r *rig) startRecover(t testing.TB, args ...string) *parts.Relay {
	t.Helper()
	file := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(file, []byte(r.config("127.0.0.1:0")), 0o600))
	return parts.StartRelay(t, parts.RelayConfig{}, append([]string{"recover", "--config", file}, args...)...)
}

// recover runs postrider recover, which has to end with 0.
func (r *rig) recover(t testing.TB, args ...string) (out recovered) {
	t.Helper()
	began := time.Now()
	p := r.startRecover(t, append(args, "--json")...)
	code := p.Wait(t)
	t.Logf("recover %v took %s:\n%s%s", args, time.Since(began), p.Log.String(), p.Stdout.String())
	require.Zero(t, code)
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &out))
	return out
}

// requireSlots is that nobody has left slots behind.
func (r *rig) requireSlots(t testing.TB, n int) {
	t.Helper()
	require.Equal(t, n, query[int](t, r.dsn, "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"))
}

// removeWAL writes until the server has given up the slot.
func (r *rig) removeWAL(t testing.TB) {
	t.Helper()
	conn := parts.Connect(t, r.dsn)
	for _, sql := range []string{"ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()"} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	eventually(t, 60*time.Second, "slot lost", func() bool {
		for _, sql := range []string{"SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT pg_switch_wal()", "CHECKPOINT"} {
			_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
		}
		return query[string](t, r.dsn, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1", r.slot) == "lost"
	})
}

// gap delivers some rows, commits others that are not delivered, loses the slot by the server's settings, and returns the rig.
func gap(t testing.TB, version string, params map[string]string, delivered, undelivered int, lose func(*rig)) *rig {
	t.Helper()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: params})
	r := newRig(t, pg.DSN(), broker)
	r.settings["snapshot.order_by"] = `"number"`
	p := r.started(t)
	conn := parts.Connect(t, r.dsn)
	for written := 0; written < delivered; {
		n := min(10_000, delivered-written)
		r.insertBulk(t, conn, n/bulkKeys)
		written += n
	}
	r.drained(t, 10*time.Minute)
	p.stop(t)
	r.backlog(t, undelivered)
	lose(r)
	return r
}

// smallLimit lets a checkpoint remove what removeWAL has written.
var smallLimit = map[string]string{"wal_keep_size": "0", "max_wal_size": "32MB"}

func TestFault10_RecoverPublishesExactlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "17", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rows, undelivered := 2000, 100
			if *long && version == "18" {
				rows, undelivered = 1_000_000, 10_000
			}
			r := gap(t, version, smallLimit, rows-undelivered, undelivered, func(r *rig) { r.removeWAL(t) })
			matrix(t, 10, version, recoverExactly(t, r, rows, undelivered))
		})
	}
}

func TestFault10_RecoverAfterTheIdleTimeout(t *testing.T) {
	t.Parallel()
	r := gap(t, "18", map[string]string{"idle_replication_slot_timeout": "1s"}, 300, 100, func(r *rig) {
		conn := parts.Connect(t, r.dsn)
		eventually(t, time.Minute, "slot lost", func() bool {
			_, err := conn.Exec(t.Context(), "CHECKPOINT")
			require.NoError(t, err)
			return query[string](t, r.dsn, "SELECT coalesce(invalidation_reason, '') FROM pg_replication_slots WHERE slot_name = $1", r.slot) == "idle_timeout"
		})
	})
	p := r.start(t)
	require.Equal(t, 70, p.Wait(t), "exit code")
	require.Regexp(t, `is lost \(idle_timeout\): everything before `+r.confirmed(t).String()+` was delivered`, p.Log.String())
	require.Contains(t, p.Log.String(), "the gap is from "+r.confirmed(t).String()+" to ")
	execute(t, r.dsn, "ALTER SYSTEM SET idle_replication_slot_timeout = 0")
	execute(t, r.dsn, "SELECT pg_reload_conf()")
	matrix(t, 10, "idle timeout", recoverExactly(t, r, 400, 100))
}

// recoverExactly is a dry run, a recovery, another one, and a relay that goes on.
func recoverExactly(t testing.TB, r *rig, rows, undelivered int) (figures string) {
	t.Helper()
	dry := r.recover(t)
	require.EqualValues(t, undelivered, dry.Undelivered)
	require.Zero(t, dry.Published)
	all := r.recover(t, "--from-xmin", "3") // as if the slot could not tell what it had delivered
	require.EqualValues(t, rows, all.Tables[0].Rows)
	require.EqualValues(t, undelivered, all.Undelivered)
	r.requireSlots(t, 1)

	did := r.recover(t, "--publish", "--yes")
	require.EqualValues(t, undelivered, did.Published)
	require.True(t, did.Recreated)
	r.requireSlots(t, 1)

	again := r.recover(t, "--publish", "--yes")
	require.Equal(t, "usable", again.State)
	require.Zero(t, again.Published, "published twice")

	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
	return fmt.Sprintf("%d rows in the table, %d of them not delivered: %d published by recover, %d by recover again", rows, undelivered, did.Published, again.Published)
}

// The slot is gone and cannot tell what it had delivered, writers go on, and the first recovery is killed.
func TestFault10_RecoverIsRepeatedAfterAKillWhileWritersGoOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["snapshot.order_by"] = `"number"`
	p := r.started(t)
	l := r.load(t, 200)
	l.more(t, 300)
	p.stop(t)
	execute(t, r.dsn, "SELECT pg_drop_replication_slot('"+r.slot+"')")
	r.backlog(t, 3000)
	l.more(t, 300)

	network := r.throughKafkaProxy(t)
	r.settings["relay.in_flight_messages"] = "100" // as many chunks as it takes to be killed between two
	before := sum(r.broker.EndOffsets(t, "outbox.event."+r.topic))
	killed := r.startRecover(t, "--publish", "--yes")
	eventually(t, 30*time.Second, "some rows recovered", func() bool {
		return sum(r.broker.EndOffsets(t, "outbox.event."+r.topic)) > before
	})
	network.Stall()
	killed.Kill(t)
	require.Error(t, killed.Err, "it had ended before it was killed: %s", &killed.Log)
	network.Cut()
	network.Resume()
	r.requireSlots(t, 1)

	l.more(t, 300)
	did := r.recover(t, "--publish", "--yes")
	require.True(t, did.Recreated)
	require.Positive(t, did.Published)
	require.Positive(t, did.BySlot, "rows that were committed after the first recovery had made its slot")
	r.requireSlots(t, 1)
	l.more(t, 300)
	p = r.started(t)
	l.more(t, 300)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
}

func sum(offsets map[int32]int64) (n int64) {
	for _, offset := range offsets {
		n += offset
	}
	return n
}
