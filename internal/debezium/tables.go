package debezium

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/router"
)

// tables finds the outbox tables: what the connector captures, divided among the routers by their
// predicates.
func (t *translator) tables() {
	captured, ok := t.captured()
	if ok {
		signals := t.value("signal.data.collection", "") // captured, and never published
		captured = slices.DeleteFunc(captured, func(table string) bool { return table == signals })
		t.divide(captured)
	}
	t.divideMessages()
	for n, r := range t.routes {
		if ok {
			t.predicated(n, r, captured)
		}
		for _, option := range []string{"predicate", "negate"} {
			t.given(r.property(option), "the tables are not known yet")
		}
	}
	for _, name := range t.below("predicates.") {
		t.notNeeded(name, namedByTables)
	}
	t.given("predicates", namedByTables)
	s := setting{"replication", "tables", t.outboxes, ""}
	if len(t.outboxes) > 0 && t.open {
		t.mapped("table.include.list", "tables that are created later and match are not relayed: add "+
			"them to replication.tables before they have rows", s).attend()
	} else if len(t.outboxes) > 0 {
		t.mapped("table.include.list", "", s)
	} else if t.decode != nil {
		t.doc.set(s)
	}
}

const (
	// nameTables is what to do when the tables cannot be known from the file.
	nameTables = "name them with --table schema.name, or let import-debezium read the database " +
		"with --postgres URL"
	namedByTables = "replication.tables names the tables instead"
)

// captured lists the tables that the connector's filters let through, and makes the items of the
// filters, except that of table.include.list without an error. false: the tables are not known.
func (t *translator) captured() (tables []string, ok bool) {
	include, given := t.get("table.include.list")
	if !given {
		include, _ = t.get("table.whitelist")
		t.given("table.whitelist", "the name of table.include.list before Debezium 1.3; its "+
			"tables are in replication.tables")
	}
	patterns := list(include)
	if len(patterns) == 0 {
		if t.decode != nil {
			return nil, true
		}
		if t.external.Tables == nil {
			t.refuse("table.include.list", "is missing, so every table is captured: "+nameTables)
			return nil, false
		}
		patterns = []string{".*"}
	}
	for _, p := range patterns {
		found, err := t.resolve(p)
		if err != nil {
			t.refuse("table.include.list", err.Error())
			return nil, false
		}
		for _, table := range found {
			if !slices.Contains(tables, table) {
				tables = append(tables, table)
			}
		}
	}
	return t.filtered(tables)
}

// resolve finds the tables of one pattern: in the database if there is one, else by expanding it.
func (t *translator) resolve(pattern string) ([]string, error) {
	words, finite := expand(pattern)
	if t.external.Tables != nil {
		found, err := match(pattern, t.external.Tables)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("no table matches %q", pattern)
		}
		t.open = t.open || !finite || slices.ContainsFunc(words, func(w string) bool {
			return !slices.Contains(found, w)
		})
		return found, err
	}
	if !finite {
		return nil, fmt.Errorf("%q is a pattern whose tables are not in the file: %s", pattern,
			nameTables)
	}
	for _, w := range words {
		if schema, name, ok := strings.Cut(w, "."); !ok || schema == "" || name == "" ||
			strings.Contains(name, ".") {
			return nil, fmt.Errorf("%q is not schema.table: %s", w, nameTables)
		}
	}
	return words, nil
}

// filtered applies the lists that exclude, and those of schemas.
func (t *translator) filtered(tables []string) ([]string, bool) {
	for _, name := range []string{
		"table.exclude.list", "table.blacklist", "schema.include.list", "schema.whitelist",
		"schema.exclude.list", "schema.blacklist",
	} {
		v, given := t.get(name)
		if !given {
			continue
		}
		exclude := strings.HasSuffix(name, ".exclude.list") || strings.HasSuffix(name, ".blacklist")
		var kept []string
		for _, table := range tables {
			of := table
			if strings.HasPrefix(name, "schema.") {
				of, _, _ = strings.Cut(table, ".")
			}
			matched, err := matchesAny(list(v), of)
			if err != nil {
				t.refuse(name, err.Error())
				return nil, false
			}
			if matched != exclude {
				kept = append(kept, table)
			}
		}
		tables = kept
		t.notNeeded(name, "replication.tables names the tables that are left")
	}
	if len(tables) == 0 && t.decode == nil {
		t.refuse("table.include.list", "is left without a table by the other lists: Debezium "+
			"publishes nothing")
		return nil, false
	}
	return tables, true
}

func matchesAny(patterns []string, name string) (bool, error) {
	for _, p := range patterns {
		m, err := match(p, []string{name})
		if err != nil || len(m) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// divide gives each table to the first router whose predicate is true of it. In Debezium the
// records of that router also pass the later routers whose predicates are true of the new topic:
// those drop a record with a null value, and change no other.
func (t *translator) divide(captured []string) {
	undecided := len(t.routes) == 0
	for _, r := range t.routes {
		for _, table := range captured {
			applies, err := t.predicateHolds(r, t.rawTopic(table))
			if err != nil {
				t.refuse(r.property("predicate"), err.Error())
				undecided = true
			}
			if applies && !slices.Contains(t.outboxes, table) {
				r.tables = append(r.tables, table)
				t.outboxes = append(t.outboxes, table)
			}
		}
	}
	raw := slices.DeleteFunc(slices.Clone(captured), func(table string) bool {
		return slices.Contains(t.outboxes, table)
	})
	if len(raw) > 0 && !undecided {
		t.refuse("table.include.list", fmt.Sprintf("no EventRouter is for %s: Debezium publishes its "+
			"raw change events to %s, and postrider relays outbox tables only. Leave it to a connector "+
			"of its own, then remove it here", strings.Join(raw, ", "), t.rawTopic(raw[0])))
	}
}

// divideMessages gives the logical messages to the first router whose predicate is true of their
// topic.
func (t *translator) divideMessages() {
	if t.decode == nil {
		return
	}
	topic := router.TopicName(t.prefix() + t.delimiter() + "message")
	for _, r := range t.routes {
		applies, err := t.predicateHolds(r, topic)
		if err != nil {
			return // its item is made with those of the tables
		}
		if applies {
			r.messages, _ = t.doc.get("replication", "messages").([]string)
			return
		}
	}
	t.refuse(t.decode.property("predicate"), "no EventRouter is for "+topic+", the raw topic of "+
		"logical messages: Debezium publishes them there as raw events. Remove the transform, or widen "+
		"the predicate of the router")
}

// predicated makes the items of a router's predicate where it could be decided.
func (t *translator) predicated(n int, r *route, captured []string) {
	predicate, negate := r.property("predicate"), r.property("negate")
	_, given := t.get(predicate)
	switch unused := len(r.tables)+len(r.messages) == 0 && len(captured) > 0; {
	case unused && given:
		t.refuse(predicate, "is true of no table: the predicate applies to the raw topic, "+
			t.rawTopic(captured[0])+", not to the one that the router makes")
	case unused:
		t.refuse(r.property("type"), "routes nothing: the routers before it take every table. Remove "+
			"it, or give each a predicate")
	case given && len(t.routes) > 1:
		t.notNeeded(predicate, r.section+" names its tables and messages instead")
	case given:
		t.notNeeded(predicate, namedByTables)
	}
	if on, _ := t.boolean(negate, false); on && n > 0 {
		t.notNeeded(negate, "belongs to the predicate. It is also true of records that a router before "+
			"has routed: Debezium drops those whose value is null (a NULL payload, a tombstone), and "+
			"postrider publishes them").attend()
	}
	t.given(negate, "belongs to the predicate")
}

// predicateHolds reports whether a router applies to the records of a raw topic.
func (t *translator) predicateHolds(r *route, topic string) (bool, error) {
	alias := t.value(r.property("predicate"), "")
	negate, ok := t.boolean(r.property("negate"), false)
	if alias == "" || !ok {
		return true, nil
	}
	class, defined := t.get("predicates." + alias + ".type")
	switch simple := simpleName(class); {
	case !defined:
		return false, fmt.Errorf("predicates.%s.type is missing: Kafka Connect refuses that too", alias)
	case simple == "TopicNameMatches":
		matches, err := compile(t.value("predicates."+alias+".pattern", ""))
		if err != nil {
			return false, err
		}
		matched, err := matches(topic)
		return err == nil && matched != negate, err
	case simple == "RecordIsTombstone": // which no record of an insert is
		return negate, nil
	default:
		return false, fmt.Errorf("%s cannot be decided before there are records: postrider chooses by "+
			"table alone. Name the outbox tables in table.include.list, and remove the predicate", simple)
	}
}

// rawTopic is the topic of a table's raw change events, to which predicates apply.
func (t *translator) rawTopic(table string) string {
	table = strings.Replace(table, ".", t.delimiter(), 1)
	return router.TopicName(t.prefix() + t.delimiter() + table)
}

// columns lists what the routers read, in the order of the tables.
func (t *translator) columns() (columns []column) {
	for _, r := range t.routes {
		ignore := t.is(r.property("table.field.additional.missing"), "ignore") ||
			t.is(r.property("table.fields.additional.error.on.missing"), "false")
		for _, table := range r.tables {
			for _, name := range slices.Sorted(maps.Keys(r.columns)) {
				option := r.columns[name]
				columns = append(columns, column{
					table: table, name: name, property: t.nameInFile(r.property(option)),
					key: r.section + "." + option, optional: ignore && option == placementOption,
				})
			}
		}
	}
	return columns
}

// columnLists judges the lists of columns. They matter only for columns that a router reads.
func (t *translator) columnLists() {
	for _, name := range []string{"column.include.list", "column.whitelist"} {
		t.columnList(name, false)
	}
	for _, name := range []string{"column.exclude.list", "column.blacklist"} {
		t.columnList(name, true)
	}
	const comments = "include.schema.comments"
	for _, name := range t.below("column.propagate.source.type", "datatype.propagate.source.type",
		comments) {
		switch {
		case t.is(name, "false"):
			t.notNeeded(name, "the default")
		case t.writesSchemas():
			t.refuse(name, "adds to the schemas, which consumers of json+schema see, and which have "+
				"other ids in a schema registry. Remove it, or use a converter without schemas "+
				"(schemas.enable=false)")
		default:
			t.notNeeded(name, "the schema is not in the records")
		}
	}
}

// writesSchemas reports whether consumers see the schemas, in the records or in a registry.
func (t *translator) writesSchemas() bool {
	formats := t.formats[:]
	for _, part := range []string{"key", "value"} {
		delegate, _ := t.doc.get("format", part+".delegate").(string)
		formats = append(formats, delegate)
	}
	return slices.ContainsFunc(formats, func(f string) bool {
		return f == "json+schema" || registered(f)
	})
}

// columnList refuses a list that removes a column that a router reads.
func (t *translator) columnList(name string, exclude bool) {
	v, given := t.get(name)
	if !given {
		return
	}
	for _, c := range t.columns() {
		full := c.table + "." + c.name
		matched, err := matchesAny(list(v), full)
		switch {
		case err != nil:
			t.refuse(name, err.Error())
		case matched == exclude && c.optional:
			t.refuse(name, fmt.Sprintf("takes away %s, which Debezium then leaves out where %s names it. "+
				"Take it out there too", full, c.property))
		case matched == exclude:
			t.refuse(name, fmt.Sprintf("takes away %s, which %s names: Debezium fails with the first "+
				"row. Correct one or the other", full, c.property))
		}
	}
	t.notNeeded(name, "postrider publishes only the columns that the router names")
}
