package backfill

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestRecovery_PublishesWhatIsMissingAndMakesTheSlot(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 8)
	x.deliver(1, 2, 5)
	report := x.published(Selection{})
	x.insert(9, 9)
	require.Equal(t, []int{1, 2, 5, 3, 4, 6, 7, 8}, x.payloads())
	require.Equal(t, []int{9}, x.streamed(), "everything else comes by the slot")
	made, _ := x.get(x.slot)
	require.NoError(t, slot.Verify(made.Slot, x.conn.Config().Database))
	require.Equal(t, made.ConfirmedFlushLSN, report.ConsistentPoint)
	_, there := x.get(NewSlotName(x.slot))
	require.False(t, there)
	require.True(t, report.Recreated)
	require.EqualValues(t, 5, report.Published)
	require.EqualValues(t, 5, report.Undelivered())
	table := report.Tables[0]
	require.Equal(t, []any{int64(8), int64(3), int64(5), "3", "8"}, []any{table.Rows, table.Delivered, table.Undelivered, table.First.ID, table.Last.ID})
	require.NotEmpty(t, table.First.Time)
	require.Equal(t, []TopicReport{{Topic: "outbox.event.Order", Records: 3, Whole: true, Undelivered: 5}}, report.Topics)

	again := x.published(Selection{})
	require.Equal(t, "usable", again.State)
	require.EqualValues(t, 1, again.BySlot)
	require.Zero(t, again.Published)
	require.Len(t, x.payloads(), 8)
}

// A table that is rewritten in between would look empty.
func TestRecovery_HoldsItsTablesFromTheBeginning(t *testing.T) {
	for name, sql := range rewrites {
		t.Run(name, func(t *testing.T) {
			x := newRecoveryPlace(t)
			x.insert(1, 8)
			x.deliver(1, 2, 5)
			open, opened := x.parts.Router, 0
			x.parts.Router = func() (*router.Router, error) {
				opened++
				refusesRewrite(t, x.conn, sql)
				return open()
			}
			require.EqualValues(t, 5, x.planned(Selection{}).Undelivered())
			require.EqualValues(t, 5, x.published(Selection{}).Published) // at the new slot
			require.Len(t, x.payloads(), 8)
			require.EqualValues(t, 8, x.planned(Selection{}).Tables[0].Delivered)
			require.NotZero(t, opened)
		})
	}
}

func TestRecovery_FindsWhatWasDeliveredWithTracingHeaders(t *testing.T) {
	x := newRecoveryPlace(t)
	x.exec(`ALTER TABLE outbox ADD tracingspancontext text`)
	x.parts.Router = func() (*router.Router, error) {
		cfg := router.DefaultConfig()
		cfg.TracingHeaders = true
		return router.New([]router.Config{cfg}, router.DefaultFormat(), router.Options{Tables: []string{"public.outbox"}})
	}
	x.insert(1, 8)
	x.exec(`UPDATE outbox SET tracingspancontext = 'traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' WHERE id = 2`)
	x.deliver(1, 2, 5)
	require.EqualValues(t, 5, x.published(Selection{}).Published)
	require.Equal(t, []int{1, 2, 5, 3, 4, 6, 7, 8}, x.payloads())
}

func TestRecovery_PlanChangesNothing(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 4)
	x.deliver(2)
	x.topics.lost = true
	report := x.planned(Selection{})
	require.EqualValues(t, 3, report.Undelivered())
	require.ErrorIs(t, report.Refusal, ErrIncomplete)
	require.Equal(t, []int{2}, x.payloads())
	for _, name := range []string{x.slot, NewSlotName(x.slot)} {
		_, there := x.get(name)
		require.False(t, there, name)
	}
}

// Each attempt goes on where the last one was cut off: no row twice, and those that were committed meanwhile come by the new slot, which stays.
func TestRecovery_CanBeRepeatedWhereverItWasCutOff(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 7)
	for n := range 7 {
		x.refuse(strconv.Itoa(n + 1))
		_, err := x.publish(Selection{})
		require.ErrorIs(t, err, errCut)
		require.Len(t, x.payloads(), n)
		_, there := x.get(NewSlotName(x.slot))
		require.True(t, there, "it keeps what is committed from the first attempt on")
		_, there = x.get(x.slot)
		require.False(t, there, "nobody can stream past the gap")
		x.insert(8+n, 8+n)
	}
	x.broker.Refuse(nil, nil)
	report := x.published(Selection{})
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, x.payloads())
	require.Equal(t, []int{8, 9, 10, 11, 12, 13, 14}, x.streamed())
	require.EqualValues(t, 7, report.BySlot)
	require.True(t, report.Recreated)
	require.Contains(t, strings.Join(x.said, "\n"), "which an earlier attempt has made, is used")
}

func TestRecovery_LeavesNothingBehindWhenNothingWasPublished(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 2)
	x.exec(`INSERT INTO outbox VALUES (3, NULL, 'k', '3')`)
	_, err := x.publish(Selection{})
	require.ErrorContains(t, err, "1 row of table public.outbox cannot be published")
	require.Empty(t, x.payloads())
	_, there := x.get(NewSlotName(x.slot))
	require.False(t, there, "it would keep WAL for nothing")

	require.EqualValues(t, 1, x.published(Selection{SkipRefused: true}).Tables[0].Refused)
	require.Equal(t, []int{1, 2}, x.payloads())
}

func TestRecovery_OfSomeRowsMakesNoSlot(t *testing.T) {
	for name, sel := range map[string]Selection{
		"ids":   {IDs: []string{"2", "3"}},
		"until": {Until: time.Now().Add(24 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRecoveryPlace(t)
			x.insert(2, 3)
			report := x.published(sel)
			require.EqualValues(t, 2, report.Published)
			require.False(t, report.Recreated)
			for _, name := range []string{x.slot, NewSlotName(x.slot)} {
				_, there := x.get(name)
				require.False(t, there, "rows that are not selected are not delivered, and a slot would hide it")
			}
		})
	}
}

// What is older than the topics' beginnings may have been delivered.
func TestRecovery_RefusesToGuessWhatTopicsHaveLost(t *testing.T) {
	for name, c := range map[string]struct {
		sel       Selection
		delivered []int
		refused   bool
	}{
		"rows are missing":             {Selection{}, []int{1}, true},
		"they are wanted all the same": {Selection{Partial: true}, []int{1}, false},
		"a time tells":                 {Selection{Since: time.Now().Add(-24 * time.Hour)}, []int{1}, false},
		"ids tell":                     {Selection{IDs: []string{"2"}}, []int{1}, false},
		"none is missing":              {Selection{}, []int{1, 2, 3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRecoveryPlace(t)
			x.insert(1, 3)
			x.deliver(c.delivered...)
			x.topics.lost = true
			_, err := x.publish(c.sel)
			if c.refused {
				require.ErrorIs(t, err, ErrIncomplete)
				require.Len(t, x.payloads(), len(c.delivered))
				return
			}
			require.NoError(t, err)
		})
	}
}

// The slot delivers the rows of a key in their order: one that is missing before a newer one was delivered, and compacted away.
func TestRecovery_RefusesToPublishBehindNewerRowsOfAKey(t *testing.T) {
	for name, c := range map[string]struct {
		sel       Selection
		delivered []int // of rows 1 to 6, whose keys are 1, 2, 0, 1, 2, 0
		refused   bool
	}{
		"by the transaction":           {Selection{FromXmin: 3}, []int{4, 5}, true},
		"by the time":                  {Selection{Since: time.Now().Add(-time.Hour)}, []int{4}, true},
		"they are wanted all the same": {Selection{FromXmin: 3, Partial: true}, []int{4}, false},
		"ids tell":                     {Selection{IDs: []string{"1", "4"}}, []int{4}, false},
		"the newer ones are missing":   {Selection{FromXmin: 3}, []int{1, 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRecoveryPlace(t)
			x.insert(1, 6)
			x.deliver(c.delivered...)
			x.topics.lost = true
			report := x.planned(c.sel)
			_, err := x.publish(c.sel)
			if !c.refused {
				require.NoError(t, err)
				require.NoError(t, report.Refusal)
				return
			}
			require.ErrorIs(t, err, ErrIncomplete)
			require.ErrorIs(t, report.Refusal, ErrIncomplete)
			require.Contains(t, err.Error(), "later ones of the same keys are")
			require.Equal(t, c.delivered, x.payloads())
			_, there := x.get(NewSlotName(x.slot))
			require.False(t, there)
			x.topics.lost = false
			require.NoError(t, x.planned(c.sel).Refusal, "what such a topic does not have was not delivered")
		})
	}
}

func TestRecovery_SinceLeavesOutNoRowWithoutATime(t *testing.T) {
	x := newRecoveryPlace(t)
	x.exec(`ALTER TABLE outbox ALTER created_at DROP NOT NULL`)
	x.insert(1, 3)
	x.exec(`UPDATE outbox SET created_at = CASE id WHEN 1 THEN now() - interval '1 day' WHEN 2 THEN NULL ELSE now() END`)
	since := time.Now().Add(-time.Hour)
	require.EqualValues(t, 1, x.planned(Selection{Since: since, Until: time.Now().Add(time.Hour)}).Undelivered())
	require.NotZero(t, x.topics.since)
	x.published(Selection{Since: since})
	require.ElementsMatch(t, []int{2, 3}, x.payloads())
	require.Zero(t, x.topics.since, "it may have been delivered long before")
}

func TestRecovery_ReadsTopicsFromBeforeTheFirstRow(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 1)
	x.planned(Selection{})
	require.Zero(t, x.topics.since, "all of it")
	since := time.Now().Add(-time.Minute)
	x.planned(Selection{Since: since})
	require.Equal(t, since.Add(-readMargin), x.topics.since, "clocks differ")
}

// The record of a row that was inserted just now can have the time of an event of last week.
func TestRecovery_ReadsTopicsByTimeOnlyWhereRowsAndRecordsHaveOneClock(t *testing.T) {
	x := newRecoveryPlace(t)
	x.exec(`ALTER TABLE outbox ADD COLUMN occurred_at timestamptz NOT NULL DEFAULT now(), ADD COLUMN local_at timestamp NOT NULL DEFAULT now();
		CREATE TABLE other (LIKE outbox INCLUDING ALL); ALTER PUBLICATION postrider ADD TABLE other;
		INSERT INTO outbox (id, aggregatetype, aggregateid, payload) VALUES (1, 'one', 'k', '1'), (2, 'both', 'k', '2');
		INSERT INTO other (id, aggregatetype, aggregateid, payload) VALUES (3, 'both', 'k', '3')`)
	x.parts.Need.Tables = []string{"public.outbox", "public.other"}
	x.parts.Router = func() (*router.Router, error) {
		return router.New([]router.Config{router.DefaultConfig()}, router.DefaultFormat(), router.Options{Tables: x.parts.Need.Tables})
	}
	since := time.Now().Add(-time.Hour)
	near, day := since.Add(-readMargin), since.Add(-readMargin-24*time.Hour)
	for _, c := range []struct {
		named, outbox, other string // --time-column, and the columns of the records' times; empty: the time of the commit
		one, both            time.Time
	}{
		{"", "", "", near, near},
		{"", "created_at", "", near, near},
		{"", "created_at", "occurred_at", near, time.Time{}},
		{"", "occurred_at", "occurred_at", time.Time{}, time.Time{}},
		{"occurred_at", "occurred_at", "created_at", near, time.Time{}},
		{"occurred_at", "occurred_at", "occurred_at", near, near},
		{"local_at", "", "", day, day},
		{"local_at", "created_at", "", time.Time{}, time.Time{}},
	} {
		x.parts.Keys = func(table string) KeyColumns {
			return KeyColumns{ID: "id", Timestamp: map[string]string{"public.outbox": c.outbox, "public.other": c.other}[table]}
		}
		x.planned(Selection{Since: since, TimeColumn: c.named})
		require.Equal(t, map[string]time.Time{"outbox.event.one": c.one, "outbox.event.both": c.both}, x.topics.asked, c)
	}
}

func TestRecovery_LeavesOutWhatIsADeadLetter(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 4)
	x.exec(`INSERT INTO outbox VALUES (5, NULL, 'k', '5'), (6, 'Order', 'k', '6')`)
	x.letter("public.outbox", 2) // the broker refused it
	x.letter("public.outbox", 5) // it could not be routed
	x.letter("message:orders", 3)
	x.deliver(6)
	x.letter("public.outbox", 6) // redriven
	report := x.published(Selection{})
	require.Equal(t, []int{6, 1, 3, 4}, x.payloads())
	table := report.Tables[0]
	require.Equal(t, []int64{6, 1, 2, 0, 3}, []int64{table.Rows, table.Delivered, table.DeadLetters, table.Refused, table.Undelivered})
}

// A letter has the name under which its row came, which may be that of a partition.
func TestRecovery_KnowsALetterByTheNameOfThePartition(t *testing.T) {
	x := newRecoveryPlace(t)
	x.exec(`DROP TABLE outbox;
		CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text, aggregateid text, payload text) PARTITION BY RANGE (id);
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (10); ALTER PUBLICATION postrider ADD TABLE outbox`)
	x.insert(1, 3)
	x.letter("public.outbox_1", 2)
	x.published(Selection{})
	require.Equal(t, []int{1, 3}, x.payloads())
}

// A letter has the name that the table had when its row was written. Another table may have had that name, and a row with the same id.
func TestRecovery_DecidesNothingByTheLettersOfAnEarlierName(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 3)
	x.letter("public.outbox_before", 1)
	x.letter("public.outbox_before", 2)
	x.deliver(1) // so the letter was redriven, or is of another table
	_, err := x.publish(Selection{})
	require.ErrorIs(t, err, ErrIncomplete)
	require.ErrorContains(t, err, "1 row is not in the topics, and dead letters of public.outbox_before, which is none of the tables now, have the same ids")
	require.Equal(t, []int{1}, x.payloads())
	report := x.published(Selection{SkipRefused: true})
	require.Equal(t, []int{1, 3}, x.payloads())
	require.EqualValues(t, 1, report.Tables[0].DeadLetters)
	x.published(Selection{IDs: []string{"2"}})
	require.Equal(t, []int{1, 3, 2}, x.payloads())
	require.EqualValues(t, 3, x.published(Selection{}).Tables[0].Delivered)
}

func TestRecovery_PublishesNothingBeforeTheOpenLettersOfAKey(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 4) // 1 and 4 have one key
	x.letter("public.outbox", 1)
	parked := true
	x.letters.Parks = func(m *sink.Message) bool { return parked && string(m.Key) == "key 1" }
	_, err := x.publish(Selection{})
	require.ErrorIs(t, err, ErrParked)
	require.ErrorContains(t, err, "1 row of a parked key is to be published", "the letter itself is none")
	require.Empty(t, x.payloads())

	x.deliver(2, 3)
	parked = false
	x.deliver(4)
	parked = true
	require.Zero(t, x.published(Selection{}).Published, "what is delivered cannot come too early")
}

func TestRecovery_LeavesOutWhatComesByAUsableSlot(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 3)
	x.deliver(1)
	_, err := slot.CreateWithin(t.Context(), x.conn, x.parts.Need.Slot, patience)
	require.NoError(t, err)
	before, _ := x.get(x.slot)
	x.insert(4, 5)
	report := x.published(Selection{})
	require.Equal(t, "usable", report.State)
	require.Equal(t, []int{1, 2, 3}, x.payloads())
	require.EqualValues(t, 2, report.BySlot)
	require.Equal(t, before.ConfirmedFlushLSN, report.ConsistentPoint)
	require.False(t, report.Recreated)
	after, _ := x.get(x.slot)
	require.Equal(t, before.ConfirmedFlushLSN, after.ConfirmedFlushLSN, "it is looked at, and nothing confirmed")
}

// A kill may come between the copy of the new slot and the drop of it.
func TestRecovery_DropsTheSlotThatAnAttemptHasLeftBehindAndNoOther(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 1)
	cfg := x.parts.Need.Slot
	cfg.Name = NewSlotName(x.slot)
	_, err := slot.CreateWithin(t.Context(), x.conn, cfg, patience)
	require.NoError(t, err)
	require.NoError(t, slot.Copy(t.Context(), x.parts.Postgres, x.conn, cfg.Name, x.parts.Need.Slot))
	x.published(Selection{IDs: []string{"1"}})
	_, there := x.get(cfg.Name)
	require.True(t, there, "not by an attempt that says nothing about the rest")
	x.published(Selection{})
	_, there = x.get(cfg.Name)
	require.False(t, there, "it stands where the copy of it does")

	x.insert(2, 2)
	_, err = slot.CreateWithin(t.Context(), x.conn, cfg, patience)
	require.NoError(t, err)
	x.published(Selection{})
	_, there = x.get(cfg.Name)
	require.True(t, there, "somebody else's")
	require.Contains(t, x.said[len(x.said)-1], "stays and keeps WAL")
}

// Ids that say nothing of time are no order.
func TestRecovery_PublishesInTheOrderOfWritingWhereNoColumnTells(t *testing.T) {
	x := newRecoveryPlace(t)
	x.exec(`ALTER TABLE outbox ALTER id TYPE text, DROP created_at`)
	for n := range 5 {
		x.insert(9-n, 9-n) // a transaction for each
	}
	x.published(Selection{})
	require.Equal(t, []int{9, 8, 7, 6, 5}, x.payloads())
	require.Contains(t, x.said[0], "in the order of the transactions that wrote them last")
}

func TestRecovery_IsAlone(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 1)
	first, err := x.open(Selection{})
	require.NoError(t, err)
	_, err = x.open(Selection{})
	require.ErrorIs(t, err, replication.ErrSlotInUse, "beside another one")
	first.Close()

	_, err = slot.CreateWithin(t.Context(), x.conn, x.parts.Need.Slot, patience)
	require.NoError(t, err)
	pg, err := postgres.ReplicationConfig(x.parts.Postgres)
	require.NoError(t, err)
	relay, err := replication.Open(t.Context(), pg, x.parts.Replication, x.slot, zerolog.Nop())
	require.NoError(t, err)
	_, err = x.open(Selection{})
	require.ErrorIs(t, err, replication.ErrSlotInUse, "beside a relay")
	nothing := make(chan struct{})
	close(nothing)
	require.NoError(t, relay.Finish(t.Context(), nothing))
}

// Its catalog_xmin tells which rows it may not have delivered, so that topics need not have everything; it stays for that until all is published.
func TestRecovery_LooksForWhatALostSlotStillHadToDeliver(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}})
	x := recoveryPlaceIn(t, pg.DSN())
	x.insert(1, 3) // delivered, and the topics have lost them
	x.topics.lost = true
	_, err := slot.CreateWithin(t.Context(), x.conn, x.parts.Need.Slot, patience)
	require.NoError(t, err)
	x.insert(4, 6)
	x.lose(x.slot)
	was, _ := x.get(x.slot)

	all := x.planned(Selection{Partial: true, Since: time.Now().Add(-time.Hour)})
	require.EqualValues(t, 6, all.Undelivered(), "a time takes the place of what the slot tells")
	require.Equal(t, []any{"lost", was.ConfirmedFlushLSN}, []any{all.State, all.ConfirmedFlushLSN})

	x.refuse("5")
	_, err = x.publish(Selection{})
	require.ErrorIs(t, err, errCut)
	still, there := x.get(x.slot)
	require.True(t, there && still.Lost())
	x.insert(7, 7)
	x.lose(NewSlotName(x.slot)) // too: what was committed meanwhile comes by no slot

	x.broker.Refuse(nil, nil)
	require.True(t, x.published(Selection{}).Recreated)
	x.insert(8, 8)
	require.Equal(t, []int{4, 5, 6, 7}, x.payloads())
	require.Equal(t, []int{8}, x.streamed())
	made, _ := x.get(x.slot)
	require.NoError(t, slot.Verify(made.Slot, x.conn.Config().Database))
}

// chunks is a sink that remembers how much it was handed over at a time: the next chunk comes when the whole of the one before is acknowledged.
type chunks struct {
	sink.Sink
	sizes []int
}

func (c *chunks) Publish(ctx context.Context, ms []*sink.Message) error {
	c.sizes = append(c.sizes, len(ms))
	return c.Sink.Publish(ctx, ms)
}

func TestRecovery_BoundsWhatIsOut(t *testing.T) {
	for name, limits := range map[string]Limits{"messages": {Messages: 3, Bytes: 1 << 20}, "bytes": {Messages: 100, Bytes: 3 * 1000}} {
		t.Run(name, func(t *testing.T) {
			x := newRecoveryPlace(t)
			x.parts.Limits = limits
			x.exec(`INSERT INTO outbox SELECT n, 'Order', 'k', repeat('0', 1000 - 1) || n FROM generate_series(1, 7) n`)
			chunks := &chunks{}
			x.parts.OpenSink = func(ctx context.Context, done sink.Done) (sink.Sink, error) {
				var err error
				chunks.Sink, err = x.broker.Open(ctx, done)
				return chunks, err
			}
			report := x.published(Selection{})
			require.Equal(t, []int{3, 3, 1}, chunks.sizes)
			require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, x.payloads())
			require.EqualValues(t, 7, report.Published)
		})
	}
}

func TestNewSlot_IsANameThatTheServerTakes(t *testing.T) {
	for _, n := range []int{1, 54, 55, 56, 63} {
		name := NewSlotName(strings.Repeat("a", n))
		require.NoError(t, slot.ValidateName(name))
		require.True(t, strings.HasPrefix(name, strings.Repeat("a", min(n, 55))), name)
		require.True(t, strings.HasSuffix(name, "_recover"), name)
	}
}

func TestReport_HasPositionsAsText(t *testing.T) {
	document, err := (&Report{Slot: "s", State: "lost", ConfirmedFlushLSN: pglogrepl.LSN(0x10), Tables: []TableReport{{Undelivered: 2}, {Undelivered: 3}},
		Refusal: ErrIncomplete}).MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"slot": "s", "state": "lost", "confirmed_flush_lsn": "0/10", "by_slot": 0, "undelivered": 5, "published": 0, "recreated": false,
		"refusal": "which rows were delivered is not known", "topics": null, "tables": [
		{"table": "", "rows": 0, "delivered": 0, "dead_letters": 0, "no_message": 0, "refused": 0, "undelivered": 2},
		{"table": "", "rows": 0, "delivered": 0, "dead_letters": 0, "no_message": 0, "refused": 0, "undelivered": 3}]}`, string(document))
}

// partitionBesideItsTable is a place with a partitioned outbox of which outbox_2 is configured, too.
func partitionBesideItsTable(t *testing.T) *recoveryPlace {
	t.Helper()
	x := newRecoveryPlace(t)
	x.exec(`DROP TABLE outbox;
		CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype text, aggregateid text, payload text) PARTITION BY RANGE (id);
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (10); CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES FROM (10) TO (20);
		ALTER PUBLICATION postrider ADD TABLE outbox`)
	x.parts.Need.Tables = []string{"public.outbox", "public.outbox_2"}
	return x
}

// A partition that is relayed as a table of its own has its own name in letters, too.
func TestRecovery_KeepsTheNameOfAPartitionThatIsConfigured(t *testing.T) {
	x := partitionBesideItsTable(t)
	r, err := x.open(Selection{})
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, map[string]string{"public.outbox_1": "public.outbox"}, r.partitions)
}

// The rows of a partition that is configured beside its table are those of one table, and missing once.
func TestRecovery_PublishesRowsOfAConfiguredPartitionOnce(t *testing.T) {
	x := partitionBesideItsTable(t)
	x.exec(`INSERT INTO outbox SELECT n, 'orders', n::text, '{}' FROM unnest('{1,2,11,12}'::int[]) n`)
	r, err := x.open(Selection{})
	require.NoError(t, err)
	defer r.Close()
	report, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.Len(t, report.Tables, 2)
	for _, table := range report.Tables {
		require.EqualValues(t, 2, table.Rows, table.Table)
	}
}

func TestRecovery_EndsWithItsLock(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 8)
	lost := false
	x.broker.Refuse(func(*sink.Message) error {
		if !lost {
			lost = true
			loseLock(t, x.conn, x.slot)
		}
		return nil
	}, nil)
	_, err := x.publish(Selection{})
	require.ErrorContains(t, err, "the lock of the tables is lost")
	require.Equal(t, []int{1, 2, 3}, x.payloads(), "the chunk that was on its way")
}
