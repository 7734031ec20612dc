package cli

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

func headerOf(key, value string) sink.Header { return sink.Header{Key: key, Value: []byte(value)} }

// newLossy has rows 1 to 3 in its outbox, of which nothing is known to be delivered, and topics
// for events and dead letters.
func newLossy(t *testing.T, env ...string) (i *install, broker string) {
	t.Helper()
	k := kafkaBroker(t)
	require.NoError(t, k.CreateTopic("outbox.event.order", 3))
	require.NoError(t, k.CreateTopic("postrider.dead_letters", 1))
	i = newInstall(t, "17", k.Brokers()...)
	i.env = append(i.env, env...)
	i.exec(recoverOutbox)
	i.insertOld(3)
	return i, k.Brokers()[0]
}

// letterOf is a dead letter without a key. An empty source is that of a relay that did not know its server.
func letterOf(source, relation, event string) *sink.Message {
	return &sink.Message{
		Topic: "postrider.dead_letters", Partition: sink.ByKey, Value: []byte(`{"other": "shop"}`), Timestamp: time.Now(),
		Headers: []sink.Header{
			headerOf(deadletter.HeaderForm, string(deadletter.FormMessage)),
			headerOf(deadletter.HeaderID, fmt.Sprintf("%024x", event)),
			headerOf(deadletter.HeaderCause, "refused"),
			headerOf(deadletter.HeaderPosition, "0/1/0"),
			headerOf(deadletter.HeaderParks, "false"),
			headerOf(deadletter.HeaderSource, source),
			headerOf(deadletter.HeaderTopic, "outbox.event.parcel"),
			headerOf(deadletter.HeaderRelation, relation),
			headerOf(deadletter.HeaderEventID, event),
		},
	}
}

// letterOfAnother is the dead letter of event 2 of another relay's table.
func letterOfAnother(relation string) *sink.Message {
	return letterOf("7300000000000000000/1/another_slot/postrider", relation, "2")
}

// ownLetter is the dead letter of an event of this relay.
func (i *install) ownLetter(relation, event string) *sink.Message {
	i.t.Helper()
	return letterOf(i.system()+"/1/"+i.db.Name+"/postrider", relation, event)
}

// openTransaction has another producer write records with these keys to a topic, and leave the transaction open.
func (i *install) openTransaction(broker, topic string, keys ...string) *kgo.Client {
	i.t.Helper()
	hung, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.TransactionalID("another"), kgo.TransactionTimeout(10*time.Minute))
	require.NoError(i.t, err)
	i.t.Cleanup(hung.Close)
	require.NoError(i.t, hung.BeginTransaction())
	for _, key := range keys {
		require.NoError(i.t, hung.ProduceSync(i.t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte("{}")}).FirstErr())
	}
	return hung
}

// What was delivered behind the open transaction of another relay cannot be read, and is not missing.
func TestRecover_PublishesNothingBehindAnOpenTransaction(t *testing.T) {
	i, broker := newLossy(t)
	hung := i.openTransaction(broker, "outbox.event.order", "1", "2", "3")
	i.deliver(broker, 1, 2, 3)
	const refusal = `3 rows are not in the topics, and what follows the transaction in topic "outbox.event.order" cannot be read`
	require.Contains(t, i.recovers().Refusal, refusal)
	r := i.run("recover", "--publish", "--yes")
	require.Equal(t, exit.Temporary, r.code)
	require.Contains(t, r.stderr, refusal)
	require.Contains(t, r.stderr, "try again when its producer has ended it")
	require.NoError(t, hung.EndTransaction(t.Context(), kgo.TryAbort))
	require.EqualValues(t, 0, i.recovers("--publish", "--yes").Published)
}

func TestAudit_FindsNothingLostBehindAnOpenTransaction(t *testing.T) {
	i, broker := newLossy(t)
	hung := i.openTransaction(broker, "outbox.event.order", "1", "2", "3")
	i.deliver(broker, 1, 2, 3)
	r := i.run("audit")
	require.NotZero(t, r.code)
	require.Contains(t, r.stdout, "what follows an open transaction in outbox.event.order cannot be read")
	require.Contains(t, r.stdout, "not proven: 3 rows are in no topic, and may follow an open transaction")
	require.NoError(t, hung.EndTransaction(t.Context(), kgo.TryAbort))
	require.Contains(t, i.ok("audit").stdout, "clean: every row arrived exactly once")
}

// The dead letters are those that the other commands see: of committed transactions, also behind an open one.
func TestRecover_CountsDeadLettersBehindAnOpenTransaction(t *testing.T) {
	i, broker := newLossy(t, "POSTRIDER_DEADLETTER_REFUSED=dead_letter")
	i.openTransaction(broker, "postrider.dead_letters", "another")
	i.deliver(broker, 1, 3)
	i.put(broker, i.ownLetter("public.outbox", "2"))
	did := i.recovers("--publish", "--yes")
	require.EqualValues(t, 0, did.Published)
	require.EqualValues(t, 1, did.Tables[0].DeadLetters)
}

// A discarded row must not be published because its table has another name now, nor one of another table be lost.
func TestRecover_AsksWhoseTheLettersOfAnotherNameAre(t *testing.T) {
	i, broker := newLossy(t, "POSTRIDER_DEADLETTER_REFUSED=dead_letter")
	i.deliver(broker, 1, 3)
	i.put(broker, i.ownLetter("public.outbox_before", "2"))
	i.ok("deadletter", "discard", "--all", "--yes")
	r := i.run("recover", "--publish", "--yes")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stderr, "dead letters of public.outbox_before, which is none of the tables now, have the same ids")
	require.EqualValues(t, 0, i.recovers("--publish", "--yes", "--skip-refused").Published)
}

// Several relays may share a dead-letter topic: a letter of another one says nothing about a row
// here that has the same table name and id.
func TestRecover_LeavesOutNoRowForALetterOfAnotherDatabase(t *testing.T) {
	i, broker := newLossy(t, "POSTRIDER_DEADLETTER_REFUSED=dead_letter")
	i.put(broker, letterOfAnother("public.outbox"))
	require.EqualValues(t, 3, i.recovers("--publish", "--yes").Published)
}

// What was redriven is in the topic, with one header more; its letter may have been deleted since,
// as docs/DEAD-LETTERS.md recommends.
func TestRecover_FindsWhatWasRedriven(t *testing.T) {
	i, broker := newLossy(t, "POSTRIDER_DEADLETTER_REFUSED=dead_letter")
	i.deliver(broker, 1, 3)
	i.put(broker, &sink.Message{
		Topic: "outbox.event.order", Key: []byte("2"), Value: []byte(`{"n": 2}`),
		Partition: sink.ByKey, Timestamp: time.Now(),
		Headers: []sink.Header{headerOf("id", "2"),
			headerOf(deadletter.HeaderRedriven, "0102030405060708090a0b0c")},
	})
	require.EqualValues(t, 0, i.recovers().Undelivered)
}

// Killed between its last two steps, a recovery has left two slots. The one that nobody streams
// keeps WAL for ever.
func TestRecover_DropsTheSecondSlotOfAnInterruptedAttempt(t *testing.T) {
	i, broker := newLossy(t)
	i.deliver(broker, 1, 2, 3)
	spare := backfill.NewSlotName(i.db.Name)
	i.exec("SELECT pg_create_logical_replication_slot('" + spare + "', 'pgoutput')")
	i.exec("SELECT pg_copy_logical_replication_slot('" + spare + "', '" + i.db.Name + "')")
	defer i.exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE " +
		"slot_name = '" + spare + "'")
	i.ok("recover", "--publish", "--yes")
	_, err := slot.Get(t.Context(), i.conn, spare)
	require.ErrorIs(t, err, slot.ErrNotFound)
}

// Rows of a partition come under its name, and so do their dead letters; recover reads them from
// the table.
func TestRecover_CountsDeadLettersOfPartitionsAsDelivered(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 3, "postrider.dead_letters": 1})
	i.env = append(i.env, "POSTRIDER_DEADLETTER_REFUSED=dead_letter")
	i.exec(`CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_type text NOT NULL DEFAULT 'order',
		aggregate_id text NOT NULL, payload jsonb, created_at timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (id);
		CREATE TABLE outbox_p1 PARTITION OF outbox FOR VALUES FROM (0) TO (1000);
		CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');
		INSERT INTO outbox (id, aggregate_id, payload) SELECT n, n, jsonb_build_object('n', n) FROM generate_series(1, 3) n`)
	i.put(k.Brokers()[0], i.ownLetter("public.outbox_p1", "2"))
	require.EqualValues(t, 2, i.recovers().Undelivered)
}

// A relay with exactly_once that hangs, or cannot reach anything but the broker, has a transaction
// open. What is in it, recover publishes; so it must not be committed afterwards.
func TestRecover_ShutsOutARelayThatHangs(t *testing.T) {
	i, broker := newLossy(t, "POSTRIDER_RELAY_EXACTLY_ONCE=true")
	hung, err := kgo.NewClient(kgo.SeedBrokers(broker),
		kgo.TransactionalID(producer.TransactionalID(sink.Source{SystemID: i.system(),
			Database: i.db.Name, Slot: i.db.Name})))
	require.NoError(t, err)
	defer hung.Close()
	require.NoError(t, hung.BeginTransaction())
	for n := 1; n <= 3; n++ {
		r := &kgo.Record{Topic: "outbox.event.order", Key: fmt.Append(nil, n),
			Value:   fmt.Appendf(nil, `{"n": %d}`, n),
			Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Append(nil, n)}}}
		require.NoError(t, hung.ProduceSync(t.Context(), r).FirstErr())
	}

	require.EqualValues(t, 3, i.recovers("--publish", "--yes").Published)
	err = hung.EndTransaction(t.Context(), kgo.TryCommit)
	again := i.recovers()
	require.Error(t, err, "it was not shut out: consumers get the rows twice")
	require.EqualValues(t, 3, again.Topics[0].Records)
}

// The letter of another relay's row with the same id does not make a lost row one that is kept.
func TestAudit_CountsNoLetterOfAnotherDatabase(t *testing.T) {
	i, broker := newLossy(t, "POSTRIDER_DEADLETTER_REFUSED=dead_letter")
	i.deliver(broker, 1, 3)
	i.put(broker, letterOfAnother("billing.outbox"))
	r := i.run("audit")
	require.Equal(t, 1, r.code, r.stdout)
	require.Contains(t, r.stdout, "lost                          1")
}

// The record of a row that was inserted just now can have the time of an event of last week, by
// which the topic is not to be cut off.
func TestAudit_FindsRecordsOfOldEvents(t *testing.T) {
	i, broker := newLossy(t)
	i.eventsOfLastWeek()
	i.deliverAt(broker, time.Now().Add(-7*24*time.Hour), 1, 2, 3, 4) // 4 was deleted since
	r := i.run("audit", "--since", "4h", "--time-column", "created_at")
	require.Equal(t, exit.OK, r.code, r.stdout)
	require.Contains(t, r.stdout, "delivered                     3")
	i.deliver(broker, 5)
	r = i.run("audit", "--since", "4h", "--time-column", "created_at")
	require.Contains(t, r.stdout, "unexpected                    1")
	r = i.run("audit", "--since", "4h", "--time-column", "payload")
	require.Contains(t, r.stderr, "no column for the time of a row, of type timestamptz or timestamp")
}

// A row without a time may have been delivered long before.
func TestAudit_JudgesNoRowWithoutATimeByALaterPartOfTheTopic(t *testing.T) {
	i, broker := newLossy(t)
	i.deliverAt(broker, time.Now().Add(-7*24*time.Hour), 1)
	i.deliver(broker, 2, 3)
	i.exec(`ALTER TABLE outbox ALTER created_at DROP NOT NULL; UPDATE outbox SET created_at = NULL WHERE id = 1`)
	r := i.run("audit", "--since", "4h")
	require.Equal(t, exit.OK, r.code, r.stdout)
	require.Contains(t, r.stdout, "1 rows not judged")
	r = i.run("audit", "--until", "0s")
	require.Contains(t, r.stdout, "written                       3")
}

// A slot of that name may be another relay's: nothing says that recover has made it.
func TestRecover_DropsNoSlotOfAnotherDatabase(t *testing.T) {
	i, broker := newLossy(t)
	i.deliver(broker, 1, 2, 3)
	spare := backfill.NewSlotName(i.db.Name)
	config := i.conn.Config().Copy()
	config.Database = "postgres"
	other, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer other.Close(t.Context())
	_, err = other.Exec(t.Context(),
		"SELECT pg_create_logical_replication_slot('"+spare+"', 'pgoutput')")
	require.NoError(t, err)
	i.exec("SELECT pg_create_logical_replication_slot('" + i.db.Name + "', 'pgoutput')")
	defer i.exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE " +
		"slot_name = '" + spare + "'")
	i.ok("recover", "--publish", "--yes")
	_, err = slot.Get(t.Context(), i.conn, spare)
	require.NoError(t, err)
}
