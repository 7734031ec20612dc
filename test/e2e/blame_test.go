package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/test/parts"
)

// Thresholds that strike at once, looks that come often, and a session that gives a broker up
// after more looks than a busy machine misses: PostriderStuck ends with it.
const blameConfig = `
[monitor]
interval = "1s"

[health]
held_warning = "1s"
lag_warning = "1MiB"
other_slot_warning = "1MiB"

[sink.kafka]
delivery_timeout = "20s"
produce_timeout = "1s"
read_timeout = "2s"
dial_timeout = "2s"

[relay]
backoff_max = "1s"
`

// blamed is a shop whose relay is to name who keeps WAL.
type blamed struct {
	*shop
	relay *relay
	topic string
}

// blame starts a relay on a database of its own on the server. It connects as the role of sql/role.sql, which sees little of others.
func blame(t *testing.T, server *embedded.Postgres, c cluster, env map[string]string) *blamed {
	t.Helper()
	b := &blamed{
		shop:  &shop{Database: parts.NewDatabase(t, server.DSN()), cluster: c, slot: parts.Unique("blame"), file: filepath.Join(t.TempDir(), "postrider.toml")},
		topic: c.Topic(t, partitions),
	}
	b.Exec(t, outboxSQL)
	b.sql = b.Connect(t)
	b.configure(t, routeTo(b.topic, blameConfig))
	dsn, err := url.Parse(b.DSN())
	require.NoError(t, err)
	dsn.User = url.User("relay")
	b.relay = b.run(t, map[string]string{"POSTRIDER_POSTGRES_URL": dsn.String()}, env)
	return b
}

// insert commits one event.
func (b *blamed) insert(t testing.TB) {
	t.Helper()
	b.do(t, `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'a', '{}')`)
}

// writeWAL makes the server write so many MiB of it, none of which is an event.
func (b *blamed) writeWAL(t testing.TB, mib int) {
	t.Helper()
	_, err := b.sql.Exec(t.Context(), `SELECT count(pg_logical_emit_message(false, 'blame', repeat('x', 1 << 20))) FROM generate_series(1, $1)`, mib)
	require.NoError(t, err)
}

func (b *blamed) verdict() (health.Verdict, error) {
	var status struct{ Verdict health.Verdict }
	_, err := getJSON(b.relay.url+"/status", &status)
	return status.Verdict, err
}

// awaitCondition waits until /status has the condition, because of the culprit, and returns the verdict with it.
func (b *blamed) awaitCondition(t testing.TB, name, culprit string) (v health.Verdict, c health.Condition) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the last verdict: %+v", v)
		}
	}()
	parts.Await(t, name+" because of "+culprit, func() (bool, error) {
		var err error
		if v, err = b.verdict(); err != nil {
			return false, err
		}
		for _, c = range v.Conditions {
			if c.Name == name && c.Cause == culprit {
				return true, nil
			}
		}
		return false, nil
	})
	return v, c
}

// exports tells whether /metrics has the line.
func (b *blamed) exports(line string) (bool, error) {
	client := http.Client{Timeout: parts.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(b.relay.url + "/metrics")
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return bytes.Contains(body, []byte("\n"+line+"\n")), err
}

// logsCulprit tells whether the log names the culprit of a condition that began.
func (b *blamed) logsCulprit(culprit string) bool {
	for text := range bytes.Lines(b.relay.Log.Bytes()) {
		var line struct{ Message, Culprit string }
		if json.Unmarshal(text, &line) == nil && line.Message == "condition began" && line.Culprit == culprit {
			return true
		}
	}
	return false
}

// awaitOver waits until /status has none of the conditions.
func (b *blamed) awaitOver(t testing.TB, names ...string) {
	t.Helper()
	parts.Await(t, "the end of "+strings.Join(names, ", "), func() (bool, error) {
		v, err := b.verdict()
		for _, c := range v.Conditions {
			for _, name := range names {
				if c.Name == name {
					return false, err
				}
			}
		}
		return err == nil, err
	})
}

// statusOfDatabase is what `postrider status` says of a condition when it can ask no relay.
func (b *blamed) statusOfDatabase(t testing.TB, name string) (found health.Condition) {
	t.Helper()
	p := start(t, b.environment(), "status", "--json", "--config", b.file)
	require.Zero(t, p.Wait(t))
	var status struct {
		Source  string
		Verdict health.Verdict
	}
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &status))
	require.Equal(t, "database", status.Source)
	for _, c := range status.Verdict.Conditions {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "there is no such condition", "%s in %+v", name, status.Verdict)
	return found
}

// typeNext does what the condition says is to be typed next, up to the remark: SQL in the shop's database, a statement at a time as psql does,
// or a command of postrider.
func (b *blamed) typeNext(t testing.TB, c health.Condition, env map[string]string) {
	t.Helper()
	text, _, _ := strings.Cut(c.Next, " -- ")
	text, _, _ = strings.Cut(text, "   # ")
	args, isCommand := strings.CutPrefix(text, "postrider ")
	if !isCommand {
		for statement := range strings.SplitSeq(strings.TrimSuffix(text, ";"), "; ") {
			b.do(t, statement)
		}
		return
	}
	b.postrider(t, env, strings.Fields(args)...)
}

// postrider runs a command that is to succeed.
func (b *blamed) postrider(t testing.TB, env map[string]string, args ...string) {
	t.Helper()
	all := b.environment()
	maps.Copy(all, env)
	p := start(t, all, append(args, "--config", b.file)...)
	require.Zero(t, p.Wait(t), "postrider %s: %s", args, p.Log.String())
}

// as opens a connection that calls itself by a name.
func (b *blamed) as(t testing.TB, application string) *pgx.Conn {
	t.Helper()
	conn := b.Connect(t)
	_, err := conn.Exec(t.Context(), "SELECT set_config('application_name', $1, false)", application)
	require.NoError(t, err)
	return conn
}

// TestBlame provokes what makes a server keep WAL, one after the other, and wants the culprit by name. Then it types what is to be typed next, and
// wants that to help.
func TestBlame(t *testing.T) {
	t.Parallel()
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17", Params: map[string]string{
		"max_prepared_transactions": "5", "max_wal_size": "1GB", "min_wal_size": "32MB",
	}})
	_, err := parts.Connect(t, server.DSN()).Exec(t.Context(), "CREATE ROLE relay LOGIN REPLICATION")
	require.NoError(t, err)

	t.Run("long transaction", func(t *testing.T) {
		b := blame(t, server, newCluster(t), nil)
		conn := b.as(t, "nightly report")
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SELECT pg_current_xact_id()")
		require.NoError(t, err)
		pid := strconv.Itoa(int(conn.PgConn().PID()))

		v, c := b.awaitCondition(t, health.HeldByTransaction, "transaction of pid "+pid+" (nightly report)")
		require.Equal(t, health.Degraded, v.State)
		require.Equal(t, c.Reason, v.Reason)
		require.Contains(t, v.Reason, "the transaction of pid "+pid+" (nightly report, user postgres, database "+b.Name)
		require.Contains(t, c.Next, "it may be at work", "the login does not see its state")
		b.typeNext(t, c, nil)
		b.do(t, "SELECT pg_terminate_backend("+pid+")") // it is idle
		b.awaitOver(t, health.HeldByTransaction)
	})

	t.Run("prepared transaction", func(t *testing.T) {
		b := blame(t, server, newCluster(t), nil)
		b.do(t, "CREATE TABLE payments (id int)", "BEGIN", "INSERT INTO payments VALUES (1)", "PREPARE TRANSACTION 'bob''s payment'")

		v, c := b.awaitCondition(t, health.HeldByTransaction, "prepared transaction bob's payment")
		require.Equal(t, health.Degraded, v.State)
		require.Contains(t, v.Reason, `prepared transaction "bob's payment" (user postgres, database `+b.Name+`) has waited for COMMIT PREPARED`)
		require.Equal(t, c.Cause, b.statusOfDatabase(t, c.Name).Cause)
		require.Contains(t, c.Next, "COMMIT PREPARED 'bob''s payment', or ROLLBACK PREPARED")
		b.do(t, c.Next) // a comment: which of the two is for its transaction manager to say
		b.awaitCondition(t, health.HeldByTransaction, "prepared transaction bob's payment")
		b.do(t, "COMMIT PREPARED 'bob''s payment'")
		b.awaitOver(t, health.HeldByTransaction)
	})

	t.Run("dead standby gate", func(t *testing.T) {
		b := blame(t, server, newCluster(t), map[string]string{"POSTRIDER_SLOT_FAILOVER": "true"})
		b.do(t, "SELECT pg_create_physical_replication_slot('standby1')", "ALTER SYSTEM SET synchronized_standby_slots = 'standby1'", "SELECT pg_reload_conf()")
		// Each process reads the configuration again in its own time. A walsender that is made from now on has read it.
		parts.Await(t, "a server that has read its configuration", func() (bool, error) {
			var gate string
			err := b.Connect(t).QueryRow(t.Context(), "SHOW synchronized_standby_slots").Scan(&gate)
			return gate == "standby1", err
		})
		b.do(t, "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = '"+b.slot+"' AND active")
		b.insert(t)

		wanted := regexp.MustCompile(`slot "standby1" of synchronized_standby_slots (is|has been) inactive.*, so PostgreSQL sends the relay nothing`)
		var v health.Verdict
		var c health.Condition
		parts.Await(t, "the gate as the reason, once there is a session again", func() (bool, error) {
			v, c = b.awaitCondition(t, health.StandbyGate, "standby slot standby1")
			return wanted.MatchString(v.Reason), nil
		})
		require.Equal(t, health.Failing, v.State)
		b.writeWAL(t, 2)
		b.awaitCondition(t, health.Backlog, "standby slot standby1")
		require.Zero(t, b.count(t, b.topic))
		b.typeNext(t, c, nil)
		require.NotContains(t, c.Next[:strings.Index(c.Next, " -- ")], "ALTER SYSTEM", "a standby that may come back is not taken out of the list")
		b.do(t, "SELECT pg_drop_replication_slot('standby1')")
		parts.Await(t, "a standby that does not come back", func() (bool, error) {
			_, c = b.awaitCondition(t, health.StandbyGate, "standby slot standby1")
			return strings.Contains(c.Reason, "does not exist"), nil
		})
		b.typeNext(t, c, nil)
		b.awaitOver(t, health.StandbyGate, health.Backlog)
		b.awaitConfirmed(t, b.relay)
		require.Equal(t, 1, b.count(t, b.topic))
	})

	t.Run("another slot", func(t *testing.T) {
		b := blame(t, server, newCluster(t), nil)
		name := parts.Unique("reports")
		b.do(t, "SELECT pg_create_logical_replication_slot('"+name+"', 'pgoutput')")
		b.writeWAL(t, 3)
		b.awaitConfirmed(t, b.relay)

		v, c := b.awaitCondition(t, health.OtherSlot, "slot "+name)
		require.Equal(t, health.Degraded, v.State)
		require.Contains(t, v.Reason, `slot "`+name+`" of database `+b.Name)
		b.typeNext(t, c, nil)
		b.postrider(t, nil, "slot", "drop", name, "--yes")
		b.awaitOver(t, health.OtherSlot)
	})

	t.Run("paused relay", func(t *testing.T) {
		port, err := child.FreePort()
		require.NoError(t, err)
		admin := map[string]string{"POSTRIDER_ADMIN_LISTEN": fmt.Sprintf("127.0.0.1:%d", port), "POSTRIDER_ADMIN_TOKEN": "a token of the test"}
		b := blame(t, server, newCluster(t), admin)
		b.postrider(t, admin, "pause", "--for", "1h", "--reason", "broker upgrade")

		_, c := b.awaitCondition(t, health.Paused, "paused relay")
		require.Regexp(t, "^the relay has been paused for .*, until .*: broker upgrade$", c.Reason)
		b.writeWAL(t, 2)
		v, _ := b.awaitCondition(t, health.Backlog, "paused relay")
		require.Equal(t, health.Degraded, v.State)
		require.Equal(t, health.Runbook(health.Paused), v.Runbook, "the pause is the reason, not what follows from it")
		b.typeNext(t, c, admin)
		b.awaitOver(t, health.Paused, health.Backlog)
	})

	t.Run("dead broker", func(t *testing.T) {
		broker := parts.ExclusiveKafka(t, parts.KafkaConfig{})
		// With a volume that is known to have room the advice is a statement.
		_, err := parts.Connect(t, server.DSN()).Exec(t.Context(), "GRANT pg_monitor TO relay")
		require.NoError(t, err)
		b := blame(t, server, cluster{broker}, map[string]string{"POSTRIDER_MONITOR_VOLUME_SIZE": "100GiB"})
		culprit := "kafka at " + b.list()
		b.insert(t)
		b.awaitConfirmed(t, b.relay)
		broker.Kill(t)
		b.insert(t)

		v, _ := b.awaitCondition(t, health.Stuck, culprit)
		require.Contains(t, v.Reason, culprit+" has acknowledged nothing for ")
		b.writeWAL(t, 2)
		v, _ = b.awaitCondition(t, health.NotReady, culprit)
		require.Equal(t, health.Failing, v.State)
		require.Contains(t, v.Reason, b.list())
		b.awaitCondition(t, health.Backlog, culprit)

		// What follows from it still names it.
		b.do(t, "ALTER SYSTEM SET max_slot_wal_keep_size = '48MB'", "SELECT pg_reload_conf()")
		b.writeWAL(t, 64)
		var c health.Condition
		parts.Await(t, "a slot that is over its limit", func() (bool, error) {
			v, c = b.awaitCondition(t, health.SlotNearLoss, culprit)
			// The first look after the change may have the slot's state and not yet the limit.
			return strings.Contains(c.Reason, "can be lost at the next checkpoint: ") && strings.Contains(c.Next, "ALTER SYSTEM"), nil
		})
		require.Equal(t, health.Failing, v.State)
		require.Equal(t, c.Reason, v.Reason)
		require.Contains(t, v.Reason, b.list())
		parts.Await(t, "the condition in the metrics", func() (bool, error) {
			return b.exports(`postrider_health_condition{condition="PostriderSlotNearLoss",severity="critical",slot="` + b.slot + `"} 1`)
		})
		parts.Await(t, "the culprit in the log", func() (bool, error) { return b.logsCulprit(culprit), nil })
		_, raise, found := strings.Cut(c.Next, " free: ") // which it has
		require.True(t, found, c.Next)
		c.Next = raise
		b.typeNext(t, c, nil)
		b.awaitOver(t, health.SlotNearLoss)

		broker.Restart(t)
		b.awaitOver(t, health.NotReady, health.Stuck, health.Backlog)
	})
}
