package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestCopy_PublishesEachRowOnceBeforeTheSlotIsStreamed(t *testing.T) {
	x := newSnapshotPlace(t)
	x.insert(1, 10)
	x.watch()
	c := x.begun()
	require.Equal(t, phaseCreating, x.store.saved[0].Phase)
	require.Equal(t, phaseCopying, x.store.record().Phase)
	require.Equal(t, x.confirmed(), x.store.record().ConsistentPoint)
	x.insert(11, 12) // come by the slot
	x.exec(`DELETE FROM outbox WHERE id = 3`)

	other, err := x.begin()
	require.ErrorIs(t, err, replication.ErrSlotInUse, "one at a time")
	require.Nil(t, other)
	require.NoError(t, x.run(c, context.Background()))
	require.Equal(t, numbers(1, 10), x.published())
	r := x.store.record()
	require.Equal(t, phaseComplete, r.Phase)
	require.EqualValues(t, 10, r.Tables[0].Rows)
	require.True(t, r.Tables[0].Done)
	require.Equal(t, x.confirmed(), r.ConsistentPoint, "not before it is complete, and nothing by us")

	again, err := x.begin()
	require.NoError(t, err)
	require.Nil(t, again, "it is complete")
}

func TestCopy_TakesNoMoreThanAChunkAtATime(t *testing.T) {
	for name, limits := range map[string]Limits{"messages": {Messages: 3, Bytes: 1 << 20}, "bytes": {Messages: 100, Bytes: 3 * 1000}} {
		t.Run(name, func(t *testing.T) {
			x := newSnapshotPlace(t)
			x.parts.Limits = limits
			x.exec(`INSERT INTO outbox SELECT n, 'Order', 'k', repeat('0', 1000 - 1) || n FROM generate_series(1, 7) n`)
			x.watch()
			require.NoError(t, x.run(x.begun(), context.Background()))
			var rows []int64
			for _, r := range x.store.saved {
				if r.Phase == phaseCopying && len(r.Tables) > 0 && r.Tables[0].Last != nil {
					rows = append(rows, r.Tables[0].Rows)
				}
			}
			require.Equal(t, []int64{3, 6, 7}, rows)
			require.Equal(t, numbers(1, 7), x.published())
		})
	}
}

// Wherever it is cut off, the next Copy goes on there: each row that was in the table before is published once, in order, and none that comes by the slot.
func TestCopy_GoesOnWhereverItWasCutOff(t *testing.T) {
	t.Parallel()
	const rows = 5
	for what, cut := range map[string]func(x *snapshotPlace, n int){
		"a record is not saved": func(x *snapshotPlace, n int) {
			x.store.save = func(r *record) error {
				if n--; n < 0 && r.Phase != phaseCreating {
					return errCut
				}
				return nil
			}
		},
		"a record is saved, and nobody hears of it": func(x *snapshotPlace, n int) {
			x.store.save = func(r *record) error {
				if n--; n < 0 && r.Phase != phaseCreating {
					document, err := json.Marshal(r)
					x.store.newest[x.slot] = document
					return errors.Join(err, errCut)
				}
				return nil
			}
		},
		"a message is not delivered": func(x *snapshotPlace, n int) {
			x.broker.Refuse(nil, func(*sink.Message) error {
				if n--; n < 0 {
					return errCut
				}
				return nil
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			x := newSnapshotPlace(t)
			x.parts.Limits.Messages = 2
			for n := 0; ; n++ {
				*x.store = store{broker: x.broker, newest: map[string][]byte{}}
				before := len(x.broker.Messages())
				x.exec(`TRUNCATE outbox`)
				x.insert(1, rows)
				cut(x, n)
				c, err := x.begin()
				if err == nil {
					err = x.run(c, context.Background())
				}
				x.store.save = nil
				x.broker.Refuse(nil, nil)
				if err == nil {
					require.Greater(t, n, 3, "it was never cut off in the middle")
					return
				}
				require.ErrorIs(t, err, errCut)
				x.insert(rows+1, rows+2) // by the slot, which is there already
				if c, err = x.begin(); c != nil {
					err = x.run(c, context.Background())
				}
				require.NoError(t, err)
				require.Equal(t, numbers(1, rows), x.published()[before:], "cut off at %d", n)
				require.Equal(t, x.confirmed(), x.store.record().ConsistentPoint)
				require.EqualValues(t, rows, x.store.record().Tables[0].Rows)
				require.NoError(t, slot.Drop(t.Context(), x.conn, x.slot))
			}
		})
	}
}

// What earlier chunks have published is in the record: a table may have more rows than are good to read back.
func TestCopy_ReadsBackWhatItsLastChunkHasPublished(t *testing.T) {
	x := newSnapshotPlace(t)
	x.insert(1, 9)
	x.cutAt(9)
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(1, 9), x.published())
	require.Equal(t, 3, x.store.read)
}

// With each reading a row gets a new span, and a row without a context a new trace.
func TestCopy_FindsWhatItPublishedWithTracingHeaders(t *testing.T) {
	x := newSnapshotPlace(t)
	x.rules.TracingHeaders = true
	x.exec(`ALTER TABLE outbox ADD tracingspancontext text`)
	x.insert(1, 9)
	x.exec(`UPDATE outbox SET tracingspancontext = $1 WHERE id % 2 = 0`,
		"traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\ntracestate=a=b")
	x.cutAt(9)
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(1, 9), x.published())
	require.Contains(t, fmt.Sprint(x.broker.Messages()[1].Headers), "traceparent")
}

// A position means nothing behind other columns, as many or not.
func TestCopy_RefusesToGoOnByOtherUniqueColumns(t *testing.T) {
	for name, c := range map[string]struct {
		first, then string
		older       bool // the record has no names
		undo        string
	}{
		"one more":                          {"id", "id, place", false, `CREATE UNIQUE INDEX ON "public"."outbox" ("id")`},
		"another":                           {"id, place", "id, day", false, `CREATE UNIQUE INDEX ON "public"."outbox" ("id", "place")`},
		"one more than an older record has": {"id", "id, place", true, ``},
	} {
		t.Run(name, func(t *testing.T) {
			x := newSnapshotPlace(t)
			key := func(columns string) {
				x.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; ALTER TABLE outbox ADD PRIMARY KEY (` + columns + `)`)
			}
			x.exec(`ALTER TABLE outbox ADD place int NOT NULL DEFAULT 1, ADD day int NOT NULL DEFAULT 1`)
			key(c.first)
			x.insert(1, 9)
			x.cutAt(6)
			if c.older {
				r := x.store.record()
				r.Tables[0].Unique = nil
				document, err := json.Marshal(r)
				require.NoError(t, err)
				x.store.newest[x.slot] = document
			}
			key(c.then)
			_, err := x.begin()
			require.ErrorIs(t, err, slot.ErrNoSnapshot)
			require.ErrorContains(t, err, "and they are "+c.then+" now")
			var advised *slot.Error
			require.ErrorAs(t, err, &advised)
			require.Contains(t, advised.Fix, c.undo)
			key(c.first)
			require.NoError(t, x.run(x.begun(), context.Background()))
			require.Equal(t, numbers(1, 9), x.published())
		})
	}
}

// The unique columns of a table of which nothing was recorded yet may be others in the next attempt: its position is of those.
func TestCopy_RecordsTheUniqueColumnsThatItReadsBy(t *testing.T) {
	x := newSnapshotPlace(t)
	x.exec(`ALTER TABLE outbox ADD place int NOT NULL DEFAULT 1`)
	x.insert(1, 9)
	for _, published := range []int{3, 9} {
		x.cutAt(published)
		if published == 3 {
			x.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; ALTER TABLE outbox ADD PRIMARY KEY (id, place)`)
		}
	}
	require.Equal(t, []string{"id", "place"}, x.store.record().Tables[0].Unique)
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(1, 9), x.published())
}

// By commit time the rest of the rows is not what stands behind a position: all that was published since the beginning is looked for.
func TestCopy_GoesOnInTheOrderOfCommitTimes(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"track_commit_timestamp": "on"}})
	x := snapshotPlaceIn(t, pg.DSN())
	x.exec(`ALTER TABLE outbox ALTER id TYPE text`)
	x.exec(`CREATE TABLE done (LIKE outbox INCLUDING ALL); ALTER PUBLICATION postrider ADD TABLE done`)
	x.exec(`INSERT INTO done VALUES ('1', 'Done', 'k', '0')`)
	x.parts.Need.Tables = []string{"public.done", "public.outbox"}
	for n := range 10 { // a transaction for each, in another order than that of their ids
		x.exec(`INSERT INTO outbox VALUES ($1, 'Order', 'k', $2)`, fmt.Sprint(9-n), fmt.Sprint(n+1))
	}
	x.broker.Refuse(nil, func(m *sink.Message) error {
		if string(m.Value) == "8" {
			return errCut
		}
		return nil
	})
	require.ErrorIs(t, x.run(x.begun(), context.Background()), errCut)
	require.Equal(t, numbers(0, 7), x.published())
	require.Equal(t, "commit time", x.store.record().Tables[1].Order)
	x.exec(`UPDATE outbox SET payload = payload WHERE payload = '2'`) // which is the last one now
	x.exec(`INSERT INTO outbox VALUES ('x', 'Order', 'k', '11')`)

	x.broker.Refuse(nil, nil)
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(0, 10), x.published())
	require.EqualValues(t, 1, x.store.record().Tables[0].Rows, "which was done")
	require.EqualValues(t, 10, x.store.record().Tables[1].Rows)
}

func TestCopy_StopsBehindTheChunkThatIsOnItsWay(t *testing.T) {
	x := newSnapshotPlace(t)
	x.insert(1, 10)
	x.broker.Hold()
	stop, cancel := context.WithCancel(t.Context())
	reading := make(chan context.Context, 1)
	x.open = func(ctx context.Context, done sink.Done) (sink.Sink, error) {
		reading <- ctx
		return x.broker.Open(ctx, done)
	}
	c := x.begun()
	ended := make(chan error, 1)
	go func() { ended <- x.run(c, stop) }()
	waiting, giveUp := context.WithTimeout(t.Context(), patience)
	defer giveUp()
	require.NoError(t, x.broker.WaitPublished(waiting, 3))
	cancel()
	<-(<-reading).Done() // it has heard of it
	x.broker.Release(-1)
	require.NoError(t, <-ended)
	require.Equal(t, numbers(1, 3), x.published())
	require.Equal(t, phaseCopying, x.store.record().Phase, "the slot may not be streamed yet")
	require.EqualValues(t, 3, x.store.record().Tables[0].Rows)

	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(1, 10), x.published())
}

func TestCopy_PublishesWhatStandsBeforeARowThatItMayNotPublish(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(x *snapshotPlace)
		refusal       func(t *testing.T, err error)
	}{
		"its key is parked": {
			before: func(x *snapshotPlace) { x.parked["last"] = true },
			after:  func(x *snapshotPlace) { x.parked["last"] = false },
			refusal: func(t *testing.T, err error) {
				var parked *ParkedError
				require.ErrorAs(t, err, &parked)
				require.Equal(t, ParkedError{Table: "public.outbox", Row: 4, Topic: "outbox.event.Order"}, *parked)
			},
		},
		"it cannot be routed": {
			before: func(x *snapshotPlace) { x.exec(`UPDATE outbox SET aggregatetype = NULL WHERE id = 5`) },
			after:  func(x *snapshotPlace) { x.exec(`UPDATE outbox SET aggregatetype = 'Order' WHERE id = 5`) },
			refusal: func(t *testing.T, err error) {
				var row *router.RowError
				require.ErrorAs(t, err, &row)
				require.ErrorContains(t, err, "route row 4 of the snapshot of table public.outbox")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newSnapshotPlace(t)
			x.insert(1, 4)
			x.exec(`INSERT INTO outbox VALUES (5, 'Order', 'last', '5')`)
			c.before(x)
			for range 2 { // also when it is tried again
				c.refusal(t, x.run(x.begun(), context.Background()))
				require.Equal(t, numbers(1, 4), x.published())
				require.EqualValues(t, 4, x.store.record().Tables[0].Rows)
				require.False(t, x.store.record().Tables[0].Done)
				require.Equal(t, phaseCopying, x.store.record().Phase)
			}
			c.after(x)
			require.NoError(t, x.run(x.begun(), context.Background()))
			require.Equal(t, numbers(1, 5), x.published())
		})
	}
}

// A parked row that was published before it was parked is not published again, and does not stop the rest.
func TestCopy_PassesAParkedRowThatIsPublished(t *testing.T) {
	x := newSnapshotPlace(t)
	x.insert(1, 6)
	saves := 0
	x.store.save = func(*record) error {
		if saves++; saves == 4 { // the one behind the first three messages
			return errCut
		}
		return nil
	}
	require.ErrorIs(t, x.run(x.begun(), context.Background()), errCut)
	require.Equal(t, numbers(1, 3), x.published())
	require.Empty(t, x.store.record().Tables[0].Rows)
	x.store.save = nil
	x.exec(`UPDATE outbox SET aggregateid = 'free' WHERE id > 3`)
	x.parked["key 1"], x.parked["key 2"], x.parked["key 0"] = true, true, true
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(1, 6), x.published())
}

func TestCopy_GoesOnInTheOrderInWhichItBegan(t *testing.T) {
	x := newSnapshotPlace(t)
	x.exec(`ALTER TABLE outbox ADD at timestamptz NOT NULL DEFAULT now()`)
	x.insert(1, 6)
	x.broker.FailNext(errCut)
	require.ErrorIs(t, x.run(x.begun(), context.Background()), errCut)
	x.cfg.OrderBy = "at"
	c, err := x.begin()
	require.Nil(t, c)
	require.ErrorIs(t, err, slot.ErrNoSnapshot)
	require.ErrorContains(t, err, "in the order of id, and its order is at now")
	x.cfg.OrderBy = ""
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(1, 6), x.published())
}

// The record of a slot that is gone says nothing about the one that is made in its place.
func TestCopy_OfARecreatedSlotHasAllRows(t *testing.T) {
	x := newSnapshotPlace(t)
	x.cfg.Mode = WhenNeeded
	x.insert(1, 5)
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.NoError(t, slot.Drop(t.Context(), x.conn, x.slot))
	x.insert(6, 6)
	x.broker.Refuse(nil, func(m *sink.Message) error {
		if string(m.Value) == "5" {
			return errCut
		}
		return nil
	})
	require.ErrorIs(t, x.run(x.begun(), context.Background()), errCut)
	x.broker.Refuse(nil, nil)
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, slices.Concat(numbers(1, 5), numbers(1, 6)), x.published())
}

func TestSnapshot_LeavesASlotAloneThatItHasSeen(t *testing.T) {
	x := newSnapshotPlace(t)
	opened := 0
	x.parts.OpenStore = func(context.Context) (Store, error) { opened++; return x.store, nil }
	x.insert(1, 2)
	s := NewSnapshot(x.cfg, x.parts)
	for range 3 { // sessions
		c, err := s.Begin(t.Context(), opened == 0)
		require.NoError(t, err)
		if c != nil {
			require.NoError(t, x.run(c, context.Background()))
		}
	}
	require.Equal(t, 2, opened, "the second session learns that it is complete, the third knows")
	require.NoError(t, slot.Drop(t.Context(), x.conn, x.slot))
	_, err := s.Begin(t.Context(), false)
	require.ErrorIs(t, err, replication.ErrSlotLost, "what it knows is about the slot that was there")
}

func TestRecord_IsReadAsItWasWritten(t *testing.T) {
	s := &store{newest: map[string][]byte{}}
	none, err := load(t.Context(), s, "s")
	require.NoError(t, err)
	require.Nil(t, none)
	order := "1"
	r := &record{
		SystemID: "7", Slot: "s", Phase: phaseCopying, ConsistentPoint: "0/1", Xmax: 9, Running: []uint32{7, 8}, StartedAt: time.Unix(1, 0).UTC(),
		Tables: []tableProgress{{Name: "public.outbox", Order: "id", Rows: 7, Last: &Position{Order: &order, Key: []string{"7"}}}},
		Topics: map[string]topicOffsets{"t": {First: []int64{1, 2}, Last: []int64{3, 4}}},
	}
	require.NoError(t, r.save(t.Context(), s))
	back, err := load(t.Context(), s, "s")
	require.NoError(t, err)
	require.Equal(t, r, back)
	s.newest["s"] = []byte("{")
	_, err = load(t.Context(), s, "s")
	require.ErrorContains(t, err, `progress of the snapshot of slot "s"`)
	require.True(t, strings.HasPrefix(err.Error(), "read"))
}

// The record before may be of a host whose clock is ahead. The new one would count for one that arrives late.
func TestCopy_OfARecreatedSlotIsBehindTheRecordBefore(t *testing.T) {
	x := newSnapshotPlace(t)
	x.cfg.Mode = WhenNeeded
	x.insert(1, 5)
	require.NoError(t, x.run(x.begun(), context.Background()))
	ahead := x.store.record()
	ahead.SavedAt = time.Now().Add(time.Hour).UTC()
	document, err := json.Marshal(ahead)
	require.NoError(t, err)
	x.store.newest[x.slot], x.store.saved = document, nil
	require.NoError(t, slot.Drop(t.Context(), x.conn, x.slot))
	require.NoError(t, x.run(x.begun(), context.Background()))
	last := ahead.SavedAt
	for _, r := range x.store.saved {
		require.True(t, r.SavedAt.After(last), "%s was saved at %s, behind one of %s", r.Phase, r.SavedAt, last)
		last = r.SavedAt
	}
	require.Equal(t, phaseComplete, x.store.record().Phase)
}

// hooked calls hook before topics are read back, when a Copy that goes on has begun its transaction.
type hooked struct {
	*store
	hook func()
}

func (h *hooked) Read(ctx context.Context, topic string, from []int64, each func(*sink.Message)) error {
	h.hook()
	return h.store.Read(ctx, topic, from, each)
}

// rewrites hide the rows of a table from snapshots that are older.
var rewrites = map[string]string{
	"a default for each row": `ALTER TABLE outbox ADD COLUMN trace uuid DEFAULT gen_random_uuid()`,
	"another type":           `ALTER TABLE outbox ALTER COLUMN payload TYPE varchar(50)`,
	"TRUNCATE":               `TRUNCATE outbox`,
}

// refusesRewrite requires that somebody reads the outbox in a transaction that is open.
func refusesRewrite(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), `SET lock_timeout = '100ms'`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), sql)
	require.Equal(t, "55P03", postgres.SQLState(err), "%v", err)
}

// The table that is read last is locked before the first one is.
func TestCopy_HoldsItsTablesFromTheBeginning(t *testing.T) {
	for name, sql := range rewrites {
		t.Run(name, func(t *testing.T) {
			x := newSnapshotPlace(t)
			x.exec(`CREATE TABLE earlier (LIKE outbox INCLUDING ALL); ALTER PUBLICATION postrider ADD TABLE earlier`)
			x.exec(`INSERT INTO earlier VALUES (1, 'Order', 'k', '0')`)
			x.parts.Need.Tables = []string{"public.earlier", "public.outbox"}
			x.insert(1, 9)
			x.store.save = func(r *record) error {
				if r.Phase == phaseCopying && len(r.Tables) == 0 { // its slot has just been made
					refusesRewrite(t, x.conn, sql)
				}
				return nil
			}
			x.broker.Refuse(nil, func(*sink.Message) error { return errCut })
			require.ErrorIs(t, x.run(x.begun(), context.Background()), errCut)
			x.broker.Refuse(nil, nil)
			x.store.save = nil
			read := false
			x.parts.OpenStore = func(context.Context) (Store, error) {
				return &hooked{x.store, func() { read = true; refusesRewrite(t, x.conn, sql) }}, nil
			}
			require.NoError(t, x.run(x.begun(), context.Background()))
			require.True(t, read)
			require.Equal(t, numbers(0, 9), x.published())
			x.exec(sql) // it has ended
		})
	}
}

// source is what a Copy or a Recovery reads with.
func (x *snapshotPlace) source() *source {
	x.t.Helper()
	s, err := openSource(x.t.Context(), x.parts.Parts)
	require.NoError(x.t, err)
	x.t.Cleanup(s.close)
	require.NoError(x.t, s.describe(x.t.Context()))
	return s
}

// The transaction has its snapshot already when it comes to wait for the table.
func TestSource_BeginsAgainBehindARewriteItHasWaitedFor(t *testing.T) {
	for name, sql := range rewrites {
		t.Run(name, func(t *testing.T) {
			x := newSnapshotPlace(t)
			x.insert(1, 9)
			s := x.source()
			require.NoError(t, postgres.SetTimeout(t.Context(), s.conn, "lock_timeout", 0))
			x.exec(`BEGIN`)
			x.exec(sql)
			if name == "TRUNCATE" {
				x.insert(1, 9)
			}
			began, pid := make(chan error, 1), s.conn.PgConn().PID()
			go func() { began <- s.beginNow(t.Context(), "", 0) }() // ends with the COMMIT, or the test
			x.await(`SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)`, pid)
			x.exec(`COMMIT`)
			require.NoError(t, <-began)
			ids, _ := read(t, s.conn, s.tables[0], nil, -1)
			require.Len(t, ids, 9)
		})
	}
}

// The slot sends none of these rows, and its snapshot does not see them.
func TestSource_RefusesTheSnapshotOfASlotFromBeforeARewrite(t *testing.T) {
	for name, sql := range map[string]string{
		"a table":     `CREATE TABLE outbox (id bigint PRIMARY KEY, payload text)`,
		"a partition": `CREATE TABLE outbox (id bigint PRIMARY KEY, payload text) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF outbox DEFAULT`,
	} {
		t.Run(name, func(t *testing.T) {
			x := newSnapshotPlace(t)
			x.exec(`DROP TABLE outbox;` + sql)
			x.exec(`INSERT INTO outbox SELECT n, n FROM generate_series(1, 9) n; ALTER PUBLICATION postrider ADD TABLE outbox`)
			x.exec(`ALTER PUBLICATION postrider SET (publish_via_partition_root)`)
			s := x.source()
			begin := func() error {
				var e *exportedSlot
				parts.Await(t, "a slot", func() (_ bool, err error) { // transactions of other tests may be open
					e, err = createExported(t.Context(), x.parts.Postgres, s.conn, x.parts.Need.Slot)
					if errors.Is(err, slot.ErrBlocked) {
						return false, nil
					}
					return true, err
				})
				x.exec(sql)
				return s.beginAt(t.Context(), e)
			}
			sql = `ALTER TABLE outbox ADD COLUMN trace uuid DEFAULT gen_random_uuid()`
			err := begin()
			require.ErrorIs(t, err, slot.ErrRewritten)
			require.ErrorContains(t, err, `"public"."outbox"`)
			_, err = s.conn.Exec(t.Context(), `ROLLBACK`)
			require.NoError(t, err)
			require.NoError(t, slot.Drop(t.Context(), x.conn, x.slot))

			sql = `ALTER TABLE outbox ADD COLUMN innocent int`
			require.NoError(t, begin())
			ids, _ := read(t, s.conn, s.tables[0], nil, -1)
			require.Len(t, ids, 9)
		})
	}
}

func TestSource_NamesTheLockThatItHasNotGot(t *testing.T) {
	x := newSnapshotPlace(t)
	s := x.source()
	x.exec(`BEGIN; LOCK TABLE outbox`)
	err := s.beginNow(t.Context(), "", 0)
	require.ErrorIs(t, err, postgres.ErrLocked)
	var advised *slot.Error
	require.ErrorAs(t, err, &advised)
	require.Contains(t, advised.Fix, "pg_blocking_pids")
	_, err = x.begin()
	require.ErrorIs(t, err, postgres.ErrLocked)
}

// loseLock ends the session that has the lock of the slot.
func loseLock(t *testing.T, conn *pgx.Conn, name string) {
	t.Helper()
	tag, err := conn.Exec(t.Context(), `SELECT FROM pg_replication_slots WHERE slot_name = $1 AND pg_terminate_backend(active_pid, 5000)`, slot.LockName(name))
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
}

// The next process has the lock then, and publishes each row.
func TestCopy_EndsWithItsLock(t *testing.T) {
	x := newSnapshotPlace(t)
	x.insert(1, 30)
	a, taken := x.begun(), false
	x.store.save = func(*record) error {
		if len(x.broker.Messages()) == 9 && !taken {
			taken = true
			loseLock(t, x.conn, x.slot)
			require.NoError(t, x.run(x.begun(), context.Background()), "who stands by")
		}
		return nil
	}
	require.ErrorContains(t, x.run(a, context.Background()), "the lock of the tables is lost")
	require.True(t, taken)
	require.Equal(t, numbers(1, 30), x.published())
}
