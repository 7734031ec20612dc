package replication_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

var versions = []string{"14", "15", "16", "17", "18"}

// table is an outbox with its publication and slot, in a database of its own.
type table struct {
	t    *testing.T
	db   *parts.Database
	conn *pgx.Conn
	slot string
	cfg  replication.Config
}

func newTable(t *testing.T, version string) *table {
	return newTableIn(t, parts.Postgres(t, version))
}

func newTableIn(t *testing.T, db *parts.Database) *table {
	x := &table{t: t, db: db, conn: db.Connect(t), slot: parts.Unique("slot"), cfg: replication.DefaultConfig()}
	x.exec(`CREATE TABLE outbox (n bigint, payload text)`)
	x.exec(`CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`)
	x.exec(`SELECT pg_create_logical_replication_slot('` + x.slot + `', 'pgoutput')`)
	x.cfg.Messages = []string{"outbox"}
	return x
}

func (x *table) exec(sql string, args ...any) {
	x.t.Helper()
	_, err := x.conn.Exec(x.t.Context(), sql, args...)
	require.NoError(x.t, err)
}

func (x *table) confirmed() pglogrepl.LSN {
	x.t.Helper()
	var text string
	require.NoError(x.t, x.conn.QueryRow(x.t.Context(),
		`SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, x.slot).Scan(&text))
	lsn, err := pglogrepl.ParseLSN(text)
	require.NoError(x.t, err)
	return lsn
}

func (x *table) pg() *pgconn.Config {
	x.t.Helper()
	pg, err := pgconn.ParseConfig(x.db.DSN())
	require.NoError(x.t, err)
	pg.RuntimeParams["replication"] = "database"
	return pg
}

func (x *table) open() *replication.Stream {
	x.t.Helper()
	s, err := replication.Open(x.t.Context(), x.pg(), x.cfg, x.slot, zerolog.Nop())
	require.NoError(x.t, err)
	return s
}

// reading is a stream in Run. Its watermark is what the test sets.
type reading struct {
	x      *table
	stream *replication.Stream
	out    chan *replication.Batch
	ended  chan error
	stop   context.CancelFunc
	acked  func() pglogrepl.LSN
}

func (x *table) read(acked func() pglogrepl.LSN) *reading { return x.run(x.open(), acked) }

func (x *table) run(stream *replication.Stream, acked func() pglogrepl.LSN) *reading {
	ctx, cancel := context.WithTimeout(x.t.Context(), parts.Patience)
	stopping, stop := context.WithCancel(ctx)
	r := &reading{x: x, stream: stream, out: make(chan *replication.Batch), ended: make(chan error, 1), stop: stop, acked: acked}
	if acked == nil {
		seed := r.stream.SeedLSN()
		r.acked = func() pglogrepl.LSN { return seed }
	}
	go func() { r.ended <- r.stream.Run(ctx, stopping, r.out, r.acked) }()
	x.t.Cleanup(cancel)
	return r
}

// rows collects events until n rows or messages and their last Commit were read.
func (r *reading) rows(n int) (events []replication.Event) {
	r.x.t.Helper()
	for got := 0; got < n || events[len(events)-1].Kind != replication.Commit; {
		b, ok := <-r.out
		if !ok {
			require.NoError(r.x.t, <-r.ended, "the stream ended after %d of %d rows", got, n)
			require.Fail(r.x.t, "the stream ended early")
		}
		for _, e := range b.Events {
			if e.Kind == replication.Insert || e.Kind == replication.Update || e.Kind == replication.Message {
				got++
			}
			if e.Kind != replication.Idle {
				events = append(events, e)
			}
		}
	}
	return events
}

// finish stops cleanly.
func (r *reading) finish() {
	r.x.t.Helper()
	r.stop()
	for range r.out {
	}
	require.NoError(r.x.t, <-r.ended)
	drained := make(chan struct{})
	close(drained)
	ctx, cancel := context.WithTimeout(context.Background(), parts.Patience)
	defer cancel()
	require.NoError(r.x.t, r.stream.Finish(ctx, drained))
}

func each(t *testing.T, versions []string, f func(*testing.T, string)) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) { f(t, v) })
	}
}

func TestStream_BringsRowsInCommitOrder(t *testing.T) {
	each(t, versions, func(t *testing.T, version string) {
		x := newTable(t, version)
		r := x.read(nil)
		x.exec(`INSERT INTO outbox VALUES (1, 'a'), (2, NULL), (3, '')`)
		x.exec(`SELECT pg_logical_emit_message(true, 'outbox', '{"n": 4}')`)
		x.exec(`INSERT INTO outbox VALUES (5, 'e')`)
		events := r.rows(5)
		r.finish()

		var texts []string
		for _, e := range events {
			switch e.Kind {
			case replication.Insert:
				texts = append(texts, fmt.Sprintf("%d:%s=%q nil=%v", e.Index, e.Values[0], e.Values[1], e.Values[1] == nil))
			case replication.Message:
				texts = append(texts, fmt.Sprintf("%d:%s %s", e.Index, e.Prefix, e.Content))
			}
		}
		require.Equal(t, []string{`0:1="a" nil=false`, `1:2="" nil=true`, `2:3="" nil=false`, `0:outbox {"n": 4}`, `0:5="e" nil=false`}, texts)
		require.Equal(t, "public.outbox", events[1].Relation.String())
	})
}

func TestStream_BringsUpdatesWithTheKeyThatWas(t *testing.T) {
	each(t, versions, func(t *testing.T, version string) {
		x := newTable(t, version)
		x.exec(`ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL, ADD PRIMARY KEY (n)`)
		x.exec(`ALTER PUBLICATION postrider SET (publish = 'insert, update, delete, truncate')`)
		r := x.read(nil)
		x.exec(`INSERT INTO outbox VALUES (1, repeat('long', 1000))`)
		x.exec(`UPDATE outbox SET payload = payload`)
		x.exec(`UPDATE outbox SET n = 2`)
		x.exec(`ALTER TABLE outbox REPLICA IDENTITY FULL`)
		x.exec(`UPDATE outbox SET n = 3`)
		x.exec(`DELETE FROM outbox`)
		x.exec(`TRUNCATE outbox`)
		events := r.rows(4)
		r.finish()

		var updates []replication.Event
		for _, e := range events {
			if e.Kind == replication.Update {
				updates = append(updates, e)
			}
		}
		require.Len(t, updates, 3)
		require.Nil(t, updates[0].Old, "the key did not change")
		require.Equal(t, "1", string(updates[1].Old[0]))
		require.Equal(t, "2", string(updates[1].Values[0]))
		require.Equal(t, "__debezium_unavailable_value", string(updates[1].Values[1]), "unchanged and out of line")
		require.Equal(t, "3", string(updates[2].Values[0]))
		require.Len(t, updates[2].Values[1], 4000, "the whole old row has it")
	})
}

// A message outside of a transaction is confirmed by its own position: not again after that, and not lost before.
func TestStream_ConfirmsAMessageOutsideOfATransaction(t *testing.T) {
	each(t, versions, func(t *testing.T, version string) {
		x := newTable(t, version)
		emit := func(content string) {
			x.exec(`SELECT pg_logical_emit_message(false, 'outbox', '` + content + `')`)
			x.exec(`INSERT INTO outbox VALUES (0, '')`) // flushes the WAL
		}
		messages := func(r *reading, n int) (contents []string, end pglogrepl.LSN) {
			for _, e := range r.rows(n) {
				if e.Kind == replication.Message {
					contents = append(contents, string(e.Content))
					end = e.LSN
				}
			}
			return contents, end
		}
		emit("first")
		r := x.read(nil) // acks nothing
		emit("second")
		got, _ := messages(r, 4)
		require.Equal(t, []string{"first", "second"}, got)
		r.finish()

		var acked atomic.Uint64
		again := x.read(func() pglogrepl.LSN { return pglogrepl.LSN(acked.Load()) })
		got, end := messages(again, 4)
		require.Equal(t, []string{"first", "second"}, got, "nothing was confirmed")
		acked.Store(uint64(end))
		again.finish()
		require.Equal(t, end, x.confirmed())

		emit("third")
		after := x.read(nil)
		got, _ = messages(after, 3)
		require.Equal(t, []string{"third"}, got)
		after.finish()

		// The commit record of a transaction can begin right where a message ends.
		x.exec(`INSERT INTO outbox VALUES (1, 'behind'); SELECT pg_logical_emit_message(false, 'outbox', 'in front')`)
		in := x.read(func() pglogrepl.LSN { return pglogrepl.LSN(acked.Load()) })
		events := in.rows(4)
		i := slices.IndexFunc(events, func(e replication.Event) bool { return string(e.Content) == "in front" })
		require.Equal(t, replication.Commit, events[i+1].Kind)
		acked.Store(uint64(events[i+1].LSN))
		in.finish()
		x.exec(`INSERT INTO outbox VALUES (2, 'later')`)
		rest := x.read(nil)
		require.Equal(t, "behind", string(rest.rows(1)[1].Values[1]))
		rest.finish()
	})
}

// The commit record of a transaction may begin where the record of a message ends.
func TestStream_ConfirmingAMessageKeepsTheTransactionThatCommitsBehindIt(t *testing.T) {
	each(t, versions, func(t *testing.T, version string) {
		x := newTable(t, version)
		other := x.db.Connect(t)
		x.exec(`BEGIN`)
		x.exec(`INSERT INTO outbox VALUES (1, '')`)
		_, err := other.Exec(t.Context(), `SELECT pg_logical_emit_message(false, 'outbox', 'alone')`)
		require.NoError(t, err)
		x.exec(`COMMIT`)

		var acked atomic.Uint64
		r := x.read(func() pglogrepl.LSN { return pglogrepl.LSN(acked.Load()) })
		events := r.rows(2)
		require.Equal(t, replication.Message, events[1].Kind)
		require.Equal(t, replication.Commit, events[2].Kind)
		acked.Store(uint64(events[2].LSN))
		r.finish()
		require.Equal(t, events[2].LSN, x.confirmed())

		again := x.read(nil)
		events = again.rows(1)
		require.Equal(t, replication.Insert, events[1].Kind, "it was not acked")
		again.finish()
	})
}

func TestStream_RowsOfOneCopyHaveDistinctEventPositions(t *testing.T) {
	x := newTable(t, "18")
	r := x.read(nil)
	_, err := x.conn.CopyFrom(t.Context(), pgx.Identifier{"outbox"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}, {2}, {3}, {4}, {5}}))
	require.NoError(t, err)
	events := r.rows(5)
	r.finish()
	seen := map[string]bool{}
	for _, e := range events {
		if e.Kind == replication.Insert {
			seen[fmt.Sprintf("%s/%d", e.LSN, e.Index)] = true
		}
	}
	require.Len(t, seen, 5)
}

func TestStream_ConfirmsNothingThatIsNotAcked(t *testing.T) {
	each(t, versions, func(t *testing.T, version string) {
		x := newTable(t, version)
		before := x.confirmed()
		r := x.read(nil) // acks nothing
		x.exec(`INSERT INTO outbox VALUES (1, 'a')`)
		r.rows(1)
		r.finish()
		require.Equal(t, before, x.confirmed())

		again := x.read(nil)
		require.Equal(t, before, again.stream.SeedLSN())
		again.rows(1)
		again.finish()
	})
}

func TestStream_ClampsAWatermarkBeyondWhatItHasSeen(t *testing.T) {
	each(t, []string{"14", "18"}, func(t *testing.T, version string) {
		x := newTable(t, version)
		r := x.read(func() pglogrepl.LSN { return 1 << 60 }) // a caller with a bug
		x.exec(`INSERT INTO outbox VALUES (1, 'a')`)
		r.rows(1)
		r.finish()
		require.LessOrEqual(t, x.confirmed(), r.stream.ReceivedLSN())

		x.exec(`INSERT INTO outbox VALUES (2, 'b')`)
		next := x.read(nil)
		require.Equal(t, "2", string(next.rows(1)[1].Values[0]), "the server would skip a row that lies before what was confirmed")
		next.finish()
	})
}

func TestStream_FinishConfirmsTheLastAck(t *testing.T) {
	each(t, versions, func(t *testing.T, version string) {
		x := newTable(t, version)
		var acked atomic.Uint64
		r := x.read(func() pglogrepl.LSN { return pglogrepl.LSN(acked.Load()) })
		x.exec(`INSERT INTO outbox VALUES (1, 'a')`)
		events := r.rows(1)
		end := events[len(events)-1].LSN
		r.stop()
		for range r.out {
		}
		require.NoError(t, <-r.ended)
		require.Less(t, x.confirmed(), end)
		// The watermark moves after Run has returned, as when the broker answers during a drain.
		acked.Store(uint64(end))
		drained := make(chan struct{})
		close(drained)
		require.NoError(t, r.stream.Finish(t.Context(), drained))
		require.GreaterOrEqual(t, x.confirmed(), end)
	})
}

func TestStream_IdlePositionsReleaseWAL(t *testing.T) {
	each(t, []string{"14", "18"}, func(t *testing.T, version string) {
		x := newTable(t, version)
		x.exec(`CREATE TABLE unrelated (n int)`)
		var acked atomic.Uint64
		r := x.read(func() pglogrepl.LSN { return pglogrepl.LSN(acked.Load()) })
		var target string
		x.exec(`INSERT INTO unrelated SELECT generate_series(1, 10000)`)
		require.NoError(t, x.conn.QueryRow(t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&target))
		want, err := pglogrepl.ParseLSN(target)
		require.NoError(t, err)
		for reached := false; !reached; {
			b, ok := <-r.out
			require.True(t, ok, "the stream ended")
			for _, e := range b.Events {
				require.Equal(t, replication.Idle, e.Kind, "nothing of ours was written")
				acked.Store(uint64(e.LSN))
				reached = reached || e.LSN >= want
			}
		}
		r.finish()
		require.GreaterOrEqual(t, x.confirmed(), want, "an idle position that is acknowledged is confirmed")
	})
}

func TestStream_StatusesGoOnWhileNobodyTakesTheEvents(t *testing.T) {
	t.Parallel()
	x := newTable(t, "18")
	x.cfg.StatusInterval = 200 * time.Millisecond
	pg := x.pg()
	pg.RuntimeParams["wal_sender_timeout"] = "3s"
	s, err := replication.Open(t.Context(), pg, x.cfg, x.slot, zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	out, ended := make(chan *replication.Batch), make(chan error, 1)
	go func() { ended <- s.Run(ctx, t.Context(), out, s.SeedLSN) }()
	x.exec(`INSERT INTO outbox SELECT n, repeat('x', 1000) FROM generate_series(1, 50000) n`) // more than the socket holds

	// So many statuses, 200 ms apart, span two timeouts.
	last, replies := time.Time{}, 0
	for replies < 30 {
		var reply *time.Time
		require.NoError(t, x.conn.QueryRow(ctx, `SELECT max(reply_time) FROM pg_stat_replication
			WHERE pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1)`, x.slot).Scan(&reply))
		if reply != nil && reply.After(last) {
			last, replies = *reply, replies+1
		}
		select {
		case err := <-ended:
			require.NoError(t, err, "the server took the blocked relay for dead")
		default:
		}
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	_ = s.Finish(ctx, nil) // whether the server answers in the middle of a large transaction does not matter here
}

func TestStream_StopEndsAtTheCommitOfTheOpenTransaction(t *testing.T) {
	x := newTable(t, "18")
	r := x.read(nil)
	x.exec(`INSERT INTO outbox SELECT n, repeat('x', 200) FROM generate_series(1, 20000) n`)
	first := <-r.out
	for first.Events[len(first.Events)-1].Kind == replication.Idle { // a keepalive may have come before
		first = <-r.out
	}
	require.NotEqual(t, replication.Commit, first.Events[len(first.Events)-1].Kind)
	x.exec(`INSERT INTO outbox VALUES (-1, 'a later transaction')`)
	r.stop()
	rows := 0
	var last replication.Event
	count := func(b *replication.Batch) {
		for _, e := range b.Events {
			if e.Kind == replication.Insert {
				rows++
			}
			if e.Kind != replication.Idle { // a keepalive may still have come
				last = e
			}
		}
	}
	count(first)
	for b := range r.out {
		count(b)
	}
	require.NoError(t, <-r.ended)
	require.Equal(t, 20000, rows)
	require.Equal(t, replication.Commit, last.Kind)
	drained := make(chan struct{})
	close(drained)
	require.NoError(t, r.stream.Finish(t.Context(), drained))
}

// Of a row that is too long the leading columns arrive, and all that comes behind it.
func TestStream_LeavesOutWhatIsTooLong(t *testing.T) {
	each(t, []string{"14", "18"}, func(t *testing.T, version string) {
		x := newTable(t, version)
		x.cfg.MaxRowBytes = 80 << 10
		x.exec(`CREATE TABLE other (n bigint, first text, payload text, last text)`)
		x.exec(`ALTER PUBLICATION postrider ADD TABLE other`)
		r := x.read(nil)
		x.exec(`BEGIN; INSERT INTO outbox VALUES (1, 'before');
			INSERT INTO outbox VALUES (2, repeat('x', 3000000));
			INSERT INTO other VALUES (3, repeat('y', 70000), repeat('x', 70000), 'last');
			INSERT INTO other VALUES (4, NULL, repeat('x', 90000), 'last');
			INSERT INTO outbox VALUES (5, 'between');
			SELECT pg_logical_emit_message(true, 'outbox', repeat('z', 100000));
			INSERT INTO outbox VALUES (6, 'behind'); COMMIT`)
		x.exec(`SELECT pg_logical_emit_message(false, 'outbox', repeat('z', 100000))`)
		x.exec(`INSERT INTO outbox VALUES (7, 'next')`)
		var rows []string
		events := r.rows(9)
		for _, e := range events {
			switch e.Kind {
			case replication.Insert:
				var values []string
				for _, v := range e.Values {
					if v == nil {
						values = append(values, "-")
						continue
					}
					values = append(values, string(v[:min(len(v), 7)]))
				}
				rows = append(rows, fmt.Sprint(e.Index, e.Relation.Name, values, e.Oversize > x.cfg.MaxRowBytes))
			case replication.Message:
				require.Nil(t, e.Content)
				rows = append(rows, fmt.Sprint(e.Index, e.Prefix, e.Oversize > 100_000))
			}
		}
		require.Equal(t, []string{
			"0outbox[1 before] false", "1outbox[2 -] true", "2other[3 - - -] true", "3other[4 - - -] true",
			"4outbox[5 between] false", "5outboxtrue", "6outbox[6 behind] false", "0outboxtrue", "0outbox[7 next] false",
		}, rows)
		require.Greater(t, events[2].Oversize, int64(3_000_000))
		require.Less(t, events[2].Oversize, int64(3_000_200))
		r.finish()
	})
}

// Statuses go on while a long row is read and thrown away, and it takes no memory.
func TestStream_StatusesGoOnWhileARowIsThrownAway(t *testing.T) {
	t.Parallel()
	x := newTable(t, "18")
	x.cfg.MaxRowBytes = 1 << 20
	x.cfg.StatusInterval = 100 * time.Millisecond
	u, err := url.Parse(x.db.DSN())
	require.NoError(t, err)
	proxy, err := parts.StartProxy(u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	u.Host = proxy.Addr()
	pg, err := pgconn.ParseConfig(u.String())
	require.NoError(t, err)
	pg.RuntimeParams["replication"] = "database"
	pg.RuntimeParams["wal_sender_timeout"] = "3s" // without a status in time the server ends it
	s, err := replication.Open(t.Context(), pg, x.cfg, x.slot, zerolog.Nop())
	require.NoError(t, err)
	r := x.run(s, nil)
	x.exec(`INSERT INTO outbox VALUES (1, 'before')`)
	r.rows(1)
	proxy.Delay(3 * time.Millisecond) // for each piece: 5 s at least
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x.exec(`INSERT INTO outbox VALUES (2, repeat('x', 60000000))`)
	x.exec(`INSERT INTO outbox VALUES (3, 'behind')`)
	events := r.rows(2)
	runtime.ReadMemStats(&after)
	require.Greater(t, events[1].Oversize, int64(60_000_000))
	require.Equal(t, "behind", string(events[4].Values[1]))
	t.Logf("%d KiB allocated", (after.TotalAlloc-before.TotalAlloc)>>10)
	r.finish()
}

func TestOpen_SaysWhatIsWrongWithTheSlot(t *testing.T) {
	each(t, []string{"14", "18"}, func(t *testing.T, version string) {
		x := newTable(t, version)
		open := func(slot string) error {
			s, err := replication.Open(t.Context(), x.pg(), x.cfg, slot, zerolog.Nop())
			if err == nil {
				require.NoError(t, s.Finish(t.Context(), closed()))
			}
			return err
		}
		require.ErrorIs(t, open("no_such_slot"), replication.ErrSlotMissing)

		x.exec(`SELECT pg_create_logical_replication_slot('` + x.slot + `_two', 'pgoutput', false, true)`)
		require.ErrorIs(t, open(x.slot+"_two"), replication.ErrSlotUnusable)

		holder := x.read(nil)
		require.ErrorIs(t, open(x.slot), replication.ErrSlotInUse)
		holder.finish()
		require.NoError(t, open(x.slot))
	})
}

// A network that closes a connection in order looks like the server: EOF, or a write that fails.
func TestStream_SaysThatItsConnectionIsLost(t *testing.T) {
	x := newTable(t, parts.AnyVersion)
	server, err := url.Parse(x.db.DSN())
	require.NoError(t, err)
	network, err := parts.StartProxy(server.Host)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, network.Close()) })
	cfg := x.pg()
	host, port, err := net.SplitHostPort(network.Addr())
	require.NoError(t, err)
	number, err := strconv.ParseUint(port, 10, 16)
	require.NoError(t, err)
	cfg.Host, cfg.Port, cfg.Fallbacks = host, uint16(number), nil
	stream, err := replication.Open(t.Context(), cfg, x.cfg, x.slot, zerolog.Nop())
	require.NoError(t, err)
	r := x.run(stream, nil)
	x.exec(`INSERT INTO outbox VALUES (1, 'a')`)
	r.rows(1)
	network.Cut()
	for range r.out {
	}
	require.ErrorIs(t, <-r.ended, replication.ErrStreamLost)
	stream.Abandon()
}

func TestStream_MissingPublicationEndsIt(t *testing.T) {
	each(t, versions, func(t *testing.T, version string) {
		x := newTable(t, version)
		x.cfg.Publication = "no_such_publication"
		x.exec(`ALTER DATABASE ` + x.conn.Config().Database + ` SET client_min_messages = error`) // a warning on 18
		r := x.read(nil)
		x.exec(`INSERT INTO outbox VALUES (1, 'a')`)
		for range r.out {
		}
		require.ErrorIs(t, <-r.ended, replication.ErrPublicationMissing)
	})
}

// The server warns of a standby that holds the stream up with the code that it also has for a missing publication.
func TestStream_AStandbyThatHoldsItUpDoesNotEndIt(t *testing.T) {
	each(t, []string{"17", "18"}, func(t *testing.T, version string) {
		server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: map[string]string{"synchronized_standby_slots": "standby1"}})
		x := newTableIn(t, parts.NewDatabase(t, server.DSN()))
		x.slot = parts.Unique("failover")
		x.exec(`SELECT pg_create_logical_replication_slot('` + x.slot + `', 'pgoutput', failover => true)`)
		x.exec(`SELECT pg_create_physical_replication_slot('standby1')`)
		warned := make(chan struct{})
		log := zerolog.New(writer(func(line []byte) {
			if bytes.Contains(line, []byte("standby1")) {
				select {
				case <-warned:
				default:
					close(warned)
				}
			}
		}))
		stream, err := replication.Open(t.Context(), x.pg(), x.cfg, x.slot, log)
		require.NoError(t, err)
		r := x.run(stream, nil)
		x.exec(`INSERT INTO outbox VALUES (1, 'a')`)
		select {
		case <-warned:
		case <-time.After(parts.Patience):
			require.Fail(t, "the server did not warn")
		}
		x.exec(`ALTER SYSTEM SET synchronized_standby_slots = ''`)
		x.exec(`SELECT pg_reload_conf()`)
		require.NotEmpty(t, r.rows(1), "it goes on when the standby is out of the list")
		r.finish()
	})
}

// writer is called with each line of a log, from one goroutine.
type writer func([]byte)

func (w writer) Write(line []byte) (int, error) { w(line); return len(line), nil }

func TestOpenTemporary_LeavesNothingBehind(t *testing.T) {
	each(t, []string{"14", "18"}, func(t *testing.T, version string) {
		x := newTable(t, version)
		name := parts.Unique("temporary")
		s, err := replication.OpenTemporary(t.Context(), x.pg(), x.cfg, name, zerolog.Nop())
		require.NoError(t, err)
		var temporary bool
		require.NoError(t, x.conn.QueryRow(t.Context(), `SELECT temporary FROM pg_replication_slots WHERE slot_name = $1`, name).Scan(&temporary))
		require.True(t, temporary)
		require.NoError(t, s.Finish(t.Context(), closed()))
		require.Eventually(t, func() bool {
			var n int
			return x.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, name).Scan(&n) == nil && n == 0
		}, parts.Patience, 10*time.Millisecond)
	})
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
