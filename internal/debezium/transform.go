package debezium

import (
	"fmt"
	"strings"
)

const (
	eventRouter = "io.debezium.transforms.outbox.EventRouter"
	decodeSMT   = "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"
)

// transform is one entry of the list transforms.
type transform struct {
	alias, class string
}

func (s transform) property(option string) string { return "transforms." + s.alias + "." + option }

// transforms sorts the single message transforms: event routers, the decoding of logical messages
// before them, and others, which are refused by name with what they do.
func (t *translator) transforms() {
	var chain []transform
	v, given := t.get("transforms")
	for _, alias := range list(v) {
		class, _ := t.get("transforms." + alias + ".type")
		chain = append(chain, transform{alias, class})
	}
	if len(chain) == 0 {
		t.refuse("transforms", "has no EventRouter: the connector publishes raw change events, and "+
			"postrider relays outbox tables only").Default = !given
		t.strayTransforms()
		return
	}
	for _, s := range chain {
		name := s.property("type")
		switch simple := simpleName(s.class); {
		case s.class == "":
			t.refuse(name, "is missing: Kafka Connect refuses the transform "+s.alias+" too")
		case s.class == eventRouter || simple == "EventRouter":
			t.routes = append(t.routes, &route{transform: s})
		case s.class == decodeSMT || simple == "DecodeLogicalDecodingMessageContent":
			t.decodeMessages(s)
		default:
			t.otherTransform(s, len(t.routes) > 0)
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
	} else {
		t.notNeeded("transforms", "each transform has lines of its own here")
	}
	t.strayTransforms()
}

// strayTransforms are options of aliases that the list does not name.
func (t *translator) strayTransforms() {
	listed := map[string]bool{}
	v, _ := t.get("transforms")
	for _, alias := range list(v) {
		listed[alias] = true
	}
	for _, name := range t.below("transforms.") {
		alias, _, _ := strings.Cut(strings.TrimPrefix(name, "transforms."), ".")
		if !listed[alias] {
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
		t.refuseBelow("transforms."+s.alias+".", "belongs to "+s.alias)
		return
	}
	t.decode = &s
	for _, prefix := range []string{"message.prefix.exclude.list", "message.prefix.include.list"} {
		if _, given := t.get(prefix); given {
			t.messagePrefixes(prefix)
		}
	}
	messages := setting{"replication", "messages", []string{"*"}, "logical messages of any prefix"}
	if v, given := t.doc.get("replication", "messages"); given {
		messages.value, messages.comment = v, ""
	}
	t.mapped(name, "transactional messages are published as outbox events", messages)
	if on, ok := t.boolean(s.property("fields.null.include"), false); ok && on {
		t.mapped(s.property("fields.null.include"), "", t.common("fields.null.include", true))
	} else if ok {
		t.given(s.property("fields.null.include"), "is postrider's default")
	}
	t.applies(s)
	for _, rest := range t.below("transforms." + s.alias + ".") {
		t.unknown(rest)
	}
}

func (t *translator) messagePrefixes(name string) {
	v, _ := t.get(name)
	if strings.Contains(name, "exclude") {
		t.refuse(name, "postrider takes the prefixes that are outbox events, not those that are none: "+
			"name them in message.prefix.include.list")
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
	t.mapped(name, "", setting{"replication", "messages", prefixes, ""})
}

// applies judges a predicate of a transform that can only be there for everything or not at all.
func (t *translator) applies(s transform) {
	name := s.property("predicate")
	if _, given := t.get(name); !given {
		return
	}
	t.refuse(name, "postrider decodes every message of replication.messages: remove the predicate, "+
		"or choose by prefix with message.prefix.include.list")
	t.given(s.property("negate"), "belongs to the predicate")
}

func (t *translator) otherTransform(s transform, behind bool) {
	class := simpleName(s.class)
	entry, found := known().transforms[strings.TrimSuffix(strings.TrimSuffix(class, "$Key"),
		"$Value")]
	if !found {
		entry = known().transforms[""]
	}
	where := "before the EventRouter"
	if behind {
		where = "behind the EventRouter"
	}
	t.refuse(s.property("type"), fmt.Sprintf("%s, %s, %s; postrider has no transforms. Instead: %s",
		class, where, entry.Effect, entry.Instead))
	t.refuseBelow("transforms."+s.alias+".", "belongs to "+class)
}
