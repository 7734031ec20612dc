package faults

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// What follows are ordinary situations in which relays of this kind have been seen to lose rows. Nothing may be lost in any, and nothing
// repeated where the relay was stopped and not killed.

func TestTrap_SIGTERMInMidTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	network := r.throughKafkaProxy(t)
	p := r.started(t)
	for range full(t, 2, 20) {
		r.backlog(t, 100) // the topic is known
		r.drained(t, time.Minute)
		network.Stall()
		r.transaction(t, 3*inFlight) // its end is not read before its beginning is acknowledged
		p.full(t)
		p.signal(t, syscall.SIGTERM)
		p.phase(t, "draining", 10*time.Second)
		network.Resume()
		require.Zero(t, p.Wait(t), "exit code")
		p = r.started(t)
	}
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
}

func TestTrap_KeepalivesWhileABatchIsPendingThenKill(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	network := r.throughKafkaProxy(t)
	r.settings["replication.status_interval"] = `"100ms"`
	p := r.started(t)
	n := full(t, 2, 20)
	for range n {
		r.backlog(t, 200)
		r.drained(t, time.Minute)
		network.Stall()
		r.backlog(t, 500)
		behind := currentLSN(t, r.dsn) // the rows are: what others wrote in front of them may be confirmed
		eventually(t, 30*time.Second, "rows in flight", func() bool { return p.ask().Relay.InFlight > 0 })
		// WAL of others, whose end the server tells of in keepalives.
		for range 20 {
			execute(t, r.dsn, "SELECT pg_logical_emit_message(false, 'not ours', repeat('x', 100000))")
			require.LessOrEqual(t, r.confirmed(t), behind, "confirmed past what is not acknowledged")
		}
		during(time.Second, func() { p.requireRunning(t) }) // some statuses long
		require.Less(t, r.confirmed(t), currentLSN(t, r.dsn)-1<<20, "confirmed past what is not acknowledged")
		p.Kill(t)
		network.Cut()
		network.Resume()
		p = r.started(t)
	}
	r.drained(t, time.Minute)
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(n)*repeats)
}

func TestTrap_LargeCompressibleRowThenCleanStop(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"none", "gzip", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			r.settings["sink.kafka.compression"] = quote(compression)
			conn := parts.Connect(t, r.dsn)
			for i := range full(t, 3, 30) {
				p := r.started(t)
				r.backlog(t, 200)
				number := uint64(i + 1)
				require.NoError(t, r.insert(t.Context(), conn, "large", number, 200_000))
				r.tally.Wrote("large", number)
				p.stop(t)
			}
			p := r.started(t)
			r.drained(t, time.Minute)
			p.stop(t)
			requireExact(t, r.judge(t))
		})
	}
}

func TestTrap_BrokerStallLongerThanTheTimeoutOfTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	network := r.throughKafkaProxy(t)
	u, err := url.Parse(r.dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("wal_sender_timeout", "10s")
	u.RawQuery = q.Encode()
	r.url = u.String()
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 200)
	pid := r.walsender(t)
	network.Stall()
	during(25*time.Second, func() { p.requireRunning(t) })
	require.Equal(t, pid, r.walsender(t), "walsender")
	network.Resume()
	l.end(t)
	r.drained(t, time.Minute)
	require.Equal(t, pid, r.walsender(t), "walsender")
	p.stop(t)
	requireExact(t, r.judge(t))
}

// copyRows commits the next n events of a key by COPY, whose rows share positions in the WAL.
func (r *rig) copyRows(t testing.TB, conn *pgx.Conn, key string, first uint64, n int) {
	t.Helper()
	var text strings.Builder
	for number := first; number < first+uint64(n); number++ {
		fmt.Fprintf(&text, "%s\t%s\t{\"key\": \"%s\", \"number\": %d}\t%d\n", r.topic, key, key, number, number)
	}
	_, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(text.String()), "COPY outbox (aggregate_type, aggregate_id, payload, number) FROM STDIN")
	require.NoError(t, err)
	for number := first; number < first+uint64(n); number++ {
		r.tally.Wrote(key, number)
	}
}

func TestTrap_RowsOfACopyShareAPosition(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"clean stop", "kill"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			network := r.throughKafkaProxy(t)
			conn := parts.Connect(t, r.dsn)
			n, rows := full(t, 2, 20), 5*inFlight
			for i := range n {
				p := r.started(t)
				r.backlog(t, 100) // the topic is known
				r.drained(t, time.Minute)
				network.Stall()
				r.copyRows(t, conn, "copied", uint64(i*rows+1), rows)
				p.full(t)
				if end == "kill" {
					network.Resume()
					eventually(t, 30*time.Second, "some of it arrives", func() bool { return p.ask().Relay.InFlight < inFlight || r.confirmed(t) >= currentLSN(t, r.dsn) })
					p.Kill(t)
					continue
				}
				p.signal(t, syscall.SIGTERM)
				p.phase(t, "draining", 10*time.Second)
				network.Resume()
				require.Zero(t, p.Wait(t), "exit code")
			}
			p := r.started(t)
			r.drained(t, time.Minute)
			p.stop(t)
			v := r.judge(t)
			requireNothingLost(t, v)
			if end == "clean stop" {
				require.Zero(t, v.Duplicated)
			}
			require.LessOrEqual(t, v.Duplicated, int64(n*rows))
		})
	}
}

func TestTrap_InterleavedTransactionsWithSavepoints(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	random := random(t, 0)
	const sessions = 12
	var conns [sessions]*pgx.Conn
	for i := range conns {
		conns[i] = parts.Connect(t, r.dsn)
	}
	ctx := context.WithoutCancel(t.Context())
	do := func(i int, sql string) {
		_, err := conns[i].Exec(ctx, sql)
		require.NoError(t, err)
	}
	var numbers [sessions]uint64 // committed
	p := r.started(t)
	for round := range full(t, 4, 100) {
		pending := numbers
		for i := range conns {
			do(i, "BEGIN")
		}
		for step := range 10 {
			for _, i := range random.Perm(sessions) {
				key := fmt.Sprint("session-", i)
				if random.IntN(3) == 0 {
					do(i, "SAVEPOINT s")
					require.NoError(t, r.insert(ctx, conns[i], key+"-rolled-back", uint64(step+1), 50))
					do(i, "ROLLBACK TO SAVEPOINT s")
				}
				pending[i]++
				require.NoError(t, r.insert(ctx, conns[i], key, pending[i], 50))
			}
		}
		for n, i := range random.Perm(sessions) {
			if n == sessions/2 && round%2 == 1 { // some are committed, some are open
				p.stop(t)
				p = r.started(t)
			}
			if random.IntN(4) == 0 {
				do(i, "ROLLBACK")
				continue
			}
			do(i, "COMMIT")
			for numbers[i] < pending[i] {
				numbers[i]++
				r.tally.Wrote(fmt.Sprint("session-", i), numbers[i])
			}
		}
	}
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
}
