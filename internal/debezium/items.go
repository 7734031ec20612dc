package debezium

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// get is a property's value without blanks around it; blanks count only in texts.
func (t *translator) get(name string) (value string, given bool) {
	v, given := t.connector.Properties[name]
	return strings.TrimSpace(v), given
}

// value is get with a default.
func (t *translator) value(name, otherwise string) string {
	if v, given := t.get(name); given {
		return v
	}
	return otherwise
}

// is reports whether a property has a value, in any case of letters.
func (t *translator) is(name, value string) bool {
	return strings.EqualFold(t.value(name, ""), value)
}

// item gives a property its item. The first one counts: the result of a second call is discarded.
func (t *translator) item(name string, i Item) *Item {
	v, inFile := t.connector.Properties[name]
	_, left := t.left[name]
	sameDefault := func(o Item) bool { return o.Default && o.Property == name }
	if inFile && !left || !inFile && slices.ContainsFunc(t.items, sameDefault) {
		return &Item{}
	}
	delete(t.left, name)
	if inFile && i.Outcome == Mapped && !canRefer(name) && t.provided(v) {
		i = Item{Outcome: Refused, Text: "comes from a config provider or a variable, and postrider " +
			"takes those in URLs and secrets only: write the value here"}
	}
	i.Property, i.Default = t.nameInFile(name), !inFile
	t.items = append(t.items, i)
	return &t.items[len(t.items)-1]
}

// mapped gives a property its settings, which the file gets too.
func (t *translator) mapped(name, text string, settings ...setting) *Item {
	texts := make([]string, len(settings))
	for n, s := range settings {
		t.doc.set(s)
		texts[n] = s.String()
	}
	return t.item(name, Item{Outcome: Mapped, Settings: texts, Text: text})
}

func (t *translator) notNeeded(name, why string) *Item {
	return t.item(name, Item{Outcome: NotNeeded, Text: why})
}

func (t *translator) refuse(name, what string) *Item {
	return t.item(name, Item{Outcome: Refused, Text: what})
}

// attend marks an item as one to be read before the first start.
func (i *Item) attend() { i.Attention = true }

// mapGiven is mapped for a property that may not be there.
func (t *translator) mapGiven(name, text string, settings ...setting) *Item {
	if _, given := t.get(name); given {
		return t.mapped(name, text, settings...)
	}
	return &Item{}
}

// given is notNeeded for a property that may not be there.
func (t *translator) given(name, why string) *Item {
	if _, given := t.get(name); given {
		return t.notNeeded(name, why)
	}
	return &Item{}
}

// below lists the properties without an item yet whose names start with a prefix.
func (t *translator) below(prefixes ...string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(t.left)) {
		if hasPrefix(name, prefixes...) {
			names = append(names, name)
		}
	}
	return names
}

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// refuseBelow refuses all properties without an item yet whose names start with prefix.
func (t *translator) refuseBelow(prefix, why string) {
	for _, name := range t.below(prefix) {
		t.refuse(name, why)
	}
}

// read reads the value of an option. The item of a wrong one is made here.
func (t *translator) read(name string, o option) (value any, ok bool) {
	v, _ := t.get(name)
	switch o.Kind {
	case "boolean":
		return t.boolean(name, false)
	case "word":
		if v = strings.ToLower(v); !slices.Contains(o.Words, v) {
			t.refuse(name, "must be one of "+strings.Join(o.Words, ", "))
			return nil, false
		}
	case "number":
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			t.refuse(name, "must be a number of digits, as 2")
			return nil, false
		}
		return n, true
	case "text": // blanks around it count
		return t.connector.Properties[name], true
	}
	return v, true
}

// options maps the options of the catalog that belong to a section.
func (t *translator) options(section string) {
	for _, o := range known().Connector {
		if o.Section != section {
			continue
		}
		text := o.Text
		v, given := t.get(o.Name)
		var value any
		if given && (v != "" || o.Kind != "name" || o.Default == nil) {
			var ok bool
			if value, ok = t.read(o.Name, o); !ok {
				continue
			}
		} else if value, text = o.Default, o.Missing; value == nil {
			continue
		}
		i := t.mapped(o.Name, text, setting{section, o.key(), value, ""})
		i.Attention = o.Attention && !given
	}
}

// key is the key of postrider.toml, without its section.
func (o option) key() string {
	if o.Key == "" {
		return o.Name
	}
	return o.Key
}

// milliseconds reads a property of Kafka's. The item of a wrong one is made here.
func (t *translator) milliseconds(name string) (d time.Duration, ok bool) {
	v, given := t.get(name)
	if !given {
		return 0, false
	}
	ms, err := strconv.ParseInt(v, 10, 64)
	if err != nil || ms < 0 {
		t.refuse(name, "is no number of milliseconds: Kafka refuses it too")
		return 0, false
	}
	return time.Duration(min(ms, 1<<40)) * time.Millisecond, true
}

// boolean reads a property as Kafka Connect does. The item of a wrong one is made here.
func (t *translator) boolean(name string, otherwise bool) (value, ok bool) {
	v, given := t.get(name)
	switch {
	case !given:
		return otherwise, true
	case strings.EqualFold(v, "true"):
		return true, true
	case strings.EqualFold(v, "false"):
		return false, true
	}
	t.refuse(name, "is neither true nor false: Kafka Connect refuses it too")
	return otherwise, false
}

// rest makes the items of all properties that have none yet.
func (t *translator) rest() {
	for _, property := range []string{"converters", "post.processors"} {
		for _, alias := range list(t.value(property, "")) {
			t.refuseBelow(alias+".", "belongs to "+property)
		}
	}
	for _, name := range t.below("") {
		r := known().rule(name)
		if r == nil {
			t.unknown(name)
			continue
		}
		if r.Boolean {
			t.boolean(name, false)
		}
		v, _ := t.get(name)
		switch {
		case r.Refused+r.Attention == "", slices.Contains(r.Fine, strings.ToLower(v)):
			t.notNeeded(name, r.Why)
		case r.Attention != "":
			t.notNeeded(name, r.Attention).attend()
		default:
			t.refuse(name, strings.ReplaceAll(r.Refused, "{class}", simpleName(v)))
		}
	}
}

// optionName matches options, and no key, certificate or password.
var optionName = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[A-Za-z0-9_$-]+)+$`)

// unknown refuses a property that is not in the catalog, with what was probably meant.
func (t *translator) unknown(name string) {
	near := known().nearest(name)
	if t.connector.wraps && near == "" && !optionName.MatchString(name) {
		t.hidden[name] = true
		t.refuse(name, "a line that begins like no option, maybe the rest of a value that was wrapped: "+
			"end each line of a value but the last with a backslash. It is not shown, since it may be a "+
			"part of a secret")
		return
	}
	text := "is unknown to postrider."
	switch near {
	case name:
		t.refuse(name, "cannot be judged before what else is refused is solved")
		return
	case "":
	default:
		text = "is unknown to postrider; did you mean " + near + "?"
	}
	t.refuse(name, text+" Correct or remove it: Kafka Connect ignores unknown properties, "+
		"postrider does not")
}

func (t *translator) nameInFile(name string) string {
	if t.hidden[name] {
		return "(not shown)"
	}
	return t.connector.nameInFile(name)
}

func (c Connector) nameInFile(name string) string {
	if w, ok := c.written[name]; ok {
		return w
	}
	return name
}

// list splits a list of Kafka Connect's.
func list(v string) (parts []string) {
	for p := range strings.SplitSeq(v, ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}

func simpleName(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }
