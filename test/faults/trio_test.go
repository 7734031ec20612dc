package faults

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// trio is a primary with two standbys, as Patroni or CloudNativePG keep them: a commit waits for one standby, both copy the
// failover slot, and the primary sends the slot nothing that a running standby lacks.
type trio struct {
	*rig
	nodes   []*embedded.Postgres
	urls    []string // of the database on each node
	primary int
}

// member is the name of a node: its physical slot, and its application_name.
func member(node int) string { return fmt.Sprint("member_", node) }

func newTrio(t testing.TB, version string) *trio {
	t.Helper()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	c := &trio{}
	for range 3 {
		c.nodes = append(c.nodes, parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}))
	}
	c.rig = newRig(t, c.nodes[0].DSN(), broker)
	c.settings["slot.failover"] = "true"
	delete(c.settings, "relay.backoff_max")
	execute(t, c.dsn, "SELECT pg_drop_replication_slot('"+c.slot+"')")
	for node := range c.nodes {
		c.urls = append(c.urls, at(t, c.dsn, c.nodes[node].DSN()))
	}
	require.NoError(t, c.nodes[1].Stop(t.Context()))
	require.NoError(t, c.nodes[2].Stop(t.Context()))
	execute(t, c.urls[0], "SELECT pg_create_physical_replication_slot('"+member(1)+"'), pg_create_physical_replication_slot('"+member(2)+"')")
	require.NoError(t, c.nodes[0].Stop(t.Context()))
	for _, node := range []int{1, 2} {
		c.clone(t, node, 0)
	}
	for _, node := range []int{0, 1, 2} {
		require.NoError(t, c.nodes[node].SetParam("synchronous_standby_names", "ANY 1 ("+member(0)+", "+member(1)+", "+member(2)+")"))
		require.NoError(t, c.nodes[node].Start(t.Context()))
	}
	c.gate(t, 1, 2)

	several, err := url.Parse(c.urls[0])
	require.NoError(t, err)
	for _, other := range c.urls[1:] {
		u, err := url.Parse(other)
		require.NoError(t, err)
		several.Host += "," + u.Host
	}
	c.url = several.String()
	q := several.Query()
	q.Set("target_session_attrs", "read-write")
	several.RawQuery = q.Encode()
	c.dsn = several.String()
	return c
}

// clone makes a node a standby, from a copy of another one. Neither may run.
func (c *trio) clone(t testing.TB, node, of int) {
	t.Helper()
	require.NoError(t, c.nodes[node].CopyFrom(c.nodes[of], map[string]string{"standby.signal": ""}))
	for name, value := range map[string]string{
		"primary_slot_name": member(node), "hot_standby_feedback": "on", "sync_replication_slots": "on", "wal_retrieve_retry_interval": "200ms",
		"synchronized_standby_slots": "",
	} {
		require.NoError(t, c.nodes[node].SetParam(name, value))
	}
	c.repoint(t, node)
}

// repoint has a standby receive from the present primary.
func (c *trio) repoint(t testing.TB, node int) {
	t.Helper()
	u, err := url.Parse(c.urls[c.primary])
	require.NoError(t, err)
	require.NoError(t, c.nodes[node].SetParam("primary_conninfo", fmt.Sprintf("host=127.0.0.1 port=%s user=postgres dbname=%s application_name=%s",
		u.Port(), u.Path[1:], member(node))))
	if c.nodes[node].Running() {
		execute(t, c.urls[node], "SELECT pg_reload_conf()")
	}
}

// gate has the primary send the slot only what these standbys have.
func (c *trio) gate(t testing.TB, standbys ...int) {
	t.Helper()
	var names []string
	for _, node := range standbys {
		names = append(names, member(node))
	}
	require.NoError(t, c.nodes[c.primary].SetParam("synchronized_standby_slots", strings.Join(names, ", ")))
	execute(t, c.urls[c.primary], "SELECT pg_reload_conf()")
}

func (c *trio) standbys() (nodes []int) {
	for node := range c.nodes {
		if node != c.primary {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// copied waits until both standbys have a copy of the slot that survives a promotion.
func (c *trio) copied(t testing.TB) {
	t.Helper()
	for _, node := range c.standbys() {
		eventually(t, 2*time.Minute, "a copy of the slot on "+member(node), func() bool {
			execute(t, c.urls[c.primary], "SELECT pg_log_standby_snapshot()")
			return query[bool](t, c.urls[node], `SELECT coalesce(bool_or(synced AND failover AND NOT temporary AND invalidation_reason IS NULL), false)
				FROM pg_replication_slots WHERE slot_name = $1`, c.slot)
		})
	}
}

// promote makes the standby that has most the primary, and has the other one follow it. The old primary is down.
func (c *trio) promote(t testing.TB) {
	t.Helper()
	received := func(node int) pglogrepl.LSN {
		return parseLSN(t, query[string](t, c.urls[node], "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::text"))
	}
	both := c.standbys()
	slices.SortFunc(both, func(a, b int) int { return cmp.Compare(received(b), received(a)) })
	for _, other := range c.standbys() { // each has the slots of the other two
		if other != both[0] {
			execute(t, c.urls[both[0]], fmt.Sprintf("SELECT pg_create_physical_replication_slot(%[1]s) WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %[1]s)",
				"'"+member(other)+"'"))
		}
	}
	c.primary = both[0]
	c.gate(t, both[1])
	require.True(t, query[bool](t, c.urls[c.primary], "SELECT pg_promote(true, 60)"))
	c.repoint(t, both[1])
}

// rejoin makes the old primary a standby of the new one, as pg_basebackup would.
func (c *trio) rejoin(t testing.TB, old int) {
	t.Helper()
	other := 3 - old - c.primary
	execute(t, c.urls[c.primary], fmt.Sprintf("SELECT pg_create_physical_replication_slot(%[1]s) WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %[1]s)",
		"'"+member(old)+"'"))
	require.NoError(t, c.nodes[other].Stop(t.Context()))
	c.clone(t, old, other)
	require.NoError(t, c.nodes[other].Start(t.Context()))
	require.NoError(t, c.nodes[old].Start(t.Context()))
	c.gate(t, old, other)
}

func TestFault49_SwitchoversAndFailoversOfThreeServersLoseNothing(t *testing.T) {
	t.Parallel()
	versions := copying
	if !*long {
		versions = copying[1:]
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newTrio(t, version)
			relay := c.started(t)
			l := c.load(t, 100)
			rounds := full(t, 1, 20)
			var switchovers, failovers times
			for round := range 2 * rounds {
				c.copied(t)
				l.more(t, 300)
				records := c.follow(t.Context(), t)
				old := c.primary
				if round%2 == 0 {
					require.NoError(t, c.nodes[old].Stop(t.Context()))
				} else {
					require.NoError(t, c.nodes[old].Kill())
				}
				c.promote(t)
				first := records.firstAfter(t, time.Now())
				if round%2 == 0 {
					switchovers = append(switchovers, first)
				} else {
					failovers = append(failovers, first)
				}
				c.rejoin(t, old)
				l.more(t, 300)
				relay.requireRunning(t)
			}
			l.end(t)
			c.drained(t, time.Minute)
			require.Zero(t, relay.ask().Relay.Phantoms.Messages)
			relay.stop(t)
			for _, node := range c.nodes { // the first may be a standby by now, where no database can be dropped
				require.NoError(t, node.Kill())
			}
			v := c.judge(t)
			requireNothingLost(t, v)
			require.LessOrEqual(t, v.Duplicated, int64(2*rounds)*repeats)
			matrix(t, 49, "", fmt.Sprintf("%d switchovers, %d failovers; first row after the promotion: %s, and %s", rounds, rounds, switchovers, failovers))
			requireSoon(t, switchovers)
			requireSoon(t, failovers)
		})
	}
}
