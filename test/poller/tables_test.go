package poller

import (
	"strings"
)

// table is a table of docs/OUTBOX-TABLES.md, with the poller that its team has.
type table struct {
	name   string // of the files in docs/outbox-tables
	before string // SQL after that of the file, for a poller
	// insert writes one event: of a key, with the payload {"n": N}.
	insert string
	// pending selects id, topic, key, value and headers of the rows to publish, locked, with
	// headers as text[] of names and values in turn.
	pending string
	// mark marks the rows of the ids $1, a text[], as published.
	mark string
	// topic is where the poller publishes to, by the prefix of the test.
	topic string
	// back is [write_back] with the columns of the poller.
	back string
}

var tables = []table{
	{
		name:   "polled",
		insert: `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES ('customer', $1, 'customer_moved', $2)`,
		pending: `SELECT id::text, 'outbox.event.' || aggregate_type, aggregate_id, payload::text,
				ARRAY['id', id::text, 'eventType', event_type]
			FROM outbox_events WHERE processed_at IS NULL ORDER BY created_at LIMIT 50 FOR UPDATE SKIP LOCKED`,
		mark:  `UPDATE outbox_events SET processed_at = now(), attempts = attempts + 1 WHERE id = ANY($1::uuid[])`,
		topic: "outbox.event.customer",
		back: `published_at = "processed_at"
attempts = "attempts"`,
	},
	{
		name:   "event-type",
		before: `CREATE INDEX ON outbox_messages (created_at) WHERE status = 'PENDING'`,
		insert: `INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ('order', $1, 'ORDER_CREATED', $2, '{"trace": "abc"}')`,
		pending: `SELECT id::text, lower(replace(event_type, '_', '-')), aggregate_id, payload::text,
				ARRAY['id', id::text, 'aggregateType', aggregate_type, 'trace', headers->>'trace']
			FROM outbox_messages WHERE status = 'PENDING' AND coalesce(next_retry_at, '-infinity') <= now()
			ORDER BY created_at LIMIT 50 FOR UPDATE SKIP LOCKED`,
		mark:  `UPDATE outbox_messages SET status = 'PUBLISHED', published_at = now() WHERE id = ANY($1::uuid[])`,
		topic: "order-created",
		back: `status = "status"
attempts = "retry_count"
last_error = "last_error"`,
	},
	{
		name:   "partitioned",
		before: `CREATE TABLE outbox_now PARTITION OF outbox DEFAULT`,
		insert: `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ('invoice', $1, 'invoice.sent', $2, '{"tenant": "acme"}')`,
		pending: `SELECT id::text, 'shop.' || aggregate_type || '.events', aggregate_id, payload::text,
				ARRAY['event-id', id::text, 'event-type', event_type, 'tenant', headers->>'tenant']
			FROM outbox WHERE published_at IS NULL ORDER BY outbox.id LIMIT 50 FOR UPDATE SKIP LOCKED`,
		mark:  `UPDATE outbox SET published_at = now(), attempts = attempts + 1 WHERE id = ANY($1::bigint[])`,
		topic: "shop.invoice.events",
		back:  `attempts = "attempts"`,
	},
	{
		name:   "tasks",
		insert: `INSERT INTO tasks (task_type, payload) SELECT 'SEND_EMAIL', jsonb_build_object('key', $1::text) || $2::jsonb`,
		pending: `SELECT id::text, 'tasks.' || lower(replace(task_type::text, '_', '-')), id::text, payload::text,
				ARRAY['id', id::text, 'executeAt', NULL]
			FROM tasks WHERE state = 'WAITING' ORDER BY created_at LIMIT 50 FOR UPDATE SKIP LOCKED`,
		mark:  `UPDATE tasks SET state = 'DONE', updated_at = now() WHERE id = ANY($1::uuid[])`,
		topic: "tasks.send-email",
		back: `published_at = ""
status = "state"
pending = "WAITING"
published = "DONE"
attempts = "retry_count"
last_error = "error_message"`,
	},
	{
		name: "camel-case",
		insert: `INSERT INTO "OutboxEvent" ("id", "aggregateType", "aggregateId", "eventType", "payload")
			VALUES (gen_random_uuid()::text, 'cart', $1, 'ItemAdded', $2)`,
		pending: `SELECT "id", 'outbox.event.' || "aggregateType", "aggregateId", "payload"::text,
				ARRAY['id', "id", 'eventType', "eventType"]
			FROM "OutboxEvent" WHERE "status" = 'PENDING' ORDER BY "createdAt" LIMIT 50 FOR UPDATE SKIP LOCKED`,
		mark:  `UPDATE "OutboxEvent" SET "status" = 'SENT' WHERE "id" = ANY($1::text[])`,
		topic: "outbox.event.cart",
		back: `published_at = ""
status = "status"
published = "SENT"`,
	},
}

// withoutTime is a configuration without the line that the page says to leave out at first.
func withoutTime(configuration string) string {
	var lines []string
	for line := range strings.Lines(configuration) {
		if !strings.HasPrefix(line, "table.field.event.timestamp") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// withPrefix is a configuration whose topics begin with a prefix, so that tests can share a broker.
func withPrefix(configuration, prefix string) string {
	const key = "route.topic.replacement = "
	if strings.Contains(configuration, key) {
		return strings.Replace(configuration, key+`"`, key+`"`+prefix, 1)
	}
	return configuration + key + `"` + prefix + `outbox.event.${routedByValue}"` + "\n"
}
