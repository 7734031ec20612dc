package audit

import (
	"bytes"
	"encoding/json"
	"strings"
)

const contextHeaders = "__debezium.context."

// hint returns the configuration key that makes a member equal; empty: unknown.
func (p *pair) hint(member string, ours, theirs []byte) string {
	switch member {
	case "topic":
		if strings.EqualFold(p.ours.Topic, p.theirs.Topic) {
			return "router.topic_case, or the column that router.route.by.field names: " +
				"the topics differ in case"
		}
		return "router.route.topic.replacement, router.route.topic.regex or " +
			"router.route.by.field: the topics differ"
	case "partition":
		if !bytes.Equal(p.ours.Key, p.theirs.Key) {
			return "format.key: the partition follows from the bytes of the key, which differ"
		}
		return "router.table.fields.additional.placement: a column for the partition " +
			"(column:partition); if there is none, the other relay places its keys by another " +
			"partitioner, or the topic had fewer partitions"
	case "timestamp":
		return "router.table.field.event.timestamp: the time of the record comes from another " +
			"column, or from a clock"
	case "key", "value":
		return contentHint(member, ours, theirs)
	}
	return contentHint("headers", ours, theirs)
}

func contentHint(side string, ours, theirs []byte) string {
	key := "format." + side
	switch {
	case isNull(ours) != isNull(theirs):
		if isNull(ours) {
			return nullDefaultHint
		}
		return "router.null_defaults = false, and router.route.tombstone.on.empty.payload: " +
			"the other relay has null"
	case hasSchema(theirs) && !hasSchema(ours):
		return key + ` = "json+schema": the other relay writes the schema too`
	case hasSchema(ours) && !hasSchema(theirs):
		return key + ` = "json" or "string": the other relay writes no schema`
	case isQuoted(theirs, ours):
		return key + ` = "json": the other relay puts the text into quotes`
	case isQuoted(ours, theirs):
		return key + ` = "string": the other relay puts no quotes around the text`
	case bytes.Contains(theirs, []byte("java.nio.HeapByteBuffer[")):
		return "router.java_text = true: the other relay prints bytes as Java does"
	case side == "value" && sameJSON(ours, theirs):
		return "router.table.expand.json.payload: the same JSON, written in another way"
	case side == "value" && bytes.HasPrefix(ours[firstDifference(ours, theirs):], []byte("null")):
		return nullDefaultHint
	}
	return ""
}

const nullDefaultHint = "router.null_defaults = true: the other relay has a column's default " +
	"in the place of NULL"

func headerHint(name string, ours bool) string {
	on := " = true"
	if ours {
		on = " = false"
	}
	switch {
	case strings.HasPrefix(name, contextHeaders):
		return "router.extended.headers.enabled" + on + ": the headers " + contextHeaders + "*"
	case name == "postrider.lsn", name == "postrider.index", name == "postrider.source":
		return "router.position_headers = false"
	case name == "traceparent", name == "tracestate":
		return "router.tracing_headers" + on
	case ours:
		return "router.table.fields.additional.placement, router.header_id: " +
			"only postrider has a header " + name
	}
	return "router.table.fields.additional.placement, router.header_id, router.headers_column: " +
		"only the other relay has a header " + name
}

func isNull(b []byte) bool { return b == nil || string(b) == "null" }

// isQuoted reports whether quoted is the JSON string of text.
func isQuoted(quoted, text []byte) bool {
	if len(quoted) < 2 || quoted[0] != '"' {
		return false
	}
	var inside string
	return json.Unmarshal(quoted, &inside) == nil && inside == string(text)
}

// hasSchema reports whether b is an envelope, with schema, of Connect's JSON converter.
func hasSchema(b []byte) bool {
	var document map[string]json.RawMessage
	return bytes.HasPrefix(b, []byte(`{"schema":`)) && json.Unmarshal(b, &document) == nil &&
		len(document) == 2 && document["payload"] != nil
}

func sameJSON(a, b []byte) bool {
	canonical := func(in []byte) []byte {
		decoder := json.NewDecoder(bytes.NewReader(in))
		decoder.UseNumber()
		var document any
		if decoder.Decode(&document) != nil {
			return nil
		}
		out, _ := json.Marshal(document) // cannot fail: it was decoded from JSON
		return out
	}
	ca := canonical(a)
	return ca != nil && bytes.Equal(ca, canonical(b))
}
