package trace

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

func TestTrace_FollowsAnEventFromTheTableToItsRecord(t *testing.T) {
	w := newWorld(t, outbox)
	r := w.trace(Request{ID: id(1)})
	require.Equal(t, NotFound, r.State)
	require.Contains(t, r.Why, "no row of public.outbox has it. Its transaction is not committed yet")
	require.Contains(t, r.Next, "--topic TOPIC")
	require.Equal(t, exit.Runtime, r.Code())
	w.insert(1, "17")
	r = w.byID(1)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, "does not exist: nothing is relayed")

	w.createSlot()
	w.insert(2, "17")
	r = w.byID(2)
	require.Equal(t, Waiting, r.State)
	require.Equal(t, exit.Temporary, r.Code())
	require.Contains(t, r.Why, "no process reads it: the relay does not run")
	e := r.Events[0]
	require.Equal(t, w.topic("order"), e.Route.Topic)
	require.NotNil(t, e.Route.Partition)
	require.NotEmpty(t, e.Commit.AtMost)
	require.Nil(t, e.Commit.Passed)

	w.start()
	w.awaitPassed()
	w.insert(3, "17")
	w.deliver()
	r = w.byID(3)
	require.Equal(t, Published, r.State)
	require.Equal(t, exit.OK, r.Code())
	e = r.Events[0]
	require.Len(t, e.Records, 1)
	require.Equal(t, int64(1), e.Records[0].Offset)
	require.Equal(t, w.topic("order"), e.Records[0].Topic)
	require.Equal(t, *e.Route.Partition, e.Records[0].Partition)
	require.Equal(t, "17", *e.Records[0].Key)
	require.Equal(t, []string{"inserted", "committed"}, []string{e.Legs[0].Name, e.Legs[1].Name})
	require.True(t, *e.Commit.Passed)
	require.Contains(t, r.Answer, "topic "+w.topic("order")+", partition ")

	// The first is from before the slot.
	r = w.byID(1)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, "the slot has passed it, and topic "+w.topic("order")+" has no record of it")
	require.Contains(t, r.Why, "the row is older than the slot, and snapshot.mode is off")
	require.Contains(t, r.Next, "postrider recover --id "+id(1))

	key := "17"
	r = w.trace(Request{Key: &key, AggregateType: "order"})
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Answer, "key 17 has 3 events: 2 published, 1 not published")
	require.Equal(t, []string{id(1), id(2), id(3)}, idsOf(r))
	require.Equal(t, orderedByTransaction, r.OrderedBy)
	none := w.trace(Request{Key: &key, AggregateType: "payment"})
	require.Equal(t, NotFound, none.State)

	// The rows are deleted.
	w.do("DELETE FROM outbox")
	require.Equal(t, NotFound, w.byID(3).State)
	r = w.trace(Request{ID: id(3), Topic: w.topic("order")})
	require.Equal(t, Published, r.State)
	require.Equal(t, int64(1), r.Events[0].Records[0].Offset)
	r = w.trace(Request{Key: &key, Topic: w.topic("order")})
	require.Equal(t, []string{id(2), id(3)}, idsOf(r))
	require.Equal(t, orderedByCommitTime, r.OrderedBy)
	r = w.trace(Request{ID: id(9), Topic: w.topic("order")})
	require.Equal(t, NotFound, r.State)
	r = w.trace(Request{ID: id(9), Topic: w.topic("nothing")})
	require.Contains(t, r.Why, "does not exist")

	document, err := json.Marshal(r)
	require.NoError(t, err)
	require.NotContains(t, string(document), "CANARY")
}

func idsOf(r *Result) (ids []string) {
	for _, e := range r.Events {
		ids = append(ids, e.ID)
	}
	return ids
}

// With everything on that records times and positions.
func TestTrace_HasThePositionAndEveryLeg(t *testing.T) {
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{
		Params: map[string]string{"track_commit_timestamp": "on"}})
	w := newWorldOn(t, parts.NewDatabase(t, server.DSN()), outbox,
		"[router]\nroute.topic.replacement = \"PREFIX.${routedByValue}\"\nposition_headers = true")
	w.broker.CreateTopic(t, w.topic("timed"), 2,
		map[string]string{"message.timestamp.type": "LogAppendTime"})
	w.createSlot()
	w.start()
	w.do(`BEGIN; INSERT INTO outbox VALUES ('` + id(1) + `', 'timed', 'a', NULL, 'CANARY'),
		('` + id(2) + `', 'timed', 'a', NULL, 'CANARY'); COMMIT`)
	w.do(`INSERT INTO outbox VALUES ('` + id(0) + `', 'timed', 'a', NULL, 'CANARY')`)
	w.deliver()
	r := w.byID(2)
	require.Equal(t, Published, r.State)
	e := r.Events[0]
	require.Equal(t, uint32(1), *e.Commit.Index)
	require.NotEmpty(t, e.Commit.LSN)
	require.True(t, *e.Commit.Passed)
	var names []string
	for _, l := range e.Legs {
		names = append(names, l.Name)
	}
	require.Equal(t, []string{"inserted", "committed", "appended"}, names)
	require.NotNil(t, e.Legs[2].Seconds)
	require.Contains(t, r.Answer, "after its commit")
	require.Empty(t, r.Notes)

	key := "a"
	r = w.trace(Request{Key: &key})
	require.Equal(t, []string{id(1), id(2), id(0)}, idsOf(r))
	require.Equal(t, orderedByPosition, r.OrderedBy)
	r = w.trace(Request{Key: &key, Topic: w.topic("timed")})
	require.Equal(t, []string{id(1), id(2), id(0)}, idsOf(r))

	// An update gives the row another transaction and another commit time. The record has those of
	// the insert.
	w.do("UPDATE outbox SET event_type = 'marked' WHERE id = '" + id(2) + "'")
	again := w.byID(2)
	require.Equal(t, e.Commit.Time, again.Events[0].Commit.Time)
	require.Equal(t, e.Commit.LSN, again.Events[0].Commit.LSN)
	require.NotEqual(t, e.Row.XID, again.Events[0].Row.XID)

	w.insert(4, "b")
	r = w.byID(4)
	require.Equal(t, Waiting, r.State)
	require.Equal(t, "track_commit_timestamp", r.Events[0].Commit.TimeBy)
}

func TestTrace_FindsDeadLettersAndParkedKeys(t *testing.T) {
	w := newWorld(t, outbox, "[sink.kafka.topics]\ncreate = true\npartitions = 1\nreplication_factor = 1\n"+
		"[deadletter]\ntopic = \"PREFIX-dead\"\ninvalid_topic = \"dead_letter_key\"\n"+
		"too_large = \"dead_letter_key\"\n"+
		"not_routable = \"skip\"")
	w.createSlot()
	w.do(`INSERT INTO outbox VALUES ('` + id(1) + `', 'in valid', 'a', NULL, 'CANARY'),
		('` + id(2) + `', 'order', NULL, NULL, 'CANARY'), ('` + id(3) + `', 'order', 'a', NULL, 'CANARY')`)
	r := w.byID(1)
	require.Equal(t, Waiting, r.State)
	require.Contains(t, r.Why, `it will be a dead letter (deadletter.invalid_topic = "dead_letter_key")`)
	w.do(`INSERT INTO outbox VALUES ('` + id(4) + `', 'order', 'big', NULL, repeat('x', 2000000))`)
	w.do(`INSERT INTO outbox VALUES ('` + id(5) + `', 'order', 'big', NULL, 'CANARY')`)
	w.start()
	w.awaitPassed()
	r = w.byID(1)
	require.Equal(t, DeadLetter, r.State)
	require.Equal(t, exit.Runtime, r.Code())
	letter := r.Events[0].Letters[0]
	require.Equal(t, "postrider deadletter redrive "+letter.ID, r.Next)
	require.Equal(t, "invalid_topic", letter.Cause)
	require.NotEmpty(t, r.Events[0].Commit.LSN)
	require.NotNil(t, r.Events[0].Commit.Index)
	r = w.byID(2)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, `skipped by deadletter.not_routable = "skip"`)
	require.Equal(t, Published, w.byID(3).State)

	// Later events of a parked key follow the first.
	large, parked := w.byID(4), w.byID(5)
	require.Equal(t, "too_large", large.Events[0].Letters[0].Cause)
	require.Equal(t, DeadLetter, parked.State)
	require.Equal(t, "parked", parked.Events[0].Letters[0].Cause)
	require.True(t, parked.Events[0].Parked)

	// The row is deleted; its dead letter remains.
	w.do("DELETE FROM outbox WHERE id = '" + id(1) + "'")
	require.Equal(t, DeadLetter, w.byID(1).State)
	w.relay.Stop(t)
	w.insert(6, "big")
	r = w.byID(6)
	require.Equal(t, Waiting, r.State)
	require.Contains(t, r.Why, "its key is parked")
	resolve := func(action, letter string) {
		out, code := parts.RunRelay(t, parts.RelayConfig{}, "deadletter", action, "--config", w.file,
			"--yes", letter)
		require.Zero(t, code, out.Log.String())
	}
	resolve("discard", letter.ID)
	require.Equal(t, Discarded, w.byID(1).State)
	resolve("discard", large.Events[0].Letters[0].ID)
	resolve("redrive", parked.Events[0].Letters[0].ID)
	r = w.byID(5)
	require.Equal(t, Published, r.State)
	require.Equal(t, parked.Events[0].Letters[0].ID, r.Events[0].Records[0].Redriven)
	require.Equal(t, "redriven", r.Events[0].Letters[0].Action)
}

func TestTrace_ExplainsWhatIsNeverPublished(t *testing.T) {
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "18"}) // has row filters
	w := newWorldOn(t, parts.NewDatabase(t, server.DSN()), outbox)
	w.do("ALTER PUBLICATION postrider SET TABLE outbox WHERE (aggregate_id <> 'internal')")
	w.createSlot()
	w.do(`INSERT INTO outbox VALUES ('` + id(1) + `', 'order', 'internal', NULL, 'CANARY'),
		('` + id(2) + `', 'order', NULL, NULL, 'CANARY'),
		('` + id(3) + `', 'order', 'large', NULL, repeat('x', 2000000)),
		('` + id(4) + `', 'none', '17', NULL, 'CANARY')`)
	r := w.byID(1)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, "skipped: the row filter of the publication does not match")
	w.do("ALTER PUBLICATION postrider SET TABLE outbox")
	r = w.byID(2)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, `the relay halts in front of it (deadletter.not_routable = "halt")`)
	r = w.byID(3)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, `(deadletter.too_large = "halt")`)
	r = w.byID(4)
	require.Equal(t, Waiting, r.State)
	require.Contains(t, r.Why, "topic "+w.topic("none")+` does not exist (deadletter.unknown_topic = "halt")`)
	require.Contains(t, r.Next, "kafka-topics.sh")
	w.do("ALTER PUBLICATION postrider DROP TABLE outbox")
	r = w.byID(4)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, "public.outbox is not in publication")
	require.Contains(t, r.Next, "ALTER PUBLICATION")

	// What the slot has passed, and retention has removed.
	w.do("ALTER PUBLICATION postrider ADD TABLE outbox; DELETE FROM outbox")
	w.do("SELECT pg_replication_slot_advance('" + w.name + "', pg_current_wal_lsn())")
	w.insert(5, "17")
	w.start()
	w.deliver()
	published := w.byID(5)
	require.Equal(t, Published, published.State)
	record := published.Events[0].Records[0]
	deleteBefore(t, w.broker, record.Topic, record.Partition, record.Offset+1)
	r = w.byID(5)
	require.Equal(t, NotPublished, r.State)
	require.Contains(t, r.Why, "the topic lacks records by retention, compaction or deletion")
}

func TestTrace_PrintsOneLineForEachFact(t *testing.T) {
	name := "a\nb\x1b[31m"
	r := Result{Answer: "event x is waiting", State: Waiting, Events: []*Event{{ID: "x",
		Row:  &Row{Table: "public.outbox", Columns: []Column{{Name: "key", Value: &name}, {Name: "type"}}},
		Legs: []Leg{{Name: "inserted"}, {Name: "committed", Seconds: new(-0.25)}}}}}
	var out bytes.Buffer
	require.NoError(t, r.Print(&out))
	require.Contains(t, out.String(), "columns     key=a b [31m type=NULL\n")
	require.Contains(t, out.String(), "-250ms")
	r.Redact()
	require.Nil(t, r.Events[0].Row.Columns[0].Value)
}

func TestAcknowledged_TakesNoDeadLetterForAPublication(t *testing.T) {
	s := &search{Request: Request{ID: "x"}, relay: &Relay{Recent: []relay.Published{
		{EventID: "x", Topic: "dead"}, {EventID: "y", Topic: "orders"}}}}
	s.cfg.DeadLetter.Topic = "dead"
	s.acknowledged()
	require.Empty(t, s.events)
	s.relay.Recent[0].Topic = "orders"
	s.acknowledged()
	require.Len(t, s.events, 1)
}

// What an update may have changed bounds nothing.
func TestNoEarlier_TrustsOnlyTimesOfTheInsert(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	column := func(oid uint32) *table {
		return &table{rel: &replication.Relation{Columns: []replication.Column{{TypeOID: oid}}}}
	}
	message := &sink.Message{Timestamp: at.Add(-time.Hour)}
	none := column(pgtype.TimestamptzOID)
	none.time = -1
	require.Zero(t, (&event{table: none, committed: at}).noEarlier(message))
	require.Equal(t, at.Add(-clockMargin),
		(&event{table: column(pgtype.TimestamptzOID), inserted: at, committed: at}).noEarlier(message))
	require.Equal(t, at.Add(-zoneMargin-clockMargin),
		(&event{table: column(pgtype.TimestampOID), inserted: at}).noEarlier(message), "of any zone")
	configured := column(pgtype.TimestamptzOID)
	configured.rule.FieldTimestamp = "at"
	require.Equal(t, at.Add(-time.Hour-clockMargin),
		(&event{table: configured, inserted: at}).noEarlier(message), "the record has it")
	v7 := &event{table: none}
	v7.ID = "019c1234-5678-7abc-8def-0123456789ab"
	require.Equal(t, time.UnixMilli(0x019c12345678).Add(-clockMargin).UTC(), v7.noEarlier(message).UTC())
	v7.ID = id(1)
	require.Zero(t, v7.noEarlier(message), "of another version")
}
