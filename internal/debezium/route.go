package debezium

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// route is an EventRouter of the chain and the [router] that it becomes.
type route struct {
	transform
	section  string // "router", or "router[2]" for the second of several
	settings []setting
	tables   []string          // that it routes
	messages []string          // prefixes of logical messages that it routes
	columns  map[string]string // that it reads, with the option that names them
}

// routers makes the sections [router], one for each EventRouter.
func (t *translator) routers() {
	for _, r := range t.routes {
		t.notNeeded(r.property("type"), "what ["+r.section+"] does")
		t.routerOptions(r)
	}
	t.commonSettings()
	common := t.doc.in("router")
	for _, r := range t.routes {
		var settings []setting
		if len(t.routes) > 1 {
			settings = append(settings, setting{key: "tables", value: r.tables})
			if len(r.messages) > 0 {
				settings = append(settings, setting{key: "messages", value: r.messages})
			}
		}
		t.doc.routers = append(t.doc.routers, slices.Concat(settings, r.settings, common))
	}
	if len(t.routes) == 0 {
		t.doc.routers = [][]setting{common}
	}
}

func (r *route) set(option string, value any) setting {
	s := setting{r.section, option, value, ""}
	r.settings = append(r.settings, s)
	return s
}

const (
	placementOption = "table.fields.additional.placement"
	topicOption     = "route.topic.replacement"
	versionOption   = "table.field.event.schema.version"
)

func (t *translator) routerOptions(r *route) {
	// Named, because postrider looks for two names of each and Debezium for one.
	r.columns = map[string]string{
		"id": "table.field.event.id", "payload": "table.field.event.payload",
	}
	for _, d := range [][2]string{
		{"table.field.event.key", "aggregateid"}, {"route.by.field", "aggregatetype"},
	} {
		if _, given := t.get(r.property(d[0])); !given {
			r.set(d[0], d[1])
			r.columns[d[1]] = d[0]
		}
	}
	for _, o := range known().Router {
		if _, given := t.get(r.property(o.Name)); given {
			t.routerOption(r, o)
		}
	}
	prefix := r.property("")
	for _, name := range t.below(prefix) {
		switch option := strings.TrimPrefix(name, prefix); {
		case option == "predicate" || option == "negate":
			// Its item is made with those of the tables.
		case strings.HasPrefix(option, "collection."):
			t.refuse(name, "is an option of the router for MongoDB: use the one that starts with table.")
		default:
			t.unknown(name)
		}
	}
}

// routerOption maps an option that is in the file.
func (t *translator) routerOption(r *route, o option) {
	name := r.property(o.Name)
	v, _ := t.get(name)
	switch {
	case o.Kind == "ignored":
		t.notNeeded(name, o.Text).attend()
	case o.Kind == "placement":
		t.placement(r, name)
	case o.Kind == "column" && !t.routerColumn(r, o, v):
	case o.Name == "table.op.invalid.behavior" && t.skips("u"):
		t.notNeeded(name, "skipped.operations has u: no update reaches the router; postrider only "+
			"warns of one")
	case o.Name == topicOption && t.connector.Properties[name] == "":
		t.refuse(name, "is empty: every topic name would be, and the broker refuses that from "+
			"Debezium too")
	default:
		if value, ok := t.read(name, o); ok {
			t.routed(name, o.Text, r.set(o.Name, value)).Attention = o.Attention
		}
	}
}

func (t *translator) routed(name, text string, s setting) *Item {
	return t.item(name, Item{Outcome: Mapped, Settings: []string{s.String()}, Text: text})
}

// routerColumn notes a column that the router reads, and reports whether it is mapped. An empty
// name is what Debezium fails with at the first row.
func (t *translator) routerColumn(r *route, o option, column string) bool {
	name := r.property(o.Name)
	placed := strings.ToLower(t.value(r.property(placementOption), ""))
	if column == "" && o.Name == versionOption && !strings.Contains(placed, "envelope") {
		t.notNeeded(name, "counts only with an envelope").attend()
		return false
	}
	if column == "" {
		t.refuse(name, "is empty: Debezium fails with the first row. Name a column, or remove the "+
			"line for the default")
		return false
	}
	switch o.Name {
	case "table.field.event.id":
		delete(r.columns, "id")
	case "table.field.event.payload":
		delete(r.columns, "payload")
	}
	if o.Name != "table.field.event.type" { // which Debezium never reads
		r.columns[column] = o.Name
	}
	if t.connector.Server && o.Name == "table.field.event.timestamp" {
		t.notNeeded(name, "the Kafka sink of Debezium Server does not pass the time on, so consumers "+
			"never saw it. With postrider the time of a record is that of the commit; set "+
			"router.table.field.event.timestamp for that of the column").attend()
		return false
	}
	return true
}

// placement checks the list as Debezium does at its start, and removes what Debezium Server
// ignores.
func (t *translator) placement(r *route, name string) {
	var kept []string
	text := ""
	v := t.connector.Properties[name]
	entries := strings.Split(strings.TrimRight(v, ","), ",") // as Java splits
	if v != "" && entries[0] == "" && len(entries) == 1 {
		entries = nil
	}
	for _, e := range entries {
		parts := strings.Split(e, ":")
		if len(parts) == 3 && parts[2] == "" {
			parts = parts[:2]
		}
		for n := range parts {
			parts[n] = strings.TrimSpace(parts[n])
		}
		if len(parts) == 3 && parts[2] == "" {
			parts[2] = " " // is a name for Debezium: the empty one
		}
		if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
			t.refuse(name, fmt.Sprintf("entry %q is neither column:placement nor column:placement:alias: "+
				"Debezium refuses it too", e))
			return
		}
		switch to := strings.ToLower(parts[1]); {
		case to == "partition" && t.connector.Server:
			text = fmt.Sprintf("without %q: the Kafka sink of Debezium Server ignores partitions, and the "+
				"key decides", e)
		case to == "header", to == "envelope", to == "partition":
			r.columns[parts[0]] = placementOption
			kept = append(kept, strings.Join(parts, ":"))
		default:
			t.refuse(name, fmt.Sprintf("entry %q: the placement is header, envelope or partition; "+
				"Debezium fails with the first row", e))
			return
		}
	}
	if len(kept) == 0 {
		t.notNeeded(name, cmp.Or(text, "places no column")).attend()
		return
	}
	t.routed(name, text, r.set(placementOption, strings.Join(kept, ","))).Attention = text != ""
}

// commonSettings are those of every [router]: the options of the connector that change what a
// router sees, and the switches for equality with Debezium where postrider has habits of its own.
// The document has them in [router] until the routers are made.
func (t *translator) commonSettings() {
	t.topicPrefix()
	t.options("router")
	t.doc.set(setting{"router", "null_key", "publish", "As Debezium does it, byte for byte:"})
	for _, key := range []string{"null_defaults", "java_text", "first_schema_name", "strict_types"} {
		t.doc.set(setting{"router", key, true, ""})
	}
}

// prefixNames are the properties that have the first part of Debezium's raw topic names.
var prefixNames = []string{"topic.prefix", "database.server.name"}

// topicPrefix is in the names of schemas and of the context headers, and the name of the heartbeat
// topic ends with it.
func (t *translator) topicPrefix() {
	s := setting{"router", "topic.prefix", t.prefix(), ""}
	text := "in names of schemas and in the context headers"
	for _, name := range prefixNames {
		if t.value(name, "") != "" {
			t.mapped(name, text, s)
			t.given("database.server.name", "topic.prefix counts")
			return
		}
		text += "; the name of topic.prefix before Debezium 2.0"
	}
	text = "postrider's default is taken; give the one that consumers see today with --topic-prefix"
	if t.external.TopicPrefix != "" {
		text = "As the command line has it"
	}
	t.mapped("topic.prefix", "is not in the file, and not needed for the topics: names of schemas, "+
		"the context headers and the name of the heartbeat topic begin with it. "+text, s).attend()
}

// prefix is the first part of Debezium's raw topic names.
func (t *translator) prefix() string {
	return cmp.Or(t.value(prefixNames[0], ""), t.value(prefixNames[1], ""), t.external.TopicPrefix,
		DefaultTopicPrefix)
}

// delimiter stands between the parts of Debezium's raw topic names.
func (t *translator) delimiter() string { return t.value("topic.delimiter", ".") }
