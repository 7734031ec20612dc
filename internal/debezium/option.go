package debezium

import (
	"slices"
	"strings"
)

// class checks what kind of connector this is.
func (t *translator) class() {
	class, given := t.get("connector.class")
	switch simple := simpleName(class); {
	case !given:
		t.refuse("connector.class", "is missing: it is not a connector's configuration, or not all of it")
	case simple == "PostgresConnector":
		t.notNeeded("connector.class", "what postrider is")
	case strings.Contains(class, "debezium"):
		t.refuse("connector.class", simple+" is for another database: postrider relays PostgreSQL's outbox tables")
	default:
		t.refuse("connector.class", simple+" is not Debezium's connector for PostgreSQL ("+postgresConnector+")")
	}
	t.given("name", "names nothing in postrider; metrics and logs have the slot's name")
}

const postgresConnector = "io.debezium.connector.postgresql.PostgresConnector"

const (
	ownLoop    = "postrider sends an event as soon as it arrives, and bounds memory by relay.in_flight_messages and in_flight_bytes"
	noOffsets  = "the slot is the only position that postrider has"
	noUpdates  = "concerns updates and deletes, which never leave the server"
	ownRetries = "postrider reconnects for as long as it takes, with growing pauses (relay.backoff_min, backoff_max)"
	snapshots  = "concerns how a snapshot is taken; postrider reads rows once, in order, without locks"
	noSignals  = "there are no signals: a row is published again by inserting it again; postrider slot shows and moves the slot"
	noHistory  = "PostgreSQL's connector has no schema history"
	workers    = "concerns the worker, not the records"
	ownMetrics = "postrider's metrics are at /metrics"
	// of Kafka
	ownTransactions = "with relay.exactly_once, a Kafka transaction has whole transactions of PostgreSQL"
)

// reasons are properties that postrider needs nothing for, whatever their value.
var reasons = map[string]string{
	"tasks.max": "one relay reads one slot", "tasks.max.enforce": workers, "config.action.reload": workers, "connector.plugin.version": workers,
	"key.converter.plugin.version": workers, "value.converter.plugin.version": workers, "header.converter.plugin.version": workers,
	"errors.retry.timeout": ownRetries, "errors.retry.delay.max.ms": ownRetries, "errors.max.retries": ownRetries,
	"retriable.restart.connector.wait.ms": ownRetries, "slot.max.retries": ownRetries, "slot.retry.delay.ms": ownRetries,
	"errors.log.enable": "errors are always logged, without contents of rows", "errors.log.include.messages": "errors are always logged, without contents of rows",
	"transaction.boundary": ownTransactions, "transaction.boundary.interval.ms": ownTransactions,
	"offsets.storage.topic": noOffsets, "offset.storage": noOffsets, "offset.mismatch.strategy": noOffsets,
	"max.batch.size": ownLoop, "max.queue.size": ownLoop, "max.queue.size.in.bytes": ownLoop, "poll.interval.ms": ownLoop, "query.fetch.size": ownLoop,
	"status.update.interval.ms": "postrider reports to the server at once when something is acknowledged, else every replication.status_interval",
	"lsn.flush.timeout.ms":      "a position is confirmed as soon as the broker has acknowledged it", "lsn.flush.timeout.action": "a position is confirmed as soon as the broker has acknowledged it",
	"xmin.fetch.interval.ms": "xmin is only in raw change events", "read.only": "postrider never writes to the database, unless asked to create publication and slot",
	"database.query.timeout.ms": "queries that postrider makes are bounded", "database.tcpkeepalive": "connections are kept alive", "database.tcpKeepAlive": "connections are kept alive",
	"connection.validation.timeout.ms": "postgres.connect_timeout bounds a connection", "executor.shutdown.timeout.ms": "relay.drain_timeout bounds a stop",
	"replica.identity.autoset.values": noUpdates, "skip.messages.without.change": noUpdates, "tombstones.on.delete": noUpdates,
	"toasted.value.placeholder": noUpdates,
	"schema.refresh.mode":       "the columns come with the stream", "message.key.columns": "the router takes the key from table.field.event.key",
	"custom.metric.tags": ownMetrics, "statistics.metrics.enabled": ownMetrics, "advanced.metrics.enable": ownMetrics,
	"topic.cache.size": workers, "source.struct.version": "the source block is only in raw change events", "sanitize.field.names": "was replaced by field.name.adjustment.mode",
	"snapshot.fetch.size": snapshots, "snapshot.max.threads": snapshots, "snapshot.isolation.mode": snapshots, "snapshot.locking.mode": snapshots,
	"snapshot.lock.timeout.ms": snapshots, "snapshot.delay.ms": snapshots, "streaming.delay.ms": snapshots, "snapshot.query.mode": snapshots,
	"snapshot.tables.order.by.row.count": snapshots, "snapshot.max.threads.multiplier": snapshots,
	"guardrail.collections.max": "replication.tables names the tables", "guardrail.collections.limit.action": "replication.tables names the tables",
	"include.schema.changes": noHistory, "table.ignore.builtin": "replication.tables names the tables",
	"transaction.topic": "there are no transaction records", "topic.transaction": "there are no transaction records",
	"signal.data.collection": noSignals, "signal.enabled.channels": noSignals, "signal.poll.interval.ms": noSignals, "signal.file": noSignals,
	"debezium.sink.kafka.wait.message.delivery.timeout.ms": "postrider waits for every acknowledgement, up to sink.kafka.delivery_timeout",
	"slot.creation.timeout.ms":                             "creating a slot is bounded", "database.out.server.name": workers, "value.converter.schema.registry.url": workers,
	"max.iteration.transactions": ownLoop, "record.processing.threads": ownLoop, "record.processing.order": ownLoop,
	"record.processing.with.serial.consumer": ownLoop, "record.processing.shutdown.timeout.ms": ownLoop, "task.management.timeout.ms": ownLoop,
}

// families are reasons for all properties that start alike.
var families = []struct{ prefix, why string }{
	{"signal.", noSignals}, {"notification.", "alerts.webhook and alerts.command are notified of conditions; states are in the log, at /status and /metrics"},
	{"incremental.snapshot.", noSignals}, {"snapshot.mode.configuration.based.", "belongs to another snapshot.mode"}, {"snapshot.mode.custom.", "belongs to another snapshot.mode"},
	{"offset.storage.", noOffsets}, {"offset.flush.", noOffsets}, {"offset.commit.", noOffsets},
	{"schema.history.internal.", noHistory}, {"database.history.", noHistory}, {"schema.history.", noHistory},
	{"consumer.override.", "a source has no consumer"}, {"admin.override.", "concerns the creation of topics by the worker"},
	{"openlineage.", "postrider reports no lineage"}, {"config.providers", "secrets come from the environment or from files"},
	{"quarkus.", "concerns the process of Debezium Server; see [http] and [log]"}, {"metadata.", "concerns Kubernetes, not the records"},
	{"spec.", "concerns the operator, not the records"}, {"internal.", "is internal to Debezium"},
	{"debezium.format.", "stands in the format of key, value and headers"},
	{"errors.deadletterqueue.", "Kafka Connect has dead letter queues for sinks only"},
}

// judged are properties of which one value, or some, ask for nothing, and the others for what postrider does not do.
var judged = map[string]struct {
	fine []string // accepted, in lower case
	why  string   // of an accepted one
	what string   // of any other
}{
	"debezium.sink.type": {[]string{"kafka"}, "sink.kind is kafka", "postrider publishes to Kafka"},
	"errors.tolerance": {[]string{"none"}, "postrider skips no row unless [deadletter] says so",
		"rows that cannot be published are dropped silently. postrider stops instead, keeps the WAL and says which row it is, or does what [deadletter] says: use none"},
	"event.processing.failure.handling.mode": {[]string{"fail"}, "postrider never skips a row",
		"changes that cannot be read are dropped. postrider stops instead, keeps the WAL and says which row it is: use fail"},
	"event.deserialization.failure.handling.mode": {[]string{"fail"}, "postrider never skips a row",
		"changes that cannot be read are dropped. postrider stops instead, keeps the WAL and says which row it is: use fail"},
	"event.converting.failure.handling.mode": {[]string{"fail", "warn"}, "postrider stops at a value that it cannot read, and never publishes NULL in its place",
		"values that cannot be read are dropped. postrider stops instead: use fail"},
	"provide.transaction.metadata": {[]string{"false"}, "the default",
		"postrider publishes no transaction records. Put what consumers need of a transaction into the row"},
	"topic.naming.strategy": {[]string{"io.debezium.schema.schematopicnamingstrategy", "io.debezium.schema.defaulttopicnamingstrategy"}, "the router names the topics",
		"is code that postrider cannot run. The router names the topics; only the heartbeat topic and the names of schemas come from it: remove it, and compare"},
	"topic.delimiter":             {[]string{"."}, "the default", "is in the names of schemas, where postrider has a dot: use a dot"},
	"schema.name.adjustment.mode": {[]string{"none"}, "the default", "changes the names of schemas: use none"},
	"field.name.adjustment.mode":  {[]string{"none"}, "the default", "changes the names of columns: give them names that need no change, and use none"},
	"flush.lsn.source":            {[]string{"true"}, "postrider confirms what was acknowledged", "somebody else moves the slot: postrider confirms what was acknowledged, by itself. Use true"},
	"lsn.flush.mode": {[]string{"connector", "connector_and_driver"}, "postrider confirms what was acknowledged, and moves the slot of a quiet database",
		"somebody else moves the slot: postrider confirms what was acknowledged, by itself. Use connector"},
	"database.sslfactory": {nil, "", "is code that postrider cannot run: give the certificate authority as a PEM file with database.sslrootcert"},
	"database.initial.statements": {nil, "", "postrider runs no statements of its own on connecting: set the parameters for its role (ALTER ROLE ... SET ...) " +
		"or in postgres.url"},
	"slot.stream.params":      {[]string{""}, "is empty", "postrider chooses the plug-in's parameters itself; origin=any is the server's default. Remove it"},
	"converters":              {[]string{""}, "is empty", "are code that postrider cannot run. Give the columns that the router reads types that need no converter, and remove it"},
	"post.processors":         {[]string{""}, "is empty", "are code that postrider cannot run. Write what they add into the row, and remove them"},
	"sourceinfo.struct.maker": {nil, "", "is code that postrider cannot run; the source block is only in raw change events: remove it"},
}

// rest ends what the others have left.
func (t *translator) rest() {
	t.skippedOperations()
	t.customConverters()
	for _, name := range t.below("") {
		if why, known := reasons[name]; known {
			t.notNeeded(name, why)
			continue
		}
		if j, known := judged[name]; known {
			v, _ := t.get(name)
			if slices.Contains(j.fine, strings.ToLower(v)) {
				t.notNeeded(name, j.why)
			} else {
				t.refuse(name, j.what)
			}
			continue
		}
		at := slices.IndexFunc(families, func(f struct{ prefix, why string }) bool { return strings.HasPrefix(name, f.prefix) })
		if at >= 0 {
			t.notNeeded(name, families[at].why)
			continue
		}
		if strings.HasPrefix(name, "driver.") {
			t.refuse(name, "is for the JDBC driver: put what libpq has for it into postgres.url, and remove it")
			continue
		}
		t.unknown(name)
	}
}

// unknown refuses a property that nothing above knows.
func (t *translator) unknown(name string) {
	near := nearest(name, knownProperties(name))
	if t.connector.spills && near == "" && !optionName.MatchString(name) {
		if t.hidden == nil {
			t.hidden = map[string]bool{}
		}
		t.hidden[name] = true
		t.refuse(name, "a line that begins like no option, maybe the rest of a value that was wrapped: end each line of a value but the last "+
			"with a backslash. It is not shown, since it may be a part of a secret")
		return
	}
	t.refuse(name, unknownText(name, near))
}

func (t *translator) skippedOperations() {
	const name = "skipped.operations"
	if _, given := t.get(name); !given {
		return
	}
	if t.skips("c") {
		t.refuse(name, "skips inserts, which are all that an outbox has: the connector publishes nothing")
		return
	}
	t.notNeeded(name, noUpdates)
}

func (t *translator) skips(operation string) bool {
	v, _ := t.get("skipped.operations")
	return slices.Contains(list(v), operation)
}

// customConverters refuses the options of the converters that are refused.
func (t *translator) customConverters() {
	for _, property := range []string{"converters", "post.processors"} {
		v, _ := t.get(property)
		for _, alias := range list(v) {
			for _, name := range t.below(alias + ".") {
				t.refuse(name, "belongs to "+property)
			}
		}
	}
}

// unknownText names what was probably meant.
func unknownText(name, near string) string {
	text := "is unknown to postrider"
	switch near {
	case name:
		return "cannot be judged before what else is refused is solved"
	case "":
		text += "."
	default:
		text += "; did you mean " + near + "?"
	}
	return text + " Correct or remove it: Kafka Connect ignores what it does not know, postrider does not"
}
