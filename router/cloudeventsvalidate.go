package router

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider/router/connect"
)

// Fits returns every option of rule sets and format that CloudEvents cannot be with, joined; each
// names its key. Without format.cloudevents all fit.
func (f Format) Fits(rules []Config) error {
	if !f.IsCloudEvents() {
		return nil
	}
	own := faults{section: "format."}
	if f.Headers != "simple" && f.Headers != "string" {
		own.add("headers = %q: must be \"simple\" or \"string\" with format.cloudevents = %q, whose "+
			"headers are text", f.Headers, f.CloudEvents)
	}
	if set, err := connect.CharsetOf(f.ValueEncoding); err == nil && set != nil {
		own.add("value.encoding = %q: must be UTF-8 with format.cloudevents = %q", f.ValueEncoding,
			f.CloudEvents)
	}
	if problem := sourceProblem(expandSource(f.EventSource, "prefix", "table")); problem != "" {
		own.add(`cloudevents.source = %q %s; must be a URI reference, as `+
			`"/${topic.prefix}/${table}"`, f.EventSource, problem)
	}
	if problem := f.contentTypeProblem(); problem != "" {
		own.add("cloudevents.datacontenttype = %q %s", f.EventContentType, problem)
	}
	errs := own.errs
	for i := range rules {
		section := faults{section: RuleName(i, len(rules)) + "."}
		f.fitsRule(&section, rules[i].normalised())
		errs = append(errs, section.errs...)
	}
	return errors.Join(errs...)
}

// fitsRule adds what is wrong with one rule set.
func (f Format) fitsRule(bad *faults, c Config) {
	mode := fmt.Sprintf("format.cloudevents = %q", f.CloudEvents)
	if c.TombstoneOnEmptyPayload && f.CloudEvents == "structured" {
		bad.add("route.tombstone.on.empty.payload = true: a structured CloudEvent is no null value; " +
			`set format.cloudevents to "binary", or this to false`)
	}
	if c.ExpandJSONPayload && f.Value == "string" {
		bad.add(`table.expand.json.payload = true writes no JSON with format.value = "string", and ` +
			"the data of a CloudEvent would be neither JSON nor text; set it to false, or " +
			`format.value to "json"`)
	}
	if c.FieldSchemaVersion != "" {
		bad.add("table.field.event.schema.version = %q: a CloudEvent has no version of a schema; "+
			`leave it out, and place the column as an attribute, as "%[1]s:envelope:schemaversion"`,
			c.FieldSchemaVersion)
	}
	if eventHeader(c.HeaderID) {
		bad.add("header_id = %q: with %s the headers ce_* and content-type are those of the "+
			`CloudEvent, which has the id in ce_id; must be another, as "id"`, c.HeaderID, mode)
	}
	placements, _ := parsePlacements(c.AdditionalPlacement)
	for _, a := range placements {
		switch {
		case a.to == toHeader && eventHeader(a.alias):
			bad.add("table.fields.additional.placement = %q: with %s the header %s would be that "+
				"of the CloudEvent; place the column in the envelope to make it an attribute, as "+
				`"%s:envelope:%s"`, c.AdditionalPlacement, mode, a.alias, a.column,
				attributeAlias(a.column))
		case a.to == toEnvelope:
			if problem := aliasProblem(a.alias); problem != "" {
				bad.add("table.fields.additional.placement = %q: with %s a column in the envelope is "+
					"an attribute of the CloudEvent, and %q %s; give it an alias, as "+
					`"%s:envelope:%s"`, c.AdditionalPlacement, mode, a.alias, problem, a.column,
					attributeAlias(a.column))
			}
		}
	}
}

// contentTypeProblem is what is wrong with cloudevents.datacontenttype; empty if nothing is.
func (f Format) contentTypeProblem() string {
	if f.EventContentType == "" {
		return ""
	}
	media, _, err := mime.ParseMediaType(f.EventContentType)
	switch {
	case err != nil || !strings.Contains(media, "/") ||
		attributeProblem([]byte(f.EventContentType)) != "":
		return `is no media type; must be one, as "application/json"`
	case strings.HasPrefix(media, "application/cloudevents"):
		return "is the type of an event, not of its data; readers would take the data for the event"
	case f.Value == "json" || f.Value == "json+schema":
		return fmt.Sprintf("has no place with format.value = %q, whose values are JSON; leave it out",
			f.Value)
	}
	return ""
}

// sourceProblem is why a text is no source of events; empty if it is one.
func sourceProblem(source string) string {
	_, err := url.Parse(source)
	switch {
	case source == "":
		return "is empty"
	case strings.Contains(source, "${"):
		return "has a ${...} that is neither ${topic.prefix} nor ${table}"
	case err != nil || strings.ContainsFunc(source, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune("\"<>\\^`{|}", c)
	}):
		return "is no URI reference"
	}
	return ""
}

// schemaProblem is why a text is no dataschema; empty if it is one.
func schemaProblem(schema string) string {
	if u, err := url.Parse(schema); err != nil || !u.IsAbs() {
		return "is no absolute URI"
	}
	return sourceProblem(schema)
}

// ownAttributes are those that the relay sets, and a member of structured mode beside them. Of the
// optional attributes only dataschema is left to columns.
var ownAttributes = strings.Fields("specversion id source type subject time datacontenttype " +
	"data partitionkey traceparent tracestate")

// aliasProblem is why a column cannot be an attribute of that name; empty if it can.
func aliasProblem(name string) string {
	switch {
	case slices.Contains(ownAttributes, name):
		return "is one that the relay sets"
	case attributeAlias(name) != name:
		return "has other characters than lower-case letters and digits"
	}
	return ""
}

// attributeAlias leaves of a name what an attribute's name may have.
func attributeAlias(name string) string {
	short := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, strings.ToLower(name))
	if slices.Contains(ownAttributes, short) {
		short = "row" + short
	}
	return cmp.Or(short, "attribute")
}
