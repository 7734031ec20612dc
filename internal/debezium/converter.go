package debezium

import (
	"slices"
	"strings"
)

const jsonConverter = "org.apache.kafka.connect.json.JsonConverter"

// format finds a converter by its class, in full or, as Kafka Connect's plugin aliases go, by its
// last part.
func format(class string) string {
	if f, ok := known().Formats[class]; ok {
		return f
	}
	if class == "ByteArrayConverter" {
		return "binary"
	}
	for full, f := range known().Formats {
		simple := simpleName(full)
		if simple == class || strings.TrimSuffix(simple, "Converter") == class {
			return f
		}
	}
	return ""
}

// takes reports whether postrider has a format for keys, values or headers.
func takes(part, format string) bool {
	if part == "header" {
		return slices.Contains([]string{"simple", "string", "json", "json+schema"}, format)
	}
	return format != "" && format != "simple"
}

// formatSetting is the format of a part, or with an option of its converter that option.
func formatSetting(part, option string, value any) setting {
	switch {
	case option != "":
		part += "." + option
	case part == "header":
		part = "headers"
	}
	return setting{"format", part, value, ""}
}

func (t *translator) converters() {
	t.schemaNames()
	t.formats = [3]string{
		t.converter("key", t.external.KeyConverter), t.converter("value", t.external.ValueConverter),
		t.converter("header", "simple"),
	}
}

// converter maps the converter of keys, values or headers and returns the format, empty if it has
// none.
func (t *translator) converter(part, fromWorker string) string {
	name := part + ".converter"
	class, given := t.get(name)
	if !given {
		for _, option := range t.below(name + ".") {
			t.notNeeded(option, "Kafka Connect ignores it as well: without "+name+" in the file "+
				"the worker's converter is used with the worker's options").attend()
			delete(t.connector.Properties, option)
		}
		return t.assumedConverter(part, fromWorker)
	}
	f := format(class)
	if !takes(part, f) {
		t.refuse(name, unknownConverter(class, part))
		t.refuseBelow(name+".", "belongs to a converter that postrider does not have")
		return ""
	}
	if f == "json+schema" {
		f = t.jsonFormat(name, "the format with schemas", "the format without schemas",
			func(f string) setting { return formatSetting(part, "", f) })
	}
	t.mapped(name, "", formatSetting(part, "", f))
	switch {
	case part == "header":
		t.headerOptions()
	case f == "json", f == "json+schema":
		t.jsonOptions(part)
	case f == "string":
		t.encoding(part)
	case f == "binary":
		t.delegate(part)
	case registered(f):
		t.registryOptions(part, f)
	}
	t.commonOptions(part)
	return f
}

// jsonFormat reads schemas.enable of a converter, which is on unless it is turned off.
func (t *translator) jsonFormat(name, with, without string, set func(f string) setting) string {
	option := name + ".schemas.enable"
	f, text := "json+schema", with
	if on, ok := t.boolean(option, true); !on || !ok {
		f, text = "json", without
	}
	t.mapGiven(option, text, set(f))
	return f
}

func (t *translator) jsonOptions(part string) {
	name := part + ".converter.decimal.format"
	switch v := strings.ToUpper(t.value(name, "BASE64")); v {
	case "BASE64", "NUMERIC":
		t.mapGiven(name, "", formatSetting(part, "decimal.format", v))
	default:
		t.refuse(name, "is neither BASE64 nor NUMERIC: Kafka Connect refuses it too")
	}
	name = part + ".converter.replace.null.with.default"
	if v, ok := t.boolean(name, true); ok {
		s := formatSetting(part, "replace.null.with.default", v)
		t.doc.set(s) // on in Connect, off in postrider
		t.mapGiven(name, "", s)
	}
}

func (t *translator) encoding(part string) {
	name := part + ".converter.converter.encoding"
	t.mapGiven(name, "", formatSetting(part, "encoding", t.value(name, "")))
	t.given(part+".converter.encoding", "has no effect in Kafka Connect either: its StringConverter "+
		"reads "+name).attend()
}

// delegate maps the converter to which Debezium's binary converter passes everything but bytes.
func (t *translator) delegate(part string) {
	name := part + ".converter.delegate.converter.type"
	class, given := t.get(name)
	set := func(f string) setting { return formatSetting(part, "delegate", f) }
	switch f := format(class); {
	case !given:
	case f == "json+schema":
		t.mapped(name, "", set(t.jsonFormat(name, "", "", set)))
	case f == "string":
		t.mapped(name, "", set(f))
	default:
		t.refuse(name, "postrider's delegates are JsonConverter and StringConverter: name one of "+
			"them, or none")
	}
}

// harmless are options of converters without an effect on what they write.
var harmless = []string{
	"schemas.enable", "schemas.cache.size", "decimal.format", "replace.null.with.default",
	"converter.encoding", "encoding", "converter.type", "plugin.version", "schema.registry.url",
	"schema.registry.basic.auth.user.info", "delegate.converter.type",
	"delegate.converter.type.schemas.cache.size",
}

// commonOptions makes the items of the converter's other options.
func (t *translator) commonOptions(part string) {
	prefix := part + ".converter."
	for _, name := range t.below(prefix) {
		if slices.Contains(harmless, strings.TrimPrefix(name, prefix)) {
			t.notNeeded(name, "has no effect on what this converter writes")
		} else {
			t.refuse(name, "is no option of this converter that postrider has: remove it, or compare "+
				"the records first (postrider audit)")
		}
	}
}

// assumedConverter maps the converter of the worker, for a connector that names none.
func (t *translator) assumedConverter(part, fromWorker string) string {
	name, flag := part+".converter", "--"+part+"-converter"
	f, text, attention := fromWorker, "the worker's, by "+flag, fromWorker == ""
	switch {
	case part == "header":
		text = "is not in the file: Kafka Connect's default, SimpleHeaderConverter, unless the worker " +
			"has another"
	case attention:
		f, text = "json+schema", "is not in the file, so the worker's own converter counts: look at "+
			name+" in its properties. Assumed is JsonConverter with schemas, as in Kafka Connect's "+
			"samples. If that is wrong every record changes: name it with "+flag
	case !slices.Contains([]string{"string", "json", "json+schema", "binary", "avro",
		"json_schema", "protobuf"}, f):
		if f = format(fromWorker); !takes(part, f) {
			t.refuse(name, flag+": "+unknownConverter(fromWorker, part))
			return ""
		}
		if f == "json+schema" {
			text += ", with schemas. Give " + flag + " json if the worker has " + name +
				".schemas.enable=false"
			attention = true
		}
	}
	if registered(f) {
		t.registryOptions(part, f)
	}
	if f == "json" || f == "json+schema" {
		t.doc.set(formatSetting(part, "replace.null.with.default", true))
	}
	t.mapped(name, text, formatSetting(part, "", f)).Attention = attention
	return f
}

// headerOptions refuses options that postrider has for keys and values only.
func (t *translator) headerOptions() {
	for _, o := range [][2]string{
		{"decimal.format", "BASE64"}, {"replace.null.with.default", "true"},
		{"converter.encoding", "UTF-8"}, {"encoding", "UTF-8"},
	} {
		name := "header.converter." + o[0]
		if v := t.value(name, o[1]); !strings.EqualFold(v, o[1]) {
			t.refuse(name, "postrider has this option for keys and values only: remove it, or place the "+
				"column in the value")
		}
	}
}

// unknownConverter is the text about a converter that postrider does not have.
func unknownConverter(class, part string) string {
	what, lower := simpleName(class)+" is not among postrider's converters", strings.ToLower(class)
	has := func(word string) bool { return strings.Contains(lower, word) }
	switch {
	case has("cloudevents"):
		return what + ": its envelope is Debezium's own. format.cloudevents = \"structured\" or " +
			"\"binary\" writes CloudEvents 1.0 with other attributes and data: see docs/CLOUDEVENTS.md, " +
			"move the consumers to them, and use StringConverter here"
	case has("apicurio"), has("com.amazonaws"):
		framing := "apicurio"
		if has("com.amazonaws") {
			framing = "glue"
		}
		return what + ": [registry] with framing = \"" + framing + "\" writes for that registry, with " +
			"the schemas of Confluent's converters, which may differ: see docs/SCHEMA-REGISTRIES.md, and " +
			"compare the schemas before consumers read both"
	case slices.ContainsFunc([]string{"avro", "protobuf", "jsonschema", "registry"}, has):
		return what + ": for a schema registry it has Confluent's AvroConverter, " +
			"JsonSchemaConverter and ProtobufConverter. Let the application write the encoded bytes into " +
			"a bytea payload and use ByteArrayConverter " +
			"(format.value = \"binary\" or \"framed\"), or move the consumers to " +
			"JsonConverter or StringConverter while Debezium still runs"
	case part == "header":
		return what + " for headers: use SimpleHeaderConverter, StringConverter or JsonConverter"
	}
	return what + ": use StringConverter, JsonConverter, ByteArrayConverter, BinaryDataConverter " +
		"or one of Kafka's number converters"
}
