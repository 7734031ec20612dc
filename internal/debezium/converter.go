package debezium

import (
	"slices"
	"strings"
)

const jsonConverter = "org.apache.kafka.connect.json.JsonConverter"

// format finds a converter by its class, in full or, as Kafka Connect's plugin aliases go, by its
// last part.
func format(class string) string {
	if f, ok := known().formats[class]; ok {
		return f
	}
	if strings.Contains(class, ".") {
		return ""
	}
	if class == "ByteArrayConverter" {
		return "binary"
	}
	for full, f := range known().formats {
		simple := simpleName(full)
		if simple == class || strings.TrimSuffix(simple, "Converter") == class {
			return f
		}
	}
	return ""
}

func (t *translator) converters() {
	t.formats[0] = t.converter("key", t.options.KeyConverter)
	t.formats[1] = t.converter("value", t.options.ValueConverter)
	t.formats[2] = t.headerConverter()
}

// converter maps the converter of keys or values and returns the format, empty if it has none.
func (t *translator) converter(part, fromWorker string) string {
	name := part + ".converter"
	class, given := t.get(name)
	if !given {
		t.ignoredOptions(part)
		return t.assumedConverter(part, fromWorker)
	}
	f := format(class)
	if f == "" || f == "simple" {
		t.refuse(name, unknownConverter(class, part))
		t.refuseBelow(part+".converter.", "belongs to a converter that postrider does not have")
		return ""
	}
	if f == "json+schema" {
		f = t.jsonFormat(part)
	}
	t.mapped(name, "", setting{"format", part, f, ""})
	switch f {
	case "json", "json+schema":
		t.jsonOptions(part)
	case "string":
		t.encoding(part)
	case "binary":
		t.delegate(part)
	}
	t.commonOptions(part)
	return f
}

// jsonFormat reads schemas.enable, which is on unless it is turned off.
func (t *translator) jsonFormat(part string) string {
	name := part + ".converter.schemas.enable"
	on, ok := t.boolean(name, true)
	if !ok {
		return "json"
	}
	f, text := "json", "the format without schemas"
	if on {
		f, text = "json+schema", "the format with schemas"
	}
	if _, given := t.get(name); given {
		key := part
		if part == "header" {
			key = "headers"
		}
		t.mapped(name, text, setting{"format", key, f, ""})
	}
	return f
}

func (t *translator) jsonOptions(part string) {
	name := part + ".converter.decimal.format"
	if v, given := t.get(name); given {
		if v = strings.ToUpper(v); v == "BASE64" || v == "NUMERIC" {
			t.mapped(name, "", setting{"format", part + ".decimal.format", v, ""})
		} else {
			t.refuse(name, "is neither BASE64 nor NUMERIC: Kafka Connect refuses it too")
		}
	}
	name = part + ".converter.replace.null.with.default"
	if v, ok := t.boolean(name, true); ok {
		s := setting{"format", part + ".replace.null.with.default", v, ""}
		t.doc.set(s) // on in Connect, off in postrider
		if _, given := t.get(name); given {
			t.mapped(name, "", s)
		}
	}
}

func (t *translator) encoding(part string) {
	name := part + ".converter.converter.encoding"
	if v, given := t.get(name); given {
		t.mapped(name, "", setting{"format", part + ".encoding", v, ""})
	}
	name = part + ".converter.encoding"
	if _, given := t.get(name); given {
		t.notNeeded(name, "has no effect in Kafka Connect either: its StringConverter reads "+
			part+".converter.converter.encoding").attend()
	}
}

// delegate maps the converter to which Debezium's binary converter passes everything but bytes.
func (t *translator) delegate(part string) {
	name := part + ".converter.delegate.converter.type"
	class, given := t.get(name)
	if !given {
		return
	}
	f := format(class)
	switch f {
	case "json+schema":
		option := name + ".schemas.enable"
		if on, ok := t.boolean(option, true); ok {
			if !on {
				f = "json"
			}
			if _, given := t.get(option); given {
				t.mapped(option, "", setting{"format", part + ".delegate", f, ""})
			}
		}
	case "string":
	default:
		t.refuse(name, "postrider's delegates are JsonConverter and StringConverter: name one of "+
			"them, or none")
		return
	}
	t.mapped(name, "", setting{"format", part + ".delegate", f, ""})
}

// commonOptions makes the items of the converter's other options.
func (t *translator) commonOptions(part string) {
	prefix := part + ".converter."
	for _, name := range t.below(prefix) {
		switch option := strings.TrimPrefix(name, prefix); option {
		case "schemas.enable", "schemas.cache.size", "decimal.format", "replace.null.with.default",
			"converter.encoding", "encoding",
			"converter.type", "plugin.version", "schema.registry.url",
			"schema.registry.basic.auth.user.info",
			"delegate.converter.type", "delegate.converter.type.schemas.cache.size":
			t.notNeeded(name, "has no effect on what this converter writes")
		default:
			t.refuse(name, "is no option of this converter that postrider knows: remove it, or compare "+
				"the records first (postrider audit)")
		}
	}
}

func (t *translator) ignoredOptions(part string) {
	for _, name := range t.below(part + ".converter.") {
		t.notNeeded(name, "Kafka Connect ignores it as well: without "+part+".converter in the file "+
			"the worker's converter is used with the worker's options").attend()
	}
}

// assumedConverter maps the converter of the worker, for a connector that names none.
func (t *translator) assumedConverter(part, fromWorker string) string {
	name := part + ".converter"
	flag := "--" + part + "-converter"
	if fromWorker == "" {
		t.doc.set(setting{"format", part + ".replace.null.with.default", true, ""})
		t.mapped(name, "is not in the file, so the worker's own converter counts: look at "+name+
			" in its properties. Assumed is JsonConverter "+
			"with schemas, as in Kafka Connect's samples. If that is wrong every record changes: say it "+
			"with "+flag, setting{"format", part, "json+schema", ""}).attend()
		return "json+schema"
	}
	f := fromWorker
	switch f {
	case "string", "json", "json+schema", "binary":
	default:
		if f = format(fromWorker); f == "" || f == "simple" {
			t.refuse(name, flag+": "+unknownConverter(fromWorker, part))
			return ""
		}
	}
	if strings.HasPrefix(f, "json") {
		t.doc.set(setting{"format", part + ".replace.null.with.default", true, ""})
	}
	t.mapped(name, "the worker's, by "+flag, setting{"format", part, f, ""})
	return f
}

func (t *translator) headerConverter() string {
	name := "header.converter"
	class, given := t.get(name)
	if !given {
		t.ignoredOptions("header")
		t.mapped(name, "is not in the file: Kafka Connect's default, SimpleHeaderConverter, unless "+
			"the worker has another", setting{"format", "headers", "simple", ""})
		return "simple"
	}
	f := format(class)
	if !slices.Contains([]string{"simple", "string", "json", "json+schema"}, f) {
		t.refuse(name, unknownConverter(class, "header"))
		t.refuseBelow("header.converter.", "belongs to a converter that postrider does not have")
		return ""
	}
	if f == "json+schema" {
		f = t.jsonFormat("header")
	}
	t.mapped(name, "", setting{"format", "headers", f, ""})
	for option, harmless := range map[string]string{
		"decimal.format": "BASE64", "replace.null.with.default": "true", "converter.encoding": "UTF-8",
		"encoding": "UTF-8",
	} {
		name := "header.converter." + option
		if v, given := t.get(name); given && !strings.EqualFold(v, harmless) {
			t.refuse(name, "postrider has this option for keys and values only: remove it, or place the "+
				"column in the value")
		}
	}
	t.commonOptions("header")
	return f
}

// unknownConverter is the text about a converter that postrider does not have.
func unknownConverter(class, part string) string {
	what := simpleName(class) + " is not among postrider's converters"
	switch lower := strings.ToLower(class); {
	case strings.Contains(lower, "cloudevents"):
		return what + ": CloudEvents are not made. Write the envelope into the payload column, or " +
			"keep the type and source as headers with table.fields.additional.placement"
	case strings.Contains(lower, "avro"), strings.Contains(lower, "protobuf"),
		strings.Contains(lower, "jsonschema"), strings.Contains(lower, "registry"),
		strings.Contains(lower, "glue"):
		return what + ": it needs a schema registry. Let the application write the encoded bytes into " +
			"a bytea payload and use ByteArrayConverter (format.value = \"binary\"), or move the " +
			"consumers to JsonConverter or StringConverter while Debezium still runs"
	case part == "header":
		return what + " for headers: use SimpleHeaderConverter, StringConverter or JsonConverter"
	}
	return what + ": use StringConverter, JsonConverter, ByteArrayConverter, BinaryDataConverter " +
		"or one of Kafka's number converters"
}
