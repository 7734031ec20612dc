package debezium

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const inSchemas = "not needed, unless consumers see the schemas: json+schema, or a schema registry"

// mappedTo has in a word or two where the properties go that have code of their own; what a table
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
	"topic.prefix":     "`router.topic.prefix`; --topic-prefix or postrider if it is missing",
	"exactly.once.support": "required: `relay.exactly_once`; requested: not " +
		"needed, as far as the file shows",
	"database.server.name": "`router.topic.prefix`, if there is no topic.prefix",
	"database.hostname":    "`postgres.url`",
	"database.port":        "`postgres.url`",
	"database.user":        "`postgres.url`",
	"database.password":    "never copied: `PGPASSWORD`, or `${NAME}` in `postgres.url`",
	"database.dbname":      "`postgres.url`",
	"database.sslmode": "`postgres.url`; prefer and allow are left out, since " +
		"postrider never goes on without TLS by itself",
	"database.sslrootcert": "`postgres.url`",
	"database.sslcert":     "`postgres.url`",
	"database.sslkey":      "`postgres.url`; PEM",
	"database.sslpassword": "not needed: the key has no password",
	"slot.name":            "`slot.name`; debezium by default",
	"plugin.name":          "must be pgoutput",
	"snapshot.mode": "`snapshot.mode`; always, initial_only, custom and " +
		"configuration_based are refused",
	"heartbeat.interval.ms":  "`relay.heartbeat_interval` and `relay.heartbeat_topic`",
	"topic.heartbeat.prefix": "`relay.heartbeat_topic`",
	"table.include.list": "`replication.tables`; patterns are written out, or " +
		"need --table or --postgres: tables that are created later are not among them",
	"table.exclude.list":             "`replication.tables`",
	"schema.include.list":            "`replication.tables`",
	"schema.exclude.list":            "`replication.tables`",
	"column.include.list":            "not needed, unless it takes a column away that the router reads",
	"column.exclude.list":            "not needed, unless it takes a column away that the router reads",
	"column.propagate.source.type":   inSchemas,
	"datatype.propagate.source.type": inSchemas,
	"include.schema.comments":        inSchemas,
	"message.prefix.include.list": "`replication.messages`, with " +
		"DecodeLogicalDecodingMessageContent; compared exactly, where Debezium ignores the case of " +
		"letters and takes a dot for any character",
	"message.prefix.exclude.list":  "refused: name the prefixes that are outbox events",
	"skipped.operations":           "not needed, unless it skips inserts",
	override + "bootstrap.servers": "`sink.kafka.brokers`",
	override + "security.protocol": "`sink.kafka.tls` and `sink.kafka.sasl`, with the " +
		"sasl. and ssl. properties; PLAIN, SCRAM, OAUTHBEARER, MSK IAM, Kerberos, PEM files",
	override + "max.request.size":           "`sink.kafka.max_message_bytes`",
	override + "linger.ms":                  "`sink.kafka.linger`, at most 1s",
	override + "delivery.timeout.ms":        "`sink.kafka.delivery_timeout`",
	creation + "default.partitions":         "`sink.kafka.topics`",
	creation + "default.replication.factor": "`sink.kafka.topics`",
}

// referenceTable is the table of the documentation.
func referenceTable(t *testing.T) string {
	t.Helper()
	rows := map[string]string{}
	for _, name := range known().Mapped {
		require.NotEmpty(t, mappedTo[name], "what becomes of %s?", name)
		rows[name] = mappedTo[name]
	}
	require.Len(t, mappedTo, len(known().Mapped))
	for _, r := range known().Rules {
		what := "not needed: " + r.Why
		if r.Refused+r.Attention != "" {
			what = "refused: " + r.Refused
			if r.Attention != "" {
				what = "not needed: " + r.Attention
			}
			if len(r.Fine) > 0 {
				fine := strings.TrimPrefix("empty"+strings.Join(r.Fine, ", "), "empty"+r.Fine[0])
				what = cmp.Or(r.Fine[0], "empty") + fine + ": not needed, " + r.Why + ". Else " + what
			}
		}
		what = strings.ReplaceAll(what, "{class}", "the class")
		for _, name := range r.Names {
			rows[name] = what
		}
		for _, prefix := range r.Prefixes {
			rows[prefix+"*"] = what
		}
	}
	for _, o := range known().Connector {
		rows[o.Name] = "`" + o.Section + "." + o.key() + "`"
		if o.Default != nil {
			rows[o.Name] += fmt.Sprintf("; %v by default", o.Default)
		}
	}
	for _, o := range known().Router {
		to := "`router." + o.Name + "`"
		if o.Kind == "ignored" {
			to = "not needed: " + o.Text
		}
		rows["transforms.*."+o.Name] = to
	}
	effects := map[string]effect{}
	for _, e := range known().Transforms {
		for _, class := range e.Classes {
			effects[class] = e
		}
	}
	var b strings.Builder
	b.WriteString("| property | what becomes of it |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, rows[name])
	}
	b.WriteString("\n| transform | what it does | instead |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		shown := "`" + name + "`"
		if name == "" {
			shown = "any other"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", shown, effects[name].Effect, effects[name].Instead)
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
