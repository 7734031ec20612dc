package debezium

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// item gives a property its item. The first one counts: the result of a second call is discarded.
func (t *translator) item(name string, i Item) *Item {
	_, inFile := t.connector.Properties[name]
	_, left := t.left[name]
	sameDefault := func(o Item) bool { return o.Default && o.Property == name }
	if inFile && !left || !inFile && slices.ContainsFunc(t.items, sameDefault) {
		return &Item{}
	}
	delete(t.left, name)
	if inFile && i.Outcome == Mapped && !canRefer(name) && t.provided(t.connector.Properties[name]) {
		i = Item{Outcome: Refused, Text: "comes from a config provider or a variable, and postrider " +
			"takes those in URLs and secrets only: write the value here"}
	}
	i.Property, i.Default = t.nameInFile(name), !inFile
	t.items = append(t.items, i)
	return &t.items[len(t.items)-1]
}

// optionName matches options, and no key, certificate or password.
var optionName = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[A-Za-z0-9_$-]+)+$`)

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

// mapped gives a property its settings.
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

// below lists the properties without an item yet whose names start with prefix.
func (t *translator) below(prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.left)), func(name string) bool {
		return !strings.HasPrefix(name, prefix)
	})
}

// refuseBelow refuses all properties without an item yet whose names start with prefix.
func (t *translator) refuseBelow(prefix, why string) {
	for _, name := range t.below(prefix) {
		t.refuse(name, why)
	}
}

// given is notNeeded for a property that may not be there.
func (t *translator) given(name, why string) {
	if _, given := t.connector.Properties[name]; given {
		t.notNeeded(name, why)
	}
}

// word maps a property that takes one of a few words.
func (t *translator) word(name string, words []string, set func(word string) setting) {
	v, given := t.get(name)
	if !given {
		return
	}
	if word := strings.ToLower(v); slices.Contains(words, word) {
		t.mapped(name, "", set(word))
	} else {
		t.refuse(name, "must be one of "+strings.Join(words, ", "))
	}
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

// list splits a list of Kafka Connect's.
func list(v string) []string {
	var parts []string
	for p := range strings.SplitSeq(v, ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}

func simpleName(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }
