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

// transforms sorts the single message transforms: event routers, the decoding of logical messages before them, and others,
// which are refused by name with what they do.
func (t *translator) transforms() {
	var chain []transform
	v, given := t.get("transforms")
	for _, alias := range list(v) {
		class, _ := t.get("transforms." + alias + ".type")
		chain = append(chain, transform{alias, class})
	}
	if len(chain) == 0 {
		t.refuse("transforms", "has no EventRouter: the connector publishes raw change events, and postrider relays outbox tables only").Default = !given
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
		t.refuse("transforms", "has no EventRouter: the connector publishes raw change events, and postrider relays outbox tables only")
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
			t.notNeeded(name, "transforms does not list "+alias+": Kafka Connect ignores it as well").read()
		}
	}
}

// decodeMessages turns the transform into replication.messages.
func (t *translator) decodeMessages(s transform) {
	name := s.property("type")
	if len(t.routes) > 0 {
		t.refuse(name, "stands behind the EventRouter, where it has no effect on events: put it before, or remove it")
		t.refuseTransform(s, "belongs to "+s.alias)
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
		t.refuse(name, "postrider takes the prefixes that are outbox events, not those that are none: name them in message.prefix.include.list")
		return
	}
	var prefixes []string
	for _, pattern := range list(v) {
		words, finite := expand(pattern)
		if !finite {
			t.refuse(name, fmt.Sprintf("%q stands for more prefixes than can be listed: name each of them", pattern))
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
	t.refuse(name, "postrider decodes every message of replication.messages: remove the predicate, or choose by prefix with message.prefix.include.list")
	t.given(s.property("negate"), "belongs to the predicate")
}

// given is notNeeded for a property that may not be there.
func (t *translator) given(name, why string) {
	if _, given := t.connector.Properties[name]; given {
		t.notNeeded(name, why)
	}
}

func (t *translator) refuseTransform(s transform, why string) {
	for _, name := range t.below("transforms." + s.alias + ".") {
		t.refuse(name, why)
	}
}

func (t *translator) otherTransform(s transform, behind bool) {
	known := otherTransforms[strings.TrimSuffix(strings.TrimSuffix(simpleName(s.class), "$Key"), "$Value")]
	if known.effect == "" {
		known = otherTransforms[""]
	}
	where := "before the EventRouter"
	if behind {
		where = "behind the EventRouter"
	}
	class := simpleName(s.class)
	t.refuse(s.property("type"), fmt.Sprintf("%s, %s, %s; postrider has no transforms. Instead: %s", class, where, known.effect, known.instead))
	t.refuseTransform(s, "belongs to "+class)
}

type transformEffect struct{ effect, instead string }

// otherTransforms are those of Kafka, Debezium and Confluent that are met in the wild, by the last part of the class.
var otherTransforms = map[string]transformEffect{
	"":                 {"is code that postrider cannot run", "do its work where the row is written, or in the consumers"},
	"MongoEventRouter": {"is the router for MongoDB", "use " + eventRouter},
	"ActivateTracingSpan": {"starts tracing spans and writes their context into headers",
		"router.tracing_headers = true passes the context of the row on"},
	"ByLogicalTableRouter": {"changes the topics of raw change events", "name the topics with route.topic.regex and route.topic.replacement"},
	"ContentBasedRouter":   {"chooses the topic with a script", "put the topic's name into the column of route.by.field"},
	"ExtractNewRecordState": {"flattens raw change events and leaves the EventRouter nothing to route, or has no effect behind it",
		"remove it: postrider publishes the payload column"},
	"ExtractChangedRecordState":       {"adds headers about changed columns of raw change events", "remove it: outbox rows are not updated"},
	"ExtractSchemaToNewRecord":        {"adds the schema of the table to the value", "remove it, or use format.value = \"json+schema\""},
	"ConvertCloudEventToSaveableForm": {"is for sinks", "remove it"},
	"HeaderToValue":                   {"moves or copies headers into the value", "place the columns in the envelope: table.fields.additional.placement = column:envelope"},
	"PartitionRouting":                {"chooses the partition from fields", "place an integer column: table.fields.additional.placement = column:partition; or use the key"},
	"TimezoneConverter":               {"changes the zone of timestamps", "convert in the application or in the consumers"},
	"SchemaChangeEventFilter":         {"drops schema changes, which PostgreSQL's connector has none of", "remove it"},
	"ReadToInsertEvent":               {"turns snapshot reads into inserts", "remove it: postrider publishes both alike"},
	"VectorToJsonConverter":           {"rewrites vector columns", "write JSON into the payload"},
	"GeometryFormatTransformer":       {"rewrites geometry columns", "write the format that consumers need into the payload"},
	"SwapGeometryCoordinates":         {"swaps coordinates of geometry columns", "write the order that consumers need into the payload"},
	"TimescaleDb":                     {"renames the topics of chunks", "publish the hypertable through a publication with publish_via_partition_root"},
	"RegexRouter":                     {"renames topics", "put the new name into route.topic.replacement, which can do the same"},
	"TopicRegexRouter":                {"renames topics", "put the new name into route.topic.replacement, which can do the same"},
	"TimestampRouter":                 {"puts the time into the topic's name", "write the whole name into the column of route.by.field"},
	"MessageTimestampRouter":          {"puts the time into the topic's name", "write the whole name into the column of route.by.field"},
	"ExtractTopic":                    {"takes the topic from a field", "use that column as route.by.field"},
	"TopicFieldNameToTopic":           {"takes the topic from a field", "use that column as route.by.field"},
	"InsertField":                     {"adds a field to the value", "place a column in the envelope, or add the field where the row is written"},
	"InsertHeader":                    {"adds a header that is always the same", "add a column with a default and place it: column:header"},
	"DropHeaders":                     {"removes headers", "leave the columns out of table.fields.additional.placement; router.extended.headers.enabled = false removes the __debezium.context headers"},
	"HeaderFrom":                      {"moves or copies fields into headers", "place the columns: table.fields.additional.placement = column:header"},
	"ReplaceField":                    {"removes or renames fields", "place only the columns that consumers need, with an alias where the name differs"},
	"MaskField":                       {"replaces fields by empty values or constants", "write the masked value into the payload"},
	"ValueToKey":                      {"makes the key from fields of the value", "name the column as table.field.event.key"},
	"ExtractField":                    {"replaces the key or the value by one field of it", "name that column as table.field.event.key or table.field.event.payload"},
	"ExtractNested":                   {"replaces the value by a part of it", "write that part into a column and name it as table.field.event.payload"},
	"SetSchemaMetadata":               {"renames the schema or gives it a version", "use format.value = \"json\", where names are not seen, or move the consumers to the name that the router makes"},
	"Cast":                            {"changes the types of fields", "give the column the type that consumers need, or change it in a view of the application"},
	"Filter":                          {"drops records by a condition", "do not insert such rows, write them to a table of their own, or give the publication a row filter (WHERE, PostgreSQL 15)"},
	"Flatten":                         {"flattens nested structures", "write the flat form into the payload"},
	"HoistField":                      {"wraps key or value into a structure", "write the wrapped form into the payload; an envelope is made by table.fields.additional.placement"},
	"TimestampConverter":              {"rewrites the format of a timestamp", "write that format into the payload"},
	"TombstoneHandler":                {"drops or reports tombstones", "leave route.tombstone.on.empty.payload off if there must be none"},
	"DropField":                       {"removes fields", "place only the columns that consumers need"},
	"KeyToValue":                      {"copies the key into the value", "place the key's column in the envelope"},
}
