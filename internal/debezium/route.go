package debezium

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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
	common := t.commonRouterSettings()
	for _, r := range t.routes {
		r.settings = append(r.settings, common...)
		t.doc.routers = append(t.doc.routers, routerSection{
			tables: r.tables, messages: r.messages, settings: r.settings,
		})
	}
	if len(t.routes) == 0 {
		t.doc.routers = []routerSection{{settings: common}}
	}
}

func (r *route) set(option string, value any) setting {
	s := setting{r.section, option, value, ""}
	r.settings = append(r.settings, s)
	return s
}

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
	for _, o := range known().router {
		name := r.property(o.Name)
		v, given := t.get(name)
		if !given {
			continue
		}
		if o.Kind == "text" || o.Kind == "placement" {
			v = t.connector.Properties[name] // blanks around it count
		}
		switch o.Kind {
		case "column":
			t.routerColumn(r, o, v)
		case "boolean":
			if on, ok := t.boolean(name, false); ok {
				t.routed(name, o, r.set(o.Name, on))
			}
		case "word":
			if o.Name == "table.op.invalid.behavior" && t.skips("u") {
				t.notNeeded(name, "skipped.operations has u: no update reaches the router; postrider only "+
					"warns of one")
			} else if word := strings.ToLower(v); slices.Contains(o.Words, word) {
				t.routed(name, o, r.set(o.Name, word))
			} else {
				t.refuse(name, "must be one of "+strings.Join(o.Words, ", "))
			}
		case "text":
			if v == "" && o.Name == "route.topic.replacement" {
				t.refuse(name, "is empty: every topic name would be, and the broker refuses that from "+
					"Debezium too")
			} else {
				t.routed(name, o, r.set(o.Name, v))
			}
		case "placement":
			t.placement(r, name, v)
		case "ignored":
			t.notNeeded(name, o.Text).attend()
		}
	}
	for _, name := range t.below("transforms." + r.alias + ".") {
		switch option := strings.TrimPrefix(name, "transforms."+r.alias+"."); {
		case option == "predicate" || option == "negate":
			// Its item is made with those of the tables.
		case strings.HasPrefix(option, "collection."):
			t.refuse(name, "is an option of the router for MongoDB: use the one that starts with table.")
		default:
			t.unknown(name)
		}
	}
}

func (t *translator) routed(name string, o routerOption, s setting) {
	i := t.item(name, Item{Outcome: Mapped, Settings: []string{s.String()}, Text: o.Text})
	i.Attention = o.Attention
}

// routerColumn maps a column. An empty name is what Debezium fails with at the first row.
func (t *translator) routerColumn(r *route, o routerOption, column string) {
	name := r.property(o.Name)
	if placed := t.value(r.property("table.fields.additional.placement"), ""); column == "" &&
		o.Name == "table.field.event.schema.version" &&
		!strings.Contains(strings.ToLower(placed), "envelope") {
		t.notNeeded(name, "counts only with an envelope").attend()
		return
	}
	if column == "" {
		t.refuse(name, "is empty: Debezium fails with the first row. Name a column, or remove the "+
			"line for the default")
		return
	}
	switch o.Name {
	case "table.field.event.id":
		delete(r.columns, "id")
	case "table.field.event.payload":
		delete(r.columns, "payload")
	}
	if o.Name == "table.field.event.type" {
		// Debezium never reads it.
	} else {
		r.columns[column] = o.Name
	}
	if t.connector.Server && o.Name == "table.field.event.timestamp" {
		t.notNeeded(name, "the Kafka sink of Debezium Server does not pass the time on, so consumers "+
			"never saw it. "+
			"With postrider the time of a record is that of the commit; set "+
			"router.table.field.event.timestamp for that of the column").attend()
		return
	}
	t.routed(name, o, r.set(o.Name, column))
}

// placement checks the list as Debezium does at its start, and removes what Debezium Server
// ignores.
func (t *translator) placement(r *route, name, v string) {
	var kept []string
	entries := strings.Split(v, ",")
	for len(entries) > 0 && entries[len(entries)-1] == "" && v != "" { // as Java splits
		entries = entries[:len(entries)-1]
	}
	dropped := ""
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
		to := strings.ToLower(parts[1])
		if to != "header" && to != "envelope" && to != "partition" {
			t.refuse(name, fmt.Sprintf("entry %q: the placement is header, envelope or partition; "+
				"Debezium fails with the first row", e))
			return
		}
		if to == "partition" && t.connector.Server {
			dropped = e
			continue
		}
		r.columns[parts[0]] = "table.fields.additional.placement"
		kept = append(kept, strings.Join(parts, ":"))
	}
	text := ""
	if dropped != "" {
		text = fmt.Sprintf("without %q: the Kafka sink of Debezium Server ignores partitions, and the "+
			"key decides", dropped)
	}
	if len(kept) == 0 {
		if text == "" {
			text = "places no column"
		}
		t.notNeeded(name, text).attend()
		return
	}
	s := r.set("table.fields.additional.placement", strings.Join(kept, ","))
	t.item(name, Item{
		Outcome: Mapped, Settings: []string{s.String()}, Text: text, Attention: dropped != "",
	})
}

// common is a setting of every [router].
func (t *translator) common(key string, value any) setting {
	s := setting{"router", key, value, ""}
	t.doc.set(s) // kept there until the routers are made; [router] is never rendered from it
	return s
}

// commonRouterSettings are the options of the connector that change what a router sees, and the
// switches for equality with Debezium where postrider has habits of its own.
func (t *translator) commonRouterSettings() []setting {
	t.topicPrefix()
	for _, o := range known().handling {
		t.word(o.Name, o.Words, func(word string) setting { return t.common(o.Name, word) })
	}
	if on, ok := t.boolean("include.unknown.datatypes", false); ok {
		if _, given := t.get("include.unknown.datatypes"); given {
			t.mapped("include.unknown.datatypes", "", t.common("include.unknown.datatypes", on))
		}
	}
	if on, ok := t.boolean("extended.headers.enabled", true); ok {
		text := ""
		if _, given := t.get("extended.headers.enabled"); !given {
			text = "is not in the file and on by default (Debezium 3.2.1 and later): every record has " +
				"four __debezium.context headers. Set it to false if the consumers do not see them today"
		}
		t.mapped("extended.headers.enabled", text, t.common("extended.headers.enabled",
			on)).Attention = text != ""
	}
	const digits = "money.fraction.digits"
	if v, given := t.get(digits); given {
		if n, err := strconv.Atoi(v); err == nil && n >= 0 {
			t.mapped(digits, "", t.common(digits, n))
		} else {
			t.refuse(digits, "must be a number of digits, as 2")
		}
	}
	const placeholder = "unavailable.value.placeholder"
	if v, given := t.get(placeholder); given {
		t.mapped(placeholder, "", t.common(placeholder, v))
	}
	t.common("null_key", "publish")
	for _, key := range []string{"null_defaults", "java_text", "first_schema_name", "strict_types"} {
		t.common(key, true)
	}
	var settings []setting
	for _, s := range t.doc.settings {
		if s.section == "router" {
			settings = append(settings, s)
		}
	}
	for n, s := range settings {
		if s.key == "null_key" {
			settings[n] = s.with("As Debezium does it, byte for byte:")
		}
	}
	return settings
}

// topicPrefix is in the names of schemas and of the context headers, and the name of the heartbeat
// topic ends with it.
func (t *translator) topicPrefix() {
	for _, name := range []string{"topic.prefix", "database.server.name"} {
		if v, given := t.get(name); given && v != "" {
			text := "in names of schemas and in the context headers"
			if name == "database.server.name" {
				text += "; the name of topic.prefix before Debezium 2.0"
			}
			t.mapped(name, text, t.common("topic.prefix", v))
			t.given("database.server.name", "topic.prefix counts")
			return
		}
	}
	text := "is not in the file, and not needed for the topics: names of schemas, the context " +
		"headers and the name of the heartbeat topic begin with it. "
	if t.options.TopicPrefix != "" {
		text += "As the command line has it"
	} else {
		text += "postrider's default is taken; give the one that consumers see today with --topic-prefix"
	}
	t.mapped("topic.prefix", text, t.common("topic.prefix", t.prefix())).attend()
}

// prefix is the first part of Debezium's raw topic names.
func (t *translator) prefix() string {
	for _, name := range []string{"topic.prefix", "database.server.name"} {
		if v, given := t.get(name); given && v != "" {
			return v
		}
	}
	return cmp.Or(t.options.TopicPrefix, DefaultTopicPrefix)
}
