package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

// put publishes messages, one after the other.
func (i *install) put(broker string, ms ...*sink.Message) {
	i.t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{broker}
	done := make(chan error, len(ms))
	s, err := producer.Open(i.t.Context(), cfg, zerolog.Nop(),
		func(_ *sink.Message, err error) { done <- err })
	require.NoError(i.t, err)
	defer s.Close(i.t.Context()) //nolint:errcheck // all is acknowledged
	for _, m := range ms {
		require.NoError(i.t, s.Publish(i.t.Context(), []*sink.Message{m}))
		require.NoError(i.t, <-done)
	}
}

// deliver puts the rows of the outbox with these ids where a relay would have put them.
func (i *install) deliver(broker string, ids ...int) {
	i.t.Helper()
	i.deliverAt(broker, time.Now(), ids...)
}

// deliverAt is deliver with a time of the records.
func (i *install) deliverAt(broker string, at time.Time, ids ...int) {
	i.t.Helper()
	for _, id := range ids {
		i.put(broker, &sink.Message{
			Topic: "outbox.event.order", Key: fmt.Append(nil, id),
			Value: fmt.Appendf(nil, `{"n": %d}`, id), Partition: sink.ByKey,
			Headers: []sink.Header{{Key: "id", Value: fmt.Append(nil, id)},
				{Key: "postrider.lsn", Value: []byte("0/1")}}, Timestamp: at,
		})
	}
}

const recoverOutbox = `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_type text NOT NULL DEFAULT 'order',
	aggregate_id text NOT NULL, payload jsonb, created_at timestamptz NOT NULL);
	CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`

// insertOld commits rows of the last n hours, the newest just now.
func (i *install) insertOld(n int) {
	i.t.Helper()
	i.exec(fmt.Sprintf(`INSERT INTO outbox (aggregate_id, payload, created_at)
		SELECT n, jsonb_build_object('n', n), now() - make_interval(hours => %d - n) FROM generate_series(1, %d) n`, n, n))
}

func (i *install) recovers(args ...string) (out struct {
	Undelivered, Published int64
	Recreated              bool
	Refusal                string
	Tables                 []backfill.TableReport
	Topics                 []backfill.TopicReport
}) {
	i.t.Helper()
	r := i.ok(append([]string{"recover", "--json"}, args...)...)
	require.NoError(i.t, json.Unmarshal([]byte(r.stdout), &out), r.stdout)
	return out
}

func TestRecover_SelectsByTimeAndByID(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 3})
	i.exec(recoverOutbox)
	i.insertOld(10)
	i.deliver(k.Brokers()[0], 1, 2, 3, 8)

	all := i.recovers()
	require.EqualValues(t, 6, all.Undelivered)
	require.Equal(t, backfill.TableReport{
		Table: "public.outbox", Rows: 10, Delivered: 4, Undelivered: 6,
		First: all.Tables[0].First, Last: all.Tables[0].Last,
	}, all.Tables[0])
	require.Equal(t, "4", all.Tables[0].First.ID)
	require.Equal(t, "10", all.Tables[0].Last.ID)
	require.NotEmpty(t, all.Tables[0].First.Time)
	require.Equal(t,
		[]backfill.TopicReport{{Topic: "outbox.event.order", Records: 4, Whole: true,
			Undelivered: 6}}, all.Topics)

	require.EqualValues(t, 4, i.recovers("--since", "4h30m").Undelivered,
		"6 to 10, without 8 and what is below")
	require.EqualValues(t, 3, i.recovers("--until", "3h30m").Undelivered, "4, 5 and 6")
	require.EqualValues(t, 2, i.recovers("--id", "4,8", "--id", "5").Undelivered)
	require.Equal(t, exit.Usage, i.run("recover", "--gap", "--id", "4").code)
	require.Equal(t, exit.Usage, i.run("recover", "--since", "yesterday").code)
	r := i.run("recover", "--since", "1h", "--time-column", "payload")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr,
		`column "payload" of table public.outbox is not a timestamptz or timestamp`)

	// Some rows of a gap do not make the slot.
	some := i.recovers("--publish", "--yes", "--id", "5,8")
	require.EqualValues(t, 1, some.Published)
	require.False(t, some.Recreated)
	none, err := slot.List(t.Context(), i.conn)
	require.NoError(t, err)
	for _, s := range none {
		require.NotEqual(t, i.db.Name, s.Database)
	}

	require.Equal(t, exit.Usage, i.run("recover", "--publish").code,
		"nobody typed the slot's name")
	rest := i.typed(i.db.Name+"\n", "recover", "--publish")
	require.Equal(t, exit.OK, rest.code, rest.stderr)
	require.Contains(t, rest.stdout, "5 rows published. Slot "+i.db.Name+" is recreated")
	require.EqualValues(t, 0, i.recovers("--publish", "--yes").Published)
	s, err := slot.Get(t.Context(), i.conn, i.db.Name)
	require.NoError(t, err)
	require.NoError(t, slot.Verify(s.Slot, i.db.Name))

	defer i.holdSlot()()
	r = i.run("recover")
	require.Equal(t, exit.Temporary, r.code)
	require.Contains(t, r.stderr, "stop the relay")
}

// eventsOfLastWeek has the time of the event as that of the record: rows of the last hours are about
// what happened a week before.
func (i *install) eventsOfLastWeek() {
	i.t.Helper()
	i.env = append(i.env, "POSTRIDER_ROUTER_TABLE_FIELD_EVENT_TIMESTAMP=occurred_at")
	i.exec(`ALTER TABLE outbox ADD COLUMN occurred_at timestamptz;
		UPDATE outbox SET occurred_at = created_at - interval '1 week'`)
}

// The slot that is made anew passes over every row that was not selected.
func TestRecover_SelectsByTheTimeOfTheInsertNotOfTheEvent(t *testing.T) {
	i, _ := newLossy(t)
	i.eventsOfLastWeek()
	i.exec(`ALTER TABLE outbox RENAME created_at TO inserted_at;
		ALTER TABLE outbox ADD COLUMN inserted_on date DEFAULT now()`)
	for _, c := range []struct{ args, want string }{
		{"", "table public.outbox has no column created_at of type timestamptz or timestamp: " +
			"name the column that says when a row was inserted, not when its event happened, " +
			"with --time-column"},
		{"--time-column=inserted_on",
			`column "inserted_on" of table public.outbox is not a timestamptz or timestamp`},
	} {
		args := append([]string{"recover", "--since", "4h", "--publish", "--yes"},
			strings.Fields(c.args)...)
		r := i.run(args...)
		require.Equal(t, exit.Runtime, r.code, r.stderr)
		require.Contains(t, r.stderr, c.want)
	}
	_, err := slot.Get(t.Context(), i.conn, i.db.Name)
	require.ErrorIs(t, err, slot.ErrNotFound)

	i.exec(`ALTER TABLE outbox RENAME inserted_at TO created_at`)
	require.Equal(t, "created_at", i.recovers("--since", "4h").Tables[0].TimeColumn)
	require.Empty(t, i.recovers().Tables[0].TimeColumn, "nothing is selected by it")
	r := i.ok("recover", "--since", "2026-01-31T12:00:00+01:00", "--until", "2026-02-01T00:00:00Z")
	require.Contains(t, r.stdout, "rows of public.outbox inserted since 2026-01-31T11:00:00Z "+
		"before 2026-02-01T00:00:00Z by created_at\n")
	r = i.ok("recover", "--since", "4h", "--publish", "--yes")
	require.Regexp(t, `rows of public\.outbox inserted since \S+Z by created_at\n`, r.stdout)
	require.Contains(t, r.stdout, "3 rows published. Slot "+i.db.Name+" is recreated")
}

// Everything was delivered, and the records have the times of their events.
func TestRecover_FindsRecordsOfOldEvents(t *testing.T) {
	i, broker := newLossy(t)
	i.eventsOfLastWeek()
	i.deliverAt(broker, time.Now().Add(-7*24*time.Hour), 1, 2, 3)
	for _, args := range [][]string{nil, {"--since", "4h"}, {"--since", "4h", "--publish", "--yes"}} {
		out := i.recovers(args...)
		require.Zero(t, out.Undelivered, args)
		require.EqualValues(t, 3, out.Tables[0].Delivered, args)
	}
}

func TestRecover_LeavesNothingBehindWhenItRefuses(t *testing.T) {
	i, _ := installWithKafka(t, "17", topics{"outbox.event.order": 3})
	i.exec(recoverOutbox)
	i.insertOld(3)
	i.exec(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, created_at) VALUES ('no topic', '1', '{}', now())`)
	require.Contains(t, i.recovers().Refusal, "1 row of table public.outbox cannot be published")
	r := i.run("recover", "--publish", "--yes")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "dropped again: nothing was published")
	_, err := slot.Get(t.Context(), i.conn, backfill.NewSlotName(i.db.Name))
	require.ErrorIs(t, err, slot.ErrNotFound)
	require.EqualValues(t, 3, i.recovers("--publish", "--yes", "--skip-refused").Published)
}

func TestRecover_CountsDeadLettersAsDelivered(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 3, "postrider.dead_letters": 1})
	i.exec(recoverOutbox)
	i.insertOld(3)
	i.exec(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, created_at) VALUES ('no topic', '1', '{}', now())`)
	// one that the broker refused, and one that could not be routed
	for _, id := range []string{"2", "4"} {
		i.put(k.Brokers()[0], i.ownLetter("public.outbox", id))
	}
	found := i.recovers() // without a policy that makes any they are of an earlier one
	require.EqualValues(t, 2, found.Undelivered)
	require.EqualValues(t, 2, found.Tables[0].DeadLetters)
	i.env = append(i.env, "POSTRIDER_DEADLETTER_REFUSED=dead_letter")
	did := i.recovers("--publish", "--yes")
	require.EqualValues(t, 2, did.Published)
	require.EqualValues(t, 2, did.Tables[0].DeadLetters)
	require.Zero(t, did.Tables[0].Refused)
}

// A row of a parked key would overtake the dead letters in front of it, which a redrive publishes
// later.
func TestRecover_RefusesToOvertakeAParkedKey(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 3, "postrider.dead_letters": 1})
	i.env = append(i.env, "POSTRIDER_DEADLETTER_REFUSED=dead_letter_key")
	i.exec(recoverOutbox)
	i.insertOld(3)
	header := func(key, value string) sink.Header {
		return sink.Header{Key: key, Value: []byte(value)}
	}
	i.put(k.Brokers()[0], &sink.Message{
		Topic: "postrider.dead_letters", Partition: sink.ByKey, Key: []byte("2"),
		Value: []byte(`{"n": 2}`), Timestamp: time.Now(),
		Headers: []sink.Header{
			header(deadletter.HeaderForm, string(deadletter.FormMessage)),
			header(deadletter.HeaderID, "0102030405060708090a0b0c"),
			header(deadletter.HeaderCause, "refused"), header(deadletter.HeaderPosition, "0/1/0"),
			header(deadletter.HeaderParks, "true"),
			header(deadletter.HeaderTopic, "outbox.event.order"),
			header(deadletter.HeaderRelation, "public.outbox"),
			header(deadletter.HeaderEventID, "2"),
		},
	})
	require.Empty(t, i.recovers().Refusal, "the rows that are missing are of other keys")
	i.exec(`INSERT INTO outbox (aggregate_id, payload, created_at) VALUES ('2', '{"n": 4}', now())`)

	dry := i.ok("recover")
	require.Contains(t, dry.stdout,
		"--publish would refuse: 1 row of a parked key is to be published")
	require.Contains(t, dry.stdout, "postrider deadletter redrive --key KEY")
	r := i.run("recover", "--publish", "--yes")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stderr, "1 row of a parked key is to be published")
	require.Contains(t, r.stderr, "postrider deadletter redrive --key KEY")
	require.Contains(t, r.stderr, "nothing was published")
	require.EqualValues(t, 1, i.recovers("--publish", "--yes", "--id", "1").Published,
		"a row of another key")

	i.ok("deadletter", "discard", "--key", "2", "--yes")
	require.EqualValues(t, 2, i.recovers("--publish", "--yes").Published)
	require.EqualValues(t, 1, i.recovers().Tables[0].DeadLetters)
}

func TestRecover_NamesTheGrantThatIsMissing(t *testing.T) {
	i, _ := installWithKafka(t, "17", nil)
	i.exec(recoverOutbox)
	i.insertOld(1)
	role := i.db.Name + "_role"
	i.exec("CREATE ROLE " + role + " LOGIN REPLICATION PASSWORD 'x'")
	defer i.exec("DROP OWNED BY " + role + "; DROP ROLE " + role)
	u, err := url.Parse(i.db.DSN())
	require.NoError(t, err)
	u.User = url.UserPassword(role, "x")
	i.env = append(i.env, "POSTRIDER_POSTGRES_URL="+u.String())
	r := i.run("recover")
	require.Equal(t, exit.Permission, r.code, r.stderr)
	require.Contains(t, r.stderr, `GRANT SELECT ON "public"."outbox" TO "`+role+`"`)
	require.NotContains(t, r.stderr, "snapshot.mode")
	i.exec("GRANT SELECT ON outbox TO " + role)
	require.EqualValues(t, 1, i.recovers().Undelivered)
	require.NotContains(t, r.stdout+r.stderr, "password=x")
}

// Their rows may be committed, and are not in the counts.
func TestRecover_NamesOpenTransactions(t *testing.T) {
	var open []string
	for pid := range mostNamed + 2 {
		open = append(open, fmt.Sprintf("pid %d", pid+1))
	}
	for n, want := range map[int]string{
		0: "",
		1: "rows of 1 open transaction may not be counted yet: pid 1\n",
		mostNamed + 2: "rows of 12 open transactions may not be counted yet: pid 1, pid 2, pid " +
			"3, pid 4, pid 5, pid 6, pid 7, pid 8, pid 9, pid 10 and 2 more\n",
	} {
		var out strings.Builder
		c := recovery{app: &app{}}
		require.NoError(t,
			c.write(&out, &backfill.Report{Slot: "s", State: "missing",
				OpenTransactions: open[:n]}))
		require.True(t, strings.HasPrefix(out.String(), "slot s was missing\n"+want+"TABLE"),
			out.String())
	}
}
