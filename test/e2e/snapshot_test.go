package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// copied is a shop whose outbox has rows before the relay comes.
type copied struct {
	*shop
	t      testing.TB
	topic  string
	ledger *ledger
}

const numberedSQL = `
CREATE TABLE outbox (
	id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	aggregate_type text NOT NULL,
	aggregate_id   text NOT NULL,
	event_type     text,
	payload        jsonb NOT NULL,
	status         text NOT NULL DEFAULT 'new'
);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`

// The limit makes small chunks, so that there are many between which, and in the middle of which, a test can interrupt.
const smallChunks = `
[relay]
in_flight_messages = 100
`

// For few rows: with chunks of 300, 3,000 rows are copied in half a second, and there is less than that to interrupt it four times.
const tinyChunks = `
[relay]
in_flight_messages = 20
`

func newCopied(t testing.TB, version, sql, mode, more string) *copied {
	t.Helper()
	topic := newCluster(t).Topic(t, partitions)
	s := newShop(t, version, sql, "")
	return withSnapshot(t, s, topic, mode, more)
}

func withSnapshot(t testing.TB, s *shop, topic, mode, more string) *copied {
	t.Helper()
	c := &copied{shop: s, t: t, topic: topic, ledger: newLedger()}
	c.mode(mode, more)
	return c
}

func (c *copied) mode(mode, more string) {
	c.t.Helper()
	c.configure(c.t, routeTo(c.topic, fmt.Sprintf("[snapshot]\nmode = %q\ntopic = %q\n%s", mode, c.slot+".snapshot", more)))
}

// fill commits rows in transactions of ten, one of each key, keys times tens.
func (c *copied) fill(rows int) {
	c.t.Helper()
	d := c.ledger.draft()
	var values strings.Builder
	for n := range rows {
		key := fmt.Sprintf("before-%d", n%10)
		if n > 0 {
			values.WriteString(",")
		}
		fmt.Fprintf(&values, "('order', '%s', 'was there', '%s')", key, d.payload(key))
	}
	c.do(c.t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES "+values.String())
	d.committed()
}

// write commits rows until it is told to stop, and updates and reads rows in between as an application would. What it returns stops it.
func (c *copied) write(writers int) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for w := range writers {
		conn := c.Connect(c.t)
		all.Go(func() {
			if err := c.writer(ctx, conn, w); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
		})
	}
	end := sync.OnceFunc(func() { cancel(); all.Wait() })
	c.t.Cleanup(end)
	return func() {
		c.t.Helper()
		end()
		require.NoError(c.t, failed)
	}
}

func (c *copied) writer(ctx context.Context, conn *pgx.Conn, w int) error {
	pace := time.NewTicker(4 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		background := context.WithoutCancel(ctx)
		tx, err := conn.Begin(background)
		if err != nil {
			return err
		}
		d := c.ledger.draft()
		for i := range 1 + n%3 {
			key := fmt.Sprintf("writer-%d-%d", w, (n+i)%4)
			if err := insertEvents(background, tx, d, "outbox", key); err != nil {
				return err
			}
		}
		if n%5 == 0 { // a poller of old, or a clean-up's mark: the row is new for the heap, and the same event
			// Writers that waited for each other's rows could do so in a circle.
			_, err = tx.Exec(background, `UPDATE outbox SET status = 'seen' WHERE id IN (SELECT id FROM outbox ORDER BY random() LIMIT 20 FOR UPDATE SKIP LOCKED)`)
			if err != nil {
				return err
			}
		}
		if err := tx.Commit(background); err != nil {
			return err
		}
		d.committed()
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// snapshotRows is what /status says: rows of the snapshot that are acknowledged. False: nobody answers.
func (r *relay) snapshotRows() (rows int64, phase string, ok bool) {
	var status struct {
		Relay struct {
			Phase    string `json:"phase"`
			Snapshot struct {
				Rows int64 `json:"rows"`
			} `json:"snapshot"`
		} `json:"relay"`
	}
	code, err := getJSON(r.url+"/status", &status)
	return status.Relay.Snapshot.Rows, status.Relay.Phase, err == nil && code == http.StatusOK
}

// listening starts the relay and waits for its listener only.
func (c *copied) listening(more ...map[string]string) *relay {
	c.t.Helper()
	r := c.launch(c.t, more...)
	address, ok := r.AwaitLog(c.t, "http listener started")["listen"].(string)
	require.True(c.t, ok)
	r.url = "http://" + address
	return r
}

// copiedBeyond waits until a relay has copied more rows than that, or streams.
func (c *copied) copiedBeyond(r *relay, rows int64) (now int64, streams bool) {
	c.t.Helper()
	parts.Await(c.t, fmt.Sprintf("more than %d rows copied", rows), func() (bool, error) {
		if !r.Running() {
			return false, errEnded
		}
		n, phase, _ := r.snapshotRows()
		now, streams = n, phase == "streaming"
		return n > rows || streams, nil
	})
	return now, streams
}

// requireExact reads the topic to its end: everything once, in order. A row behind the snapshot is confirmed only when that is over; the slot
// is made beyond everything that was there before.
func (c *copied) requireExact(r *relay, atLeast int) {
	c.t.Helper()
	c.fill(1)
	c.awaitConfirmed(c.t, r)
	c.ledger.received(c.t, c.All(c.t, c.topic))
	c.ledger.requireExact(c.t, atLeast)
}

func TestSnapshot_PublishesRowsBeforeDuringAndAfterOnce(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "17", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCopied(t, version, numberedSQL, "initial", smallChunks)
			c.fill(10_000)
			stop := c.write(3)
			r := c.run(t)
			stop()
			c.write(2)()
			c.requireExact(r, 10_000)
			started := r.Logged("snapshot started")
			require.Equal(t, "id", started["order"])
			require.NotNil(t, r.Logged("snapshot complete"))
			r.Stop(t)

			// Nothing of it happens a second time.
			again := c.run(t)
			require.Nil(t, again.Logged("snapshot started"))
			before := c.count(t, c.topic)
			c.do(t, `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'last', '{"key": "last", "number": 1}')`)
			c.awaitConfirmed(t, again)
			require.Equal(t, before+1, c.count(t, c.topic))
			again.Stop(t)
		})
	}
}

// A copy is killed again and again, wherever it happens to be: between chunks, in the middle of one, while it finds out how to go on.
func TestSnapshot_GoesOnAfterKills(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCopied(t, version, numberedSQL, "initial", smallChunks)
			c.fill(30_000)
			c.killed(8)
		})
	}
}

func TestSnapshot_GoesOnAfterKillsByCommitTime(t *testing.T) {
	t.Parallel()
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"track_commit_timestamp": "on"}})
	db := parts.NewDatabase(t, server.DSN())
	cl := newCluster(t)
	s := &shop{Database: db, cluster: cl, slot: parts.Unique("e2e"), file: t.TempDir() + "/postrider.toml"}
	s.Exec(t, strings.Replace(numberedSQL, "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "uuid PRIMARY KEY DEFAULT gen_random_uuid()", 1))
	s.sql = s.Connect(t)
	c := withSnapshot(t, s, cl.Topic(t, partitions), "initial", tinyChunks)
	for range 300 { // each with a time of its own, or rows of one key were in no order
		c.fill(10)
	}
	c.killedWithout(6, "UPDATE")
}

func (c *copied) killed(kills int) { c.t.Helper(); c.killedWithout(kills, "") }

// killedWithout runs writers, unless an order by commit time makes their updates meaningless.
func (c *copied) killedWithout(kills int, what string) {
	c.t.Helper()
	stop := func() {}
	if what == "" {
		stop = c.write(2)
	}
	var r *relay
	reached := int64(0)
	for i := range kills {
		r = c.listening()
		switch i % 3 {
		case 0, 1: // in the middle of copying
			var streams bool
			if reached, streams = c.copiedBeyond(r, max(reached, 0)); streams {
				c.t.Fatalf("all was copied before kill %d of %d", i+1, kills)
			}
		case 2: // while it prepares to go on
			r.AwaitLog(c.t, "snapshot started")
		}
		require.NoError(c.t, r.Signal(syscall.SIGKILL))
		<-r.Done
		if what != "" {
			reached = -1 // counts anew in every process
		}
	}
	r = c.run(c.t)
	stop()
	require.NotNil(c.t, r.Logged("snapshot resumed; it skips rows inserted since it began, which the slot sends, and rows already published"))
	c.requireExact(r, 3_000)
	r.Stop(c.t)
}

func TestSnapshot_StopsOnSIGTERMAndGoesOn(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "initial", smallChunks)
	c.fill(20_000)
	reached := int64(0)
	for range 3 {
		r := c.listening()
		var streams bool
		reached, streams = c.copiedBeyond(r, reached)
		require.False(t, streams)
		r.Stop(t)
		require.NotNil(t, r.Logged("snapshot interrupted; it resumes at the next start"))
	}
	r := c.run(t)
	c.requireExact(r, 20_000)
	r.Stop(t)
}

func TestSnapshot_SecondRelayStandsBy(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "initial", smallChunks)
	c.fill(20_000)
	first := c.listening()
	_, streams := c.copiedBeyond(first, 0)
	require.False(t, streams)
	second := c.listening()
	parts.Await(t, "the second relay standing by", func() (bool, error) {
		_, phase, _ := second.snapshotRows()
		return phase == "standby", nil
	})
	require.NoError(t, first.Signal(syscall.SIGKILL))
	<-first.Done
	parts.Await(t, "the second relay streaming", func() (bool, error) { return second.state(t).Phase == "streaming", nil })
	c.requireExact(second, 20_000)
	second.Stop(t)
}

func TestSnapshot_ShowsWhatItDoes(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "initial", smallChunks)
	c.fill(20_000)
	c.do(t, "ANALYZE outbox")
	r := c.listening()
	var status struct {
		Verdict struct{ Reason string }
		Relay   struct {
			Phase    string `json:"phase"`
			Snapshot struct {
				Rows      int64   `json:"rows"`
				Table     string  `json:"table"`
				Estimated int64   `json:"estimated_rows"`
				Rate      float64 `json:"rows_per_second"`
			} `json:"snapshot"`
		}
	}
	// All of one answer: by the next one the snapshot may be over.
	parts.Await(t, "rows copied", func() (bool, error) {
		if !r.Running() {
			return false, errEnded
		}
		code, err := getJSON(r.url+"/status", &status)
		return err == nil && code == http.StatusOK && (status.Relay.Snapshot.Rows > 0 || status.Relay.Phase == "streaming"), nil
	})
	require.Equal(t, "snapshot", status.Relay.Phase)
	require.Contains(t, status.Verdict.Reason, "of about 20000 rows")
	require.Equal(t, "public.outbox", status.Relay.Snapshot.Table)
	require.Equal(t, int64(20_000), status.Relay.Snapshot.Estimated)
	require.Positive(t, status.Relay.Snapshot.Rate)
	var ready json.RawMessage
	code, err := getJSON(r.url+"/readyz", &ready)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	c.requireExact(r, 20_000)
	r.Stop(t)
}

func TestSnapshot_NeedsConsentToStartOver(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "initial", "")
	c.fill(1_000)
	r := c.run(t)
	c.awaitConfirmed(t, r)
	r.Stop(t)
	c.do(t, "SELECT pg_drop_replication_slot('"+c.slot+"')")
	c.fill(100)
	refused := c.launch(t)
	require.Equal(t, 70, refused.Wait(t))
	require.Contains(t, refused.Log.String(), "postrider slot create "+c.slot)

	c.mode("when_needed", "")
	r = c.run(t)
	c.awaitConfirmed(t, r)
	require.NotNil(t, r.Logged("snapshot complete"))
	c.ledger.received(t, c.All(t, c.topic))
	v := c.ledger.tally.Verdict()
	require.Zero(t, v.Lost)
	require.Equal(t, int64(1_000), v.Duplicated, "what was published before the slot was lost, and nothing else")

	// The same while the relay runs. It may have made the slot before ours is seen to be gone.
	parts.Await(t, "a moment in which nobody holds the slot", func() (bool, error) {
		c.do(t, "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = '"+c.slot+"' AND active")
		_, err := c.sql.Exec(t.Context(), "SELECT pg_drop_replication_slot($1)", c.slot)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "55006" {
			return false, nil // the relay was faster
		}
		return err == nil, err
	})
	c.awaitCopies(r, 2)
	c.fill(10)
	c.awaitConfirmed(t, r)
	require.Equal(t, 1_000+1_100+1_100+10, c.count(t, c.topic))
	r.Stop(t)
}

func TestSnapshot_RenewsASlotThatGoesWhileASessionIsPrepared(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "when_needed", "")
	c.fill(100)
	r := c.run(t)
	c.awaitConfirmed(t, r)
	r.Stop(t)

	r = c.whilePrepared("SELECT pg_drop_replication_slot('"+c.slot+"')", func() *relay { return c.launch(t) })
	c.awaitCopies(r, 1)
	c.awaitConfirmed(t, r)
	require.Equal(t, 200, c.count(t, c.topic))
	r.Stop(t)
}

// whilePrepared runs sql between the two looks at the slot that a session takes before it opens: the second comes after one at the
// publication, which a lock holds up.
func (c *copied) whilePrepared(sql string, begin func() *relay) *relay {
	c.t.Helper()
	holder := c.Connect(c.t)
	tx, err := holder.Begin(c.t.Context())
	require.NoError(c.t, err)
	_, err = tx.Exec(c.t.Context(), "LOCK pg_catalog.pg_publication IN ACCESS EXCLUSIVE MODE")
	require.NoError(c.t, err)
	r := begin()
	parts.Await(c.t, "a session that waits for the lock", func() (bool, error) {
		waits := false
		err := c.sql.QueryRow(c.t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid)))", holder.PgConn().PID()).Scan(&waits)
		return waits, err
	})
	c.do(c.t, sql)
	require.NoError(c.t, tx.Commit(c.t.Context()))
	return r
}

func (c *copied) awaitCopies(r *relay, n int) {
	c.t.Helper()
	parts.Await(c.t, "a snapshot", func() (bool, error) { return strings.Count(r.Log.String(), `"message":"snapshot complete"`) == n, nil })
}

func TestSnapshot_HaltsAtARowThatCannotBePublished(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "initial", smallChunks)
	c.do(t, "ALTER TABLE outbox ALTER aggregate_id DROP NOT NULL")
	c.fill(1_000)
	c.do(t, `INSERT INTO outbox (aggregate_type, payload) VALUES ('order', '{}')`)
	c.fill(1_000)
	halted := c.launch(t)
	require.Equal(t, 1, halted.Wait(t))
	require.Contains(t, halted.Log.String(), "aggregate_id")
	require.Equal(t, 1_000, c.count(t, c.topic), "what stands before it is published")
	c.do(t, `DELETE FROM outbox WHERE aggregate_id IS NULL`)
	r := c.run(t)
	c.requireExact(r, 2_000)
	r.Stop(t)
}

func TestSnapshot_LeavesASlotAloneThatWasThereBefore(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "initial", "")
	c.do(t, `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'before', '{}')`,
		`SELECT pg_create_logical_replication_slot('`+c.slot+`', 'pgoutput')`)
	c.fill(10)
	r := c.run(t)
	c.requireExact(r, 10)
	r.Stop(t)
}

func TestSnapshot_OutlastsTheBroker(t *testing.T) {
	t.Parallel()
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{ThroughProxy: true})
	s := &shop{Database: parts.Postgres(t, parts.AnyVersion), cluster: cluster{broker}, slot: parts.Unique("e2e"), file: t.TempDir() + "/postrider.toml"}
	s.Exec(t, numberedSQL)
	s.sql = s.Connect(t)
	c := withSnapshot(t, s, broker.Topic(t, partitions), "initial", smallChunks)
	c.fill(20_000)
	stop := c.write(1)
	r := c.listening()
	reached := int64(0)
	for i := range 4 {
		var streams bool
		reached, streams = c.copiedBeyond(r, reached)
		require.False(t, streams)
		if i == 3 {
			broker.Kill(t)
			broker.Restart(t)
		} else {
			broker.Proxy.Cut()
		}
	}
	for streams := false; !streams; {
		reached, streams = c.copiedBeyond(r, reached)
	}
	stop()
	c.requireExact(r, 20_000)
	r.Stop(t)
}

// A pair of relays, one of which copies for as long as its tables are large. The other waits for what the first holds, which is no slot.
func TestSnapshot_AStandbyBesideACopyIsQuiet(t *testing.T) {
	t.Parallel()
	c := newCopied(t, parts.AnyVersion, numberedSQL, "initial", "")
	c.fill(10)
	pg := postgres.DefaultConfig()
	pg.URL = secret.Of(c.DSN())
	copier, err := slot.TryLock(t.Context(), pg, c.slot) // as the relay that copies
	require.NoError(t, err)
	r := c.listening()
	looks := map[time.Time]bool{}
	parts.Await(t, "a standby that has looked often", func() (bool, error) {
		if !r.Running() {
			return false, errEnded
		}
		var at time.Time
		err := c.sql.QueryRow(t.Context(), `SELECT query_start FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'SELECT EXISTS%pg_replication_slots%'`).Scan(&at)
		if err == nil {
			looks[at] = true
		}
		return len(looks) >= 5, nil
	})
	require.Equal(t, 1, bytes.Count(r.Log.Bytes(), []byte(`"message":"session ended"`)), "it does not try again while nothing has changed")
	copier.Close()
	r.AwaitLog(t, "snapshot complete")
	c.requireExact(r, 10)
	r.Stop(t)
}
