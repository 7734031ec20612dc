package faults

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// physicalSlot is the standby's, and its application_name.
const physicalSlot = "sb1"

// pair is a primary with a standby, and a relay's objects on them. The relay and the writers know both, and take the one that can be written to.
type pair struct {
	*rig
	primary, standby *embedded.Postgres
	onPrimary        string // the database there, whoever is the primary now
	onStandby        string
	link             *parts.Proxy // over which the standby receives
}

// newPair makes them. The slot is left to the relay.
func newPair(t testing.TB, version string) *pair {
	t.Helper()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	p := &pair{primary: parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})}
	p.standby = parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
	p.rig = newRig(t, p.primary.DSN(), broker)
	p.onPrimary = p.dsn
	p.settings["slot.failover"] = "true"
	execute(t, p.onPrimary, "SELECT pg_drop_replication_slot('"+p.slot+"'), pg_create_physical_replication_slot('"+physicalSlot+"')")

	u, err := url.Parse(p.onPrimary)
	require.NoError(t, err)
	p.link, err = parts.StartProxy(u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.link.Close()) })
	require.NoError(t, p.standby.Stop(t.Context()))
	require.NoError(t, p.primary.Stop(t.Context()))
	require.NoError(t, p.standby.CopyFrom(p.primary, map[string]string{"standby.signal": ""}))
	through, err := url.Parse("//" + p.link.Addr())
	require.NoError(t, err)
	for name, value := range map[string]string{
		"primary_conninfo":  fmt.Sprintf("host=127.0.0.1 port=%s user=postgres dbname=%s application_name=%s", through.Port(), u.Path[1:], physicalSlot),
		"primary_slot_name": physicalSlot, "hot_standby_feedback": "on", "sync_replication_slots": "on", "wal_retrieve_retry_interval": "200ms",
	} {
		require.NoError(t, p.standby.SetParam(name, value))
	}
	require.NoError(t, p.primary.Start(t.Context()))
	require.NoError(t, p.standby.Start(t.Context()))

	p.onStandby = at(t, p.onPrimary, p.standby.DSN())
	p.url = severalHosts(t, p.onPrimary, p.onStandby)
	both, err := url.Parse(p.url)
	require.NoError(t, err)
	q := both.Query()
	q.Set("target_session_attrs", "read-write")
	both.RawQuery = q.Encode()
	p.dsn = both.String()
	return p
}

// at is the same database on another server.
func at(t testing.TB, dsn, server string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	other, err := url.Parse(server)
	require.NoError(t, err)
	other.Path = u.Path
	return other.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// alter changes a setting of the primary that can be reloaded.
func (p *pair) alter(t testing.TB, name, value string) {
	t.Helper()
	execute(t, p.onPrimary, "ALTER SYSTEM SET "+name+" = '"+value+"'")
	execute(t, p.onPrimary, "SELECT pg_reload_conf()")
}

// copied waits until the standby has a copy of the slot that survives a promotion: it has to catch up with the slot first, which has to move.
func (p *pair) copied(t testing.TB) {
	t.Helper()
	began := time.Now()
	eventually(t, 90*time.Second, "standby has a copy of the slot", func() bool {
		// The standby waits for a moment at which it knows the running transactions.
		execute(t, p.onPrimary, "SELECT pg_log_standby_snapshot()")
		return query[bool](t, p.onStandby, "SELECT coalesce(bool_or(synced AND failover AND NOT temporary), false) FROM pg_replication_slots WHERE slot_name = $1", p.slot)
	})
	t.Logf("slot copied after %s", time.Since(began))
}

// replayed waits until the standby has what the primary has now.
func (p *pair) replayed(t testing.TB) {
	t.Helper()
	end := currentLSN(t, p.onPrimary).String()
	eventually(t, 30*time.Second, "standby at "+end, func() bool {
		return query[bool](t, p.onStandby, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", end)
	})
}

// promote makes the standby the primary.
func (p *pair) promote(t testing.TB) {
	t.Helper()
	require.True(t, query[bool](t, p.onStandby, "SELECT pg_promote(true, 60)"))
}
