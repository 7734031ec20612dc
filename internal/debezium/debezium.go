// Package debezium translates the configuration of a Debezium connector for PostgreSQL with the
// Outbox Event Router: every property is mapped to a key of postrider.toml, not needed, or
// refused.
//
// It makes no connection. No value that may be a secret leaves it: passwords become references to
// the environment or to files.
//
//	debezium.go        Translate: every property of a connector
//	items.go           what becomes of a property: mapped, not needed, refused
//	catalog.go         catalog.toml: the properties that need no code, transforms and converters
//	parse.go           Parse: which kind of file it is, and JSON as Kafka Connect answers it
//	parseproperties.go a properties file
//	parsestrimzi.go    a KafkaConnector of Strimzi
//	connection.go      database.*
//	security.go        TLS, and whether there is a login
//	login.go           SASL: passwords, tokens, Kerberos
//	slot.go            slot, snapshot and heartbeats
//	tables.go          which tables and columns are captured
//	transform.go       the chain of transforms
//	route.go           the EventRouter
//	converter.go       key, value and header converters
//	registry.go        AvroConverter and its schema registry
//	producer.go        producer.override.*, and the creation of topics
//	database.go        the tables of a database and their columns
//	judge.go           what of the new configuration is wrong
//	offset.go          a stored offset
//	pattern.go         Debezium's lists of regular expressions
//	toml.go            the file that is written
//	report.go          what became of each property
package debezium

import (
	"maps"
	"slices"
	"strings"
)

// Connector is a connector's configuration, flat, as Kafka Connect has it.
type Connector struct {
	Name       string // of the connector; empty: unknown
	Properties map[string]string
	// Server marks a configuration of Debezium Server, whose Kafka sink writes other records than
	// Kafka Connect does.
	Server bool

	written map[string]string // property to its name in the file, where the two differ
	// wraps marks a file of lines, where the second line of a wrapped value can look like a property.
	wraps bool
}

// Options are what the file does not contain.
type Options struct {
	// Tables are those that a pattern may match, as schema.table. nil: they are not known, and only
	// lists of literal names can be resolved.
	Tables []string
	// KeyConverter and ValueConverter are the worker's, for a connector that names none: a class, or
	// a format of postrider. Empty: JsonConverter with schemas, with an item about it.
	KeyConverter, ValueConverter string
	// TopicPrefix is for a connector without topic.prefix. Empty: DefaultTopicPrefix, with an item
	// about it.
	TopicPrefix string
	// Brokers are the bootstrap servers for a connector that does not name them. Empty: a
	// placeholder.
	Brokers []string
}

// DefaultTopicPrefix is that of postrider.
const DefaultTopicPrefix = "postrider"

// Outcome is what becomes of a property.
type Outcome string

// The outcomes.
const (
	Mapped    Outcome = "mapped"     // to the settings of the item
	NotNeeded Outcome = "not needed" // for the reason in its text
	Refused   Outcome = "refused"    // with what to do instead in its text
)

// Item is one property of the connector and what becomes of it. It never contains a secret.
type Item struct {
	Property string  `json:"property"` // as it stands in the file
	Outcome  Outcome `json:"outcome"`
	// Settings are keys of postrider.toml with their values: `slot.name = 'outbox'`.
	Settings  []string `json:"settings,omitempty"`
	Text      string   `json:"text,omitempty"`      // why, or what to do
	Attention bool     `json:"attention,omitempty"` // to be read before the first start
	Default   bool     `json:"default,omitempty"`   // not in the file: its default has this outcome
}

// Translation is the result for one connector.
type Translation struct {
	// Items has one item per property and those with Default set, in the order of the names.
	Items     []Item
	Variables []string // environment variables that the TOML refers to

	columns []column // that the routers read, in their tables
	doc     document
}

// column is a column that a router reads.
type column struct {
	table    string // schema.table
	name     string
	property string // that names it, as it stands in the file; for a default the property that could
	key      string // of postrider.toml
	optional bool   // table.field.additional.missing = ignore
}

// Refused lists the items that stand in the way.
func (t *Translation) Refused() (items []Item) {
	for _, i := range t.Items {
		if i.Outcome == Refused {
			items = append(items, i)
		}
	}
	return items
}

// Count is the number of properties of the file with an outcome.
func (t *Translation) Count(o Outcome) (n int) {
	for _, i := range t.Items {
		if i.Outcome == o && !i.Default {
			n++
		}
	}
	return n
}

// TOML is a postrider.toml for everything that is mapped. With refused items it is a draft.
func (t *Translation) TOML() []byte { return t.doc.render(t.Variables) }

// Translate makes an item of each property.
func Translate(c Connector, o Options) *Translation {
	c.Properties = maps.Clone(c.Properties) // the translator takes away what counts for nothing
	t := &translator{connector: c, external: o, left: maps.Clone(c.Properties),
		hidden: map[string]bool{}}
	for _, step := range []func(){
		t.class, t.converters, t.transforms, t.tables, t.routers, t.connection, t.slot, t.snapshot,
		t.heartbeats, t.producer, t.exactlyOnce, t.topics, t.columnLists, t.rest,
	} {
		step()
	}
	slices.SortStableFunc(t.items, func(a, b Item) int {
		return strings.Compare(a.Property, b.Property)
	})
	slices.Sort(t.variables)
	return &Translation{
		Items: t.items, Variables: slices.Compact(t.variables), columns: t.columns(), doc: t.doc,
	}
}

// translator goes through the properties. A property is in left until it has its item; none gets
// two.
type translator struct {
	connector Connector
	external  Options // what the file does not contain
	left      map[string]string
	items     []Item
	hidden    map[string]bool // names that may be a part of a secret
	variables []string
	doc       document

	decode   *transform // DecodeLogicalDecodingMessageContent before the routers; nil: none
	routes   []*route   // the event routers, in order
	outboxes []string   // tables that are captured
	open     bool       // tables that do not exist yet may be captured too
	formats  [3]string  // of key, value and headers
}

// class checks what kind of connector this is.
func (t *translator) class() {
	const name = "connector.class"
	class, given := t.get(name)
	switch simple := simpleName(class); {
	case !given:
		t.refuse(name, "is missing: it is not a connector's configuration, or not all of it")
	case simple == "PostgresConnector":
		t.notNeeded(name, "what postrider is")
	case strings.Contains(class, "debezium"):
		t.refuse(name, simple+" is for another database: postrider relays PostgreSQL's outbox tables")
	default:
		t.refuse(name, simple+" is not Debezium's connector for PostgreSQL "+
			"(io.debezium.connector.postgresql.PostgresConnector)")
	}
	if t.skips("c") {
		t.refuse("skipped.operations", "skips inserts, which are all that an outbox has: the "+
			"connector publishes nothing")
	}
	t.given("skipped.operations", "concerns updates and deletes, which never leave the server")
}

// skips reports whether the connector leaves out an operation: c, u or d.
func (t *translator) skips(operation string) bool {
	return slices.Contains(list(t.value("skipped.operations", "")), operation)
}
