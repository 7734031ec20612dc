package debezium

import (
	"fmt"
	"slices"
	"strings"
)

// tables finds the outbox tables: what the connector captures, divided among the routers by their
// predicates.
func (t *translator) tables() {
	captured, ok := t.captured()
	if ok {
		captured = t.withoutSignals(captured)
		t.divide(captured)
	}
	t.divideMessages()
	if ok {
		t.predicated(captured)
	} else {
		t.predicatesUnknown()
	}
	t.predicateItems()
	if len(t.outboxes) > 0 || t.decode != nil {
		t.doc.set(setting{"replication", "tables", t.outboxes, ""})
	}
	if name := "table.include.list"; len(t.outboxes) > 0 {
		t.mapped(name, "", setting{"replication", "tables", t.outboxes, ""})
	}
}

// nameTables is what to do when the tables cannot be known from the file.
const nameTables = "name them with --table schema.name, or let import-debezium ask the database " +
	"with --postgres URL"

// captured lists the tables that the connector's filters let through, and makes the items of the
// filters, except that of table.include.list without an error. false: the tables are not known.
func (t *translator) captured() ([]string, bool) {
	include, given := t.get("table.include.list")
	if !given {
		if include, given = t.get("table.whitelist"); given {
			t.notNeeded("table.whitelist", "the name of table.include.list before Debezium 1.3; its "+
				"tables are in replication.tables")
		}
	}
	patterns := list(include)
	if len(patterns) == 0 {
		if t.decode != nil {
			return nil, true
		}
		if t.options.Tables == nil {
			t.refuse("table.include.list", "is missing, so every table is captured: "+nameTables)
			return nil, false
		}
		patterns = []string{".*"}
	}
	var tables []string
	for _, p := range patterns {
		found, err := t.resolve(p)
		if err != nil {
			t.refuse("table.include.list", err.Error())
			return nil, false
		}
		tables = append(tables, found...)
	}
	return t.filtered(dedup(tables))
}

// resolve finds the tables of one pattern: in the database if there is one, else by expanding it.
func (t *translator) resolve(pattern string) ([]string, error) {
	if t.options.Tables != nil {
		found, err := t.options.Tables(pattern)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no table matches %q", pattern)
		}
		return found, nil
	}
	words, finite := expand(pattern)
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
	for _, f := range []struct {
		names   []string
		exclude bool
		of      func(table string) string
	}{
		{[]string{"table.exclude.list", "table.blacklist"}, true, func(s string) string { return s }},
		{[]string{"schema.include.list", "schema.whitelist"}, false, schemaOf},
		{[]string{"schema.exclude.list", "schema.blacklist"}, true, schemaOf},
	} {
		for _, name := range f.names {
			v, given := t.get(name)
			if !given {
				continue
			}
			var kept []string
			for _, table := range tables {
				matched, err := matchesAny(list(v), f.of(table))
				if err != nil {
					t.refuse(name, err.Error())
					return nil, false
				}
				if matched != f.exclude {
					kept = append(kept, table)
				}
			}
			tables = kept
			t.notNeeded(name, "replication.tables names the tables that are left")
		}
	}
	if len(tables) == 0 && t.decode == nil {
		t.refuse("table.include.list", "is left without a table by the other lists: Debezium "+
			"publishes nothing")
		return nil, false
	}
	return tables, true
}

func schemaOf(table string) string {
	schema, _, _ := strings.Cut(table, ".")
	return schema
}

func matchesAny(patterns []string, name string) (bool, error) {
	for _, p := range patterns {
		m, err := Match(p, []string{name})
		if err != nil || len(m) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// withoutSignals drops the table of signals, which Debezium captures for itself and never
// publishes.
func (t *translator) withoutSignals(tables []string) []string {
	signals, given := t.get("signal.data.collection")
	if !given {
		return tables
	}
	return slices.DeleteFunc(tables, func(table string) bool { return table == signals })
}

// divide gives each table to the first router whose predicate is true of it. In Debezium the
// records of that router also pass the later routers whose predicates are true of the new topic:
// those drop a record with a null value, and change no other.
func (t *translator) divide(captured []string) {
	taken, undecided := map[string]bool{}, false
	for _, r := range t.routes {
		for _, table := range captured {
			applies, err := t.predicateHolds(r, t.rawTopic(table))
			if err != nil {
				t.refuse(r.property("predicate"), err.Error())
				undecided = true
				continue
			}
			if applies && !taken[table] {
				taken[table] = true
				r.tables = append(r.tables, table)
				t.outboxes = append(t.outboxes, table)
			}
		}
	}
	var raw []string
	for _, table := range captured {
		if !taken[table] {
			raw = append(raw, table)
		}
	}
	if len(raw) > 0 && len(t.routes) > 0 && !undecided {
		t.refuse("table.include.list", fmt.Sprintf("no EventRouter is for %s: Debezium publishes its "+
			"raw change events to %s, and postrider "+
			"relays outbox tables only. Leave it to a connector of its own, then remove it here",
			strings.Join(raw, ", "), t.rawTopic(raw[0])))
	}
}

// predicated makes the items of predicates that could be decided.
func (t *translator) predicated(captured []string) {
	for n, r := range t.routes {
		_, given := t.get(r.property("predicate"))
		switch unused := len(r.tables) == 0 && len(r.messages) == 0 && len(captured) > 0; {
		case unused && given:
			t.refuse(r.property("predicate"), "is true of no table: the predicate is asked with the raw "+
				"topic, "+t.rawTopic(captured[0])+
				", not with the one that the router makes")
		case unused:
			t.refuse(r.property("type"), "routes nothing: the routers before it take every table. Remove "+
				"it, or give each a predicate")
		case given && len(t.routes) > 1:
			t.notNeeded(r.property("predicate"), r.section+" names its tables and messages instead")
		case given:
			t.notNeeded(r.property("predicate"), "replication.tables names the tables instead")
		}
		if negate, _ := t.boolean(r.property("negate"), false); negate && n > 0 {
			t.notNeeded(r.property("negate"), "belongs to the predicate. It is also true of records that "+
				"a router before has routed: Debezium "+
				"drops those whose value is null (a NULL payload, a tombstone), "+
				"and postrider publishes them").attend()
			continue
		}
		t.given(r.property("negate"), "belongs to the predicate")
	}
}

func (t *translator) predicatesUnknown() {
	for _, r := range t.routes {
		for _, option := range []string{"predicate", "negate"} {
			t.given(r.property(option), "the tables are not known yet")
		}
	}
}

// predicateItems makes the items of the predicates' definitions, also of unused ones.
func (t *translator) predicateItems() {
	t.given("predicates", "replication.tables names the tables instead")
	for _, name := range t.below("predicates.") {
		t.notNeeded(name, "replication.tables names the tables instead")
	}
}

// divideMessages gives the logical messages to the first router whose predicate is true of their
// topic.
func (t *translator) divideMessages() {
	if t.decode == nil {
		return
	}
	topic := sanitize(t.prefix() + t.value("topic.delimiter", ".") + "message")
	for _, r := range t.routes {
		applies, err := t.predicateHolds(r, topic)
		if err != nil {
			return // its item is made with those of the tables
		}
		if applies {
			messages, _ := t.doc.get("replication", "messages")
			r.messages, _ = messages.([]string)
			return
		}
	}
	t.refuse(t.decode.property("predicate"),
		"no EventRouter is for "+topic+", the raw topic of logical messages: Debezium publishes them "+
			"there as raw events. "+
			"Remove the transform, or widen the predicate of the router")
}

// predicateHolds reports whether a router applies to the records of a raw topic.
func (t *translator) predicateHolds(r *route, topic string) (bool, error) {
	alias, given := t.get(r.property("predicate"))
	if !given || alias == "" {
		return true, nil
	}
	negate, ok := t.boolean(r.property("negate"), false)
	if !ok {
		return true, nil
	}
	class, defined := t.get("predicates." + alias + ".type")
	if !defined {
		return false, fmt.Errorf("predicates.%s.type is missing: Kafka Connect refuses that too", alias)
	}
	switch simpleName(class) {
	case "TopicNameMatches":
		pattern, _ := t.get("predicates." + alias + ".pattern")
		matches, err := compile(pattern)
		if err != nil {
			return false, err
		}
		matched, err := matches(topic)
		return matched != negate, err
	case "RecordIsTombstone":
		// No record of an insert is one.
		return negate, nil
	}
	return false, fmt.Errorf("%s cannot be decided before there are records: postrider chooses by "+
		"table alone. Name the outbox tables in "+
		"table.include.list, and remove the predicate", simpleName(class))
}

// rawTopic is the topic of a table's raw change events, to which predicates apply.
func (t *translator) rawTopic(table string) string {
	delimiter := t.value("topic.delimiter", ".")
	return sanitize(t.prefix() + delimiter + strings.Replace(table, ".", delimiter, 1))
}

// sanitize replaces what cannot be in a topic's name, as Debezium does.
func sanitize(topic string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_',
			r == '-':
			return r
		}
		return '_'
	}, topic)
}

func dedup(words []string) []string {
	var out []string
	for _, w := range words {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}
