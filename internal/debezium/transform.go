package debezium

import (
	"fmt"
	"slices"
	"strings"
)

// transform is one entry of the list transforms.
type transform struct {
	alias, class string
}

func (s transform) property(option string) string { return "transforms." + s.alias + "." + option }

// transforms sorts the single message transforms: event routers, the decoding of logical messages
// before them, and others, which are refused by name with what they do.
func (t *translator) transforms() {
	aliases := list(t.value("transforms", ""))
	for _, alias := range aliases {
		s := transform{alias, t.value("transforms."+alias+".type", "")}
		switch simpleName(s.class) {
		case "":
			t.refuse(s.property("type"), "is missing: Kafka Connect refuses the transform "+alias+" too")
		case "EventRouter":
			t.routes = append(t.routes, &route{transform: s})
		case "DecodeLogicalDecodingMessageContent":
			t.decodeMessages(s)
		default:
			t.otherTransform(s)
		}
	}
	for n, r := range t.routes {
		r.section = "router"
		if len(t.routes) > 1 {
			r.section = fmt.Sprintf("router[%d]", n+1)
		}
	}
	if len(t.routes) == 0 {
		t.refuse("transforms", "has no EventRouter: the connector publishes raw change events, and "+
			"postrider relays outbox tables only")
	}
	t.given("transforms", "each transform has lines of its own here")
	for _, name := range t.below("transforms.") {
		alias, _, _ := strings.Cut(strings.TrimPrefix(name, "transforms."), ".")
		if !slices.Contains(aliases, alias) {
			t.notNeeded(name, "transforms does not list "+alias+": Kafka Connect ignores it as well").
				attend()
		}
	}
}

// decodeMessages turns the transform into replication.messages.
func (t *translator) decodeMessages(s transform) {
	name := s.property("type")
	if len(t.routes) > 0 {
		t.refuse(name, "stands behind the EventRouter, where it has no effect on events: put it "+
			"before, or remove it")
		t.refuseBelow(s.property(""), "belongs to "+s.alias)
		return
	}
	t.decode = &s
	if _, given := t.get("message.prefix.exclude.list"); given {
		t.refuse("message.prefix.exclude.list", "postrider takes the prefixes that are outbox events, "+
			"not those that are none: name them in message.prefix.include.list")
	}
	t.messagePrefixes()
	messages := setting{"replication", "messages", t.doc.get("replication", "messages"), ""}
	if messages.value == nil {
		messages.value, messages.comment = []string{"*"}, "logical messages of any prefix"
	}
	t.mapped(name, "transactional messages are published as outbox events", messages)
	nulls := s.property("fields.null.include")
	if on, ok := t.boolean(nulls, false); ok && on {
		t.mapped(nulls, "", setting{"router", "fields.null.include", true, ""})
	} else if ok {
		t.given(nulls, "is postrider's default")
	}
	predicate := s.property("predicate")
	if _, given := t.get(predicate); given {
		t.refuse(predicate, "postrider decodes every message of replication.messages: remove the "+
			"predicate, or choose by prefix with message.prefix.include.list")
		t.given(s.property("negate"), "belongs to the predicate")
	}
	for _, rest := range t.below(s.property("")) {
		t.unknown(rest)
	}
}

func (t *translator) messagePrefixes() {
	const name = "message.prefix.include.list"
	v, given := t.get(name)
	if !given {
		return
	}
	var prefixes []string
	for _, pattern := range list(v) {
		words, finite := expand(pattern)
		if !finite {
			t.refuse(name, fmt.Sprintf("%q stands for more prefixes than can be listed: name each of them",
				pattern))
			return
		}
		prefixes = append(prefixes, words...)
	}
	t.mapped(name, "prefixes are compared exactly here: Debezium ignores the case of letters, and "+
		"takes a dot for any character. Add each other spelling that the application uses: messages "+
		"with it are not published", setting{"replication", "messages", prefixes, ""}).attend()
}

func (t *translator) otherTransform(s transform) {
	class, where := simpleName(s.class), "before the EventRouter"
	if len(t.routes) > 0 {
		where = "behind the EventRouter"
	}
	e := known().transform(class)
	t.refuse(s.property("type"), fmt.Sprintf("%s, %s, %s; postrider has no transforms. Instead: %s",
		class, where, e.Effect, e.Instead))
	t.refuseBelow(s.property(""), "belongs to "+class)
}
