package faults

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// restored is a server and another one, not yet running, that stands for what becomes of it: the relay knows both addresses.
func restored(t testing.TB) (r *rig, pg, other *embedded.Postgres, otherDSN string) {
	t.Helper()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	pg = parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	other = parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	require.NoError(t, other.Stop(t.Context()))
	r = newRig(t, pg.DSN(), broker)
	otherDSN = at(t, r.dsn, other.DSN())
	r.url = severalHosts(t, r.dsn, otherDSN)
	return r, pg, other, otherDSN
}

// refuses waits until the relay has ended because of what it said, and requires that it left the slot of the server that it found alone.
func (r *rig) refuses(t testing.TB, p *process, dsn, because string) time.Duration {
	t.Helper()
	began := time.Now()
	require.Equal(t, 70, p.Wait(t), "exit code")
	took := time.Since(began)
	require.Contains(t, p.Log.String(), because)
	restart := query[string](t, dsn, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", r.slot)
	require.NotEmpty(t, restart)
	return took
}

func TestFault33_RecoveryToAPointStopsTheRelay(t *testing.T) {
	t.Parallel()
	r, pg, other, otherDSN := restored(t)
	require.NoError(t, pg.Stop(t.Context()))
	require.NoError(t, other.CopyFrom(pg, map[string]string{"recovery.signal": ""})) // the backup
	require.NoError(t, pg.Start(t.Context()))
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 200)
	execute(t, r.dsn, "SELECT pg_create_restore_point('before')")
	l.more(t, 200)
	l.end(t)
	r.drained(t, time.Minute)

	require.NoError(t, pg.Kill())
	for name, value := range map[string]string{
		"restore_command":      "cp " + filepath.Join(pg.DataDir(), "pg_wal", "%f") + " %p",
		"recovery_target_name": "before", "recovery_target_action": "promote",
	} {
		require.NoError(t, other.SetParam(name, value))
	}
	require.NoError(t, other.Start(t.Context()))
	took := r.refuses(t, p, otherDSN, "server was restored to an earlier point")
	requireNothingLost(t, r.judge(t))
	matrix(t, 33, "", "recovery to a restore point: refused, "+seconds(took)+" after the server answered")
}

func TestFault33_AnEarlierCopyStopsTheRelay(t *testing.T) {
	t.Parallel()
	r, pg, other, otherDSN := restored(t)
	require.NoError(t, pg.Stop(t.Context()))
	require.NoError(t, other.CopyFrom(pg, nil))
	require.NoError(t, pg.Start(t.Context()))
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 300)
	l.end(t)
	r.drained(t, time.Minute)

	require.NoError(t, pg.Kill())
	require.NoError(t, other.Start(t.Context()))
	took := r.refuses(t, p, otherDSN, "server was put back to an earlier state")
	v := r.judge(t)
	requireNothingLost(t, v)
	matrix(t, 33, "", "a copy of the disk from before: refused, "+seconds(took)+" after the server answered")
}

// A slot in front of its server would have rows left out without a word.
func TestFault33_SlotAheadOfItsServerIsRefused(t *testing.T) {
	t.Parallel()
	r, pg, other, otherDSN := restored(t)
	require.NoError(t, pg.Stop(t.Context()))
	require.NoError(t, other.CopyFrom(pg, nil))
	require.NoError(t, pg.Start(t.Context()))
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 300)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	require.NoError(t, pg.Stop(t.Context()))

	state := filepath.Join("pg_replslot", r.slot, "state")
	kept, err := os.ReadFile(filepath.Join(pg.DataDir(), state))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(other.DataDir(), state), kept, 0o600))
	require.NoError(t, other.Start(t.Context()))
	p = r.start(t)
	require.Equal(t, 78, p.Wait(t), "exit code")
	require.Contains(t, p.Log.String(), "rows that are written until then would never be sent")
	require.Zero(t, query[int](t, otherDSN, "SELECT coalesce(max(active_pid), 0) FROM pg_replication_slots WHERE slot_name = $1", r.slot))
	requireExact(t, r.judge(t))
	matrix(t, 33, "", "a slot ahead of its server: refused by a process that knew nothing")
}

// The position in the topic outlives the process, and so does the refusal.
func TestFault33_ExactlyOnceNeedsConsentToGoOnAfterARestore(t *testing.T) {
	t.Parallel()
	r, pg, other, otherDSN := restored(t)
	r.exactlyOnce(t)
	require.NoError(t, pg.Stop(t.Context()))
	require.NoError(t, other.CopyFrom(pg, nil))
	require.NoError(t, pg.Start(t.Context()))
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 300)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	require.NoError(t, pg.Kill())
	require.NoError(t, other.Start(t.Context()))

	r.dsn = otherDSN
	for range 2 {
		r.refuses(t, r.start(t), otherDSN, "postrider slot adopt "+r.slot)
	}
	file := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(file, []byte(r.config("127.0.0.1:0")), 0o600))
	adopt, code := parts.RunRelay(t, parts.RelayConfig{OneLog: true},
		"slot", "adopt", "--config", file, "--yes")
	require.Zero(t, code, adopt.Log.String())
	require.Contains(t, adopt.Log.String(), "stored in topic")

	p = r.started(t)
	l = r.load(t, 100)
	l.more(t, 300)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 33, "", "exactly_once: refused by each new process, until postrider slot adopt")
}

// pg_upgrade makes a cluster with a system identifier of its own, and takes the slot along from 17 on.
func TestFault34_NewSystemIdentifierNeedsARestart(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	before := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17"})
	after := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "18", OwnIdentity: true})
	r := newRig(t, before.DSN(), broker)
	recorder.use(t, "PostgreSQL 18")
	upgraded := sameObjects(t, r, after.DSN())
	r.url = severalHosts(t, r.dsn, upgraded)

	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 300)
	l.end(t)
	r.drained(t, time.Minute)
	require.NoError(t, before.Kill())
	took := r.refuses(t, p, upgraded, "system identifier is")

	// Who starts it again has looked.
	r.dsn = upgraded
	p = r.started(t)
	l = r.load(t, 100)
	l.more(t, 300)
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 34, "", "not run: pg_upgrade itself, which the binaries of the tests do not have; instead another cluster of version 18 with the same objects: "+
		"refused, "+seconds(took)+" after the old server had gone, until the relay is started again")
}
