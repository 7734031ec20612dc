package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// outboxSQL is the table that most tests use.
const outboxSQL = `
CREATE TABLE outbox (
	id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	aggregate_type text NOT NULL,
	aggregate_id   text,
	event_type     text,
	payload        jsonb
);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`

// routeTo is a configuration that sends every row to a topic of the test's own.
func routeTo(topic string, more string) string {
	return fmt.Sprintf(`
[router]
route.topic.regex = ".*"
route.topic.replacement = %q
table.fields.additional.placement = "event_type:header:eventType"
%s`, topic, more)
}

func TestMessages_AreRoutedAsRows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(topic, `
[replication]
messages = ["outbox", "other prefix"]`))
	r := s.run(t)

	emit := func(transactional bool, prefix, id string) string {
		return fmt.Sprintf(`SELECT pg_logical_emit_message(%t, '%s', '{"id": "%s", "aggregate_type": "order", "aggregate_id": "key-%s",
			"event_type": "emitted", "payload": {"n": 1, "text": "é"}}')`, transactional, prefix, id, id)
	}
	insert := func(key string) string {
		return fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'key-%s', 'inserted', '{}')`, key)
	}
	after := s.clock(t)
	s.do(t,
		emit(true, "outbox", "1"),
		emit(true, "other prefix", "2"),
		emit(true, "outbox2", "not ours"),
		emit(true, "Outbox", "not ours"),
		emit(true, "", "not ours"),
		emit(false, "outbox", "not transactional"),
		"BEGIN; "+emit(false, "outbox", "not transactional")+"; ROLLBACK",
		"BEGIN; "+emit(true, "outbox", "rolled back")+"; ROLLBACK",
		"BEGIN; "+insert("3")+"; "+emit(true, "outbox", "3")+"; SAVEPOINT s; "+emit(true, "outbox", "rolled back")+"; "+
			emit(false, "outbox", "not transactional")+"; ROLLBACK TO s; "+insert("3")+"; COMMIT",
	)
	before := s.clock(t)
	s.awaitConfirmed(t, r)
	r.Stop(t)

	records := s.All(t, topic)
	require.Len(t, records, 8)
	// As with Debezium, what is sent outside of a transaction is an event whether the transaction around it commits or not.
	require.Len(t, byKey(records, "key-not transactional"), 3)
	for _, id := range []string{"1", "2"} {
		of := byKey(records, "key-"+id)
		require.Len(t, of, 1, "messages with id %s", id)
		requireRecord(t, message{
			Topic: topic, Key: text("key-" + id), Value: text(`{"n": 1, "text": "é"}`),
			Headers: []header{{"id", text(id)}, {"eventType", text("emitted")}}, Timestamp: commitTime,
		}, after, before, of[0])
	}
	// Rows and messages of one transaction are in the order in which they were written.
	var order []string
	for _, r := range byKey(records, "key-3") {
		order = append(order, string(r.Headers[1].Value))
	}
	require.Equal(t, []string{"inserted", "emitted", "inserted"}, order)
}

func TestMessages_AreIgnoredUnlessConfigured(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(topic, ""))
	r := s.run(t)
	s.do(t,
		`SELECT pg_logical_emit_message(true, 'outbox', '{"id": "1", "aggregate_type": "order", "aggregate_id": "1", "event_type": "e", "payload": "x"}')`,
		`SELECT pg_logical_emit_message(true, 'outbox', 'no JSON')`,
	)
	s.awaitConfirmed(t, r)
	r.Stop(t)
	require.Zero(t, s.count(t, topic))
}

func text(s string) *string { return &s }
