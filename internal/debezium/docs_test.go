package debezium

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mappedTo says in a word or two where the properties go that have code of their own; what a table
// of the package has is taken from there.
var mappedTo = map[string]string{
	"connector.class": "must be PostgresConnector",
	"transforms": "EventRouter, and DecodeLogicalDecodingMessageContent " +
		"before it; see below for others",
	"predicates": "`replication.tables`, and `tables` of each " +
		"`[[router]]`; refused if they cannot be decided by the table",
	"key.converter":    "`format.key` and its options",
	"value.converter":  "`format.value` and its options",
	"header.converter": "`format.headers`",
	"topic.prefix": "`router.topic.prefix`; --topic-prefix or postrider " +
		"if it is missing",
	"exactly.once.support": "required: `relay.exactly_once`; requested: not " +
		"needed, as far as the file tells",
	"database.server.name": "`router.topic.prefix`, if there is no topic.prefix",
	"database.hostname":    "`postgres.url`",
	"database.port":        "`postgres.url`",
	"database.user":        "`postgres.url`",
	"database.password": "never copied: `PGPASSWORD`, or `${NAME}` in " +
		"`postgres.url`",
	"database.dbname": "`postgres.url`",
	"database.sslmode": "`postgres.url`; prefer and allow are left out, since " +
		"postrider never goes on without TLS by itself",
	"database.sslrootcert":        "`postgres.url`",
	"database.sslcert":            "`postgres.url`",
	"database.sslkey":             "`postgres.url`; PEM",
	"database.sslpassword":        "not needed: the key has no password",
	"slot.name":                   "`slot.name`; debezium by default",
	"plugin.name":                 "must be pgoutput",
	"slot.drop.on.stop":           "true is refused",
	"slot.failover":               "`slot.failover`",
	"publication.name":            "`replication.publication`; dbz_publication by default",
	"publication.autocreate.mode": "not needed: the publication is taken as it is",
	"publish.via.partition.root":  "not needed: the publication is taken as it is",
	"snapshot.mode": "`snapshot.mode`; always, initial_only, custom and " +
		"configuration_based are refused",
	"heartbeat.interval.ms":  "`relay.heartbeat_interval` and `relay.heartbeat_topic`",
	"topic.heartbeat.prefix": "`relay.heartbeat_topic`",
	"heartbeat.action.query": "not needed: postrider moves the slot of a quiet " +
		"database without writing",
	"table.include.list": "`replication.tables`; patterns are written out, or " +
		"need --table or --postgres",
	"table.exclude.list":  "`replication.tables`",
	"schema.include.list": "`replication.tables`",
	"schema.exclude.list": "`replication.tables`",
	"column.include.list": "not needed, unless it takes a column away that the " +
		"router reads",
	"column.exclude.list": "not needed, unless it takes a column away that the " +
		"router reads",
	"message.prefix.include.list": "`replication.messages`, with " +
		"DecodeLogicalDecodingMessageContent",
	"message.prefix.exclude.list":   "refused: name the prefixes that are outbox events",
	"decimal.handling.mode":         "`router.decimal.handling.mode`",
	"binary.handling.mode":          "`router.binary.handling.mode`",
	"time.precision.mode":           "`router.time.precision.mode`",
	"interval.handling.mode":        "`router.interval.handling.mode`",
	"hstore.handling.mode":          "`router.hstore.handling.mode`",
	"money.fraction.digits":         "`router.money.fraction.digits`",
	"include.unknown.datatypes":     "`router.include.unknown.datatypes`",
	"unavailable.value.placeholder": "`router.unavailable.value.placeholder`",
	"extended.headers.enabled":      "`router.extended.headers.enabled`; true by default",
	"skipped.operations":            "not needed, unless it skips inserts",
	"name":                          "not needed",
	override + "bootstrap.servers":  "`sink.kafka.brokers`",
	override + "security.protocol": "`sink.kafka.tls` and `sink.kafka.sasl`, with the " +
		"sasl. and ssl. properties; PLAIN and SCRAM, PEM files",
	override + "compression.type":           "`sink.kafka.compression`",
	override + "client.id":                  "`sink.kafka.client_id`",
	override + "max.request.size":           "`sink.kafka.max_message_bytes`",
	override + "linger.ms":                  "`sink.kafka.linger`, at most 1s",
	override + "delivery.timeout.ms":        "`sink.kafka.delivery_timeout`",
	override + "acks":                       "not needed: always all",
	creation + "default.partitions":         "`sink.kafka.topics`",
	creation + "default.replication.factor": "`sink.kafka.topics`",
}

// referenceTable is the table of the documentation.
func referenceTable(t *testing.T) string {
	t.Helper()
	rows := map[string]string{}
	for _, name := range known().mapped {
		require.NotEmpty(t, mappedTo[name], "what becomes of %s?", name)
		rows[name] = mappedTo[name]
	}
	require.Len(t, mappedTo, len(known().mapped))
	for name, why := range known().notNeeded {
		rows[name] = "not needed: " + why
	}
	for name, j := range known().judged {
		fine := "refused: "
		if len(j.Fine) > 0 {
			fine = strings.Join(j.Fine, ", ") + ": not needed, " + j.Why + ". Else refused: "
		}
		rows[name] = fine + j.Refused
	}
	for prefix, why := range known().prefixes {
		rows[prefix+"*"] = "not needed: " + why
	}
	for _, o := range known().router {
		to := "`router." + o.Name + "`"
		if o.Kind == "ignored" {
			to = "not needed: " + o.Text
		}
		rows["transforms.*."+o.Name] = to
	}
	var b strings.Builder
	b.WriteString("| property | what becomes of it |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, rows[name])
	}
	b.WriteString("\n| transform | what it does | instead |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(known().transforms)) {
		shown := "`" + name + "`"
		if name == "" {
			shown = "any other"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", shown, known().transforms[name].Effect,
			known().transforms[name].Instead)
	}
	return b.String()
}

func TestDocs_HaveTheTableOfProperties(t *testing.T) {
	const page, begin, end = "../../docs/IMPORT-DEBEZIUM.md", "<!-- table -->\n", "<!-- end -->"
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(raw)
	from, to := strings.Index(text, begin)+len(begin), strings.Index(text, end)
	require.Greater(t, to, from-1)
	want := "\n" + referenceTable(t) + "\n"
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text[:from]+want+text[to:]), 0o600))
		return
	}
	require.Equal(t, want, text[from:to], "go test ./internal/debezium -update writes what has "+
		"changed")
}
