// Package debezium reads the configuration of a Debezium connector for PostgreSQL with the Outbox Event Router and says what
// postrider makes of it: every property is mapped to a key of postrider.toml, not needed, or refused.
//
// It connects to nothing and knows nothing of the other packages but the names of their keys. No value that may be a
// secret leaves it: passwords become references to the environment or to files.
//
//	debezium.go        Translate: every property of a connector
//	parse.go           Parse: which kind of file it is
//	parsejson.go       JSON, as Kafka Connect answers it
//	parseproperties.go a properties file
//	parsestrimzi.go    a KafkaConnector of Strimzi
//	option.go          properties that stand alone
//	connection.go      database.*
//	security.go        TLS and SASL
//	slot.go            slot, publication and snapshot
//	tables.go          which tables are captured
//	column.go          lists of columns
//	transform.go       the chain of transforms
//	route.go           the EventRouter
//	converter.go       key, value and header converters
//	producer.go        producer.override.*
//	offset.go          a stored offset
//	pattern.go         Debezium's lists of regular expressions
//	nearest.go         a property that was probably misspelt
//	toml.go            the file that is written
//	report.go          what became of each property
package debezium

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Connector is a connector's configuration, flat, as Kafka Connect has it.
type Connector struct {
	Name       string // of the connector; empty: unknown
	Properties map[string]string
	// Server marks a configuration of Debezium Server, whose Kafka sink writes other records than Kafka Connect does.
	Server bool

	written map[string]string // property to its name in the file, where that is another
	spills  bool              // a file of lines: the rest of a value that was wrapped looks like a property
}

// Options is what a file does not say.
type Options struct {
	// Tables lists the tables, as schema.table, that match a Java regular expression as a whole; see Match.
	// nil: only lists of literal names can be resolved.
	Tables func(pattern string) ([]string, error)
	// KeyConverter and ValueConverter are what the worker has for a connector that names none: a class, or a
	// format of postrider. Empty: JsonConverter with schemas is assumed, and the translation says so.
	KeyConverter, ValueConverter string
	// TopicPrefix is for a connector without topic.prefix. Empty: DefaultTopicPrefix, and the translation says so.
	TopicPrefix string
	// Brokers are the bootstrap servers for a connector that does not name them, as most do not. Empty: a placeholder.
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
	Property  string   `json:"property"`            // as it stands in the file
	Outcome   Outcome  `json:"outcome"`             //
	Settings  []string `json:"settings,omitempty"`  // keys of postrider.toml with their values: `slot.name = 'outbox'`
	Text      string   `json:"text,omitempty"`      // why, or what to do
	Attention bool     `json:"attention,omitempty"` // a person should read the text before the first start
	Default   bool     `json:"default,omitempty"`   // the property is not in the file: its default has this outcome
}

// Translation is the result for one connector.
type Translation struct {
	Items []Item // one per property of the connector, and those with Default set; in order of the names
	// Variables are the environment variables that the TOML refers to.
	Variables []string

	// Columns are those that the routers read, in their tables.
	Columns []Column

	doc document
}

// Column is a column that a router reads.
type Column struct {
	Table    string // schema.table
	Name     string
	Property string // that names it, as it stands in the file; for a default the property that could
	Key      string // of postrider.toml
	Optional bool   // table.field.additional.missing = ignore
}

// Reject refuses what is mapped to a key of postrider.toml: for what only the program can judge that reads the key. What comes from
// a default gets an item of its own.
func (t *Translation) Reject(key, why string) {
	at := slices.IndexFunc(t.Items, func(i Item) bool {
		return slices.ContainsFunc(i.Settings, func(s string) bool { return strings.HasPrefix(s, key+" = ") })
	})
	if at < 0 {
		t.Items = append(t.Items, Item{Property: key, Outcome: Refused, Text: why, Default: true})
		return
	}
	t.Items[at].Outcome, t.Items[at].Text, t.Items[at].Settings = Refused, why, nil
}

// Refused lists the items that stand in the way.
func (t *Translation) Refused() []Item { return t.with(Refused) }

func (t *Translation) with(o Outcome) []Item {
	var items []Item
	for _, i := range t.Items {
		if i.Outcome == o {
			items = append(items, i)
		}
	}
	return items
}

// Count tells how many properties of the file have an outcome.
func (t *Translation) Count(o Outcome) int {
	n := 0
	for _, i := range t.with(o) {
		if !i.Default {
			n++
		}
	}
	return n
}

// TOML is a postrider.toml for everything that is mapped. With refused items it is a draft.
func (t *Translation) TOML() []byte { return t.doc.render(t.Variables) }

// Translate says what becomes of each property.
func Translate(c Connector, o Options) *Translation {
	t := &translator{connector: c, options: o, left: maps.Clone(c.Properties)}
	if t.left == nil {
		t.left = map[string]string{}
	}
	t.class()
	t.converters()
	t.transforms()
	t.tables()
	t.routers()
	t.connection()
	t.slot()
	t.snapshot()
	t.heartbeats()
	t.producer()
	t.exactlyOnce()
	t.topics()
	t.columns()
	t.rest()
	slices.SortStableFunc(t.items, func(a, b Item) int { return strings.Compare(a.Property, b.Property) })
	slices.Sort(t.variables)
	return &Translation{Items: t.items, Variables: slices.Compact(t.variables), Columns: t.readColumns(), doc: t.doc}
}

// translator goes through the properties. A property is in left until it has its item; no property gets two.
type translator struct {
	connector Connector
	options   Options
	left      map[string]string
	items     []Item
	hidden    map[string]bool // names that may be a part of a secret
	variables []string
	doc       document

	decode   *transform // DecodeLogicalDecodingMessageContent before the routers; nil: none
	routes   []*route   // the event routers, in order
	outboxes []string   // tables that are captured
	formats  [3]string  // of key, value and headers
}

// get is a property's value without blanks around it, which count in texts only.
func (t *translator) get(name string) (string, bool) {
	v, ok := t.connector.Properties[name]
	return strings.TrimSpace(v), ok
}

// value is get with a default.
func (t *translator) value(name, otherwise string) string {
	if v, ok := t.get(name); ok {
		return v
	}
	return otherwise
}

func (t *translator) item(name string, i Item) *Item {
	_, inFile := t.connector.Properties[name]
	if inFile {
		if _, left := t.left[name]; !left {
			return &Item{} // said already: the first word counts
		}
		delete(t.left, name)
	} else if slices.ContainsFunc(t.items, func(o Item) bool { return o.Default && o.Property == name }) {
		return &Item{}
	}
	if inFile && i.Outcome == Mapped && !canRefer(name) && t.provided(t.connector.Properties[name]) {
		i = Item{Outcome: Refused, Text: "comes from a config provider or a variable, and postrider takes those in URLs and secrets only: write the value here"}
	}
	i.Property, i.Default = t.nameInFile(name), !inFile
	t.items = append(t.items, i)
	return &t.items[len(t.items)-1]
}

// optionName is what options look like, and what keys, certificates and passwords do not.
var optionName = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[A-Za-z0-9_$-]+)+$`)

func (t *translator) nameInFile(name string) string {
	if t.hidden[name] {
		return "(not shown)"
	}
	return t.connector.nameInFile(name)
}

func (c Connector) nameInFile(name string) string {
	if w, ok := c.written[name]; ok {
		return w
	}
	return name
}

// mapped gives a property its settings.
func (t *translator) mapped(name, text string, settings ...setting) *Item {
	texts := make([]string, len(settings))
	for n, s := range settings {
		t.doc.set(s)
		texts[n] = s.String()
	}
	return t.item(name, Item{Outcome: Mapped, Settings: texts, Text: text})
}

func (t *translator) notNeeded(name, why string) *Item {
	return t.item(name, Item{Outcome: NotNeeded, Text: why})
}

func (t *translator) refuse(name, what string) *Item {
	return t.item(name, Item{Outcome: Refused, Text: what})
}

// read asks a person to look at an item.
func (i *Item) read() { i.Attention = true }

// below lists the properties without an item yet whose names start with prefix.
func (t *translator) below(prefix string) []string {
	var names []string
	for name := range t.left {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// boolean reads a property as Kafka Connect does. The item of a wrong one is made here.
func (t *translator) boolean(name string, otherwise bool) (value, ok bool) {
	v, given := t.get(name)
	switch {
	case !given:
		return otherwise, true
	case strings.EqualFold(v, "true"):
		return true, true
	case strings.EqualFold(v, "false"):
		return false, true
	}
	t.refuse(name, "is neither true nor false: Kafka Connect refuses it too")
	return otherwise, false
}

// list splits a list of Kafka Connect's.
func list(v string) []string {
	var parts []string
	for _, p := range strings.Split(v, ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}

func simpleName(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }
