package debezium

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// setting is a key of postrider.toml.
type setting struct {
	section string // "sink.kafka"; empty for a comment of its own
	key     string
	value   any
	comment string // a line above it
}

func (s setting) String() string { return s.section + "." + s.key + " = " + literal(s.value) }

// name is the key as the file has it. In [format] the options of a converter stand beside its
// name, value and "value.delegate": without quotes the second would be a table, and TOML refuses a
// name that is both.
func (s setting) name() string {
	if s.section == "format" && strings.Contains(s.key, ".") {
		return `"` + s.key + `"`
	}
	return s.key
}

func (s setting) with(comment string) setting {
	s.comment = comment
	return s
}

// document is the file to write. The zero value is empty.
type document struct {
	settings []setting
	routers  []routerSection
}

// routerSection is one [router], or one of several [[router]] with the tables it is for.
type routerSection struct {
	tables   []string
	messages []string
	settings []setting
}

// order is that of config.example.toml.
var order = []string{
	"postgres", "slot", "snapshot", "replication", "router", "format", "sink", "sink.kafka",
	"sink.kafka.tls", "sink.kafka.sasl", "sink.kafka.topics", "relay",
}

// set adds a key or replaces its value.
func (d *document) set(s setting) {
	at := slices.IndexFunc(d.settings, func(o setting) bool {
		return o.section == s.section && o.key == s.key
	})
	if at >= 0 {
		d.settings[at] = s
		return
	}
	d.settings = append(d.settings, s)
}

func (d *document) get(section, key string) (any, bool) {
	for _, s := range d.settings {
		if s.section == section && s.key == key {
			return s.value, true
		}
	}
	return nil, false
}

func (d *document) render(variables []string) []byte {
	var b bytes.Buffer
	b.WriteString("# Made by postrider import-debezium. postrider config example explains every " +
		"key.\n")
	if len(variables) > 0 {
		fmt.Fprintf(&b, "# Refers to these environment variables: %s.\n", strings.Join(variables, ", "))
	}
	for _, section := range order {
		if section == "router" {
			d.renderRouters(&b)
			continue
		}
		var in []setting
		for _, s := range d.settings {
			if s.section == section {
				in = append(in, s)
			}
		}
		if len(in) > 0 {
			fmt.Fprintf(&b, "\n[%s]\n", section)
			renderSettings(&b, in)
		}
	}
	return b.Bytes()
}

func (d *document) renderRouters(b *bytes.Buffer) {
	for _, r := range d.routers {
		if len(d.routers) == 1 {
			b.WriteString("\n[router]\n")
		} else {
			b.WriteString("\n[[router]]\n")
			renderSettings(b, []setting{{key: "tables", value: r.tables}})
			if len(r.messages) > 0 {
				renderSettings(b, []setting{{key: "messages", value: r.messages}})
			}
		}
		renderSettings(b, r.settings)
	}
}

func renderSettings(b *bytes.Buffer, settings []setting) {
	for _, s := range settings {
		if s.comment != "" {
			fmt.Fprintf(b, "# %s\n", s.comment)
		}
		fmt.Fprintf(b, "%s = %s\n", s.name(), literal(s.value))
	}
}

// literal is a value as TOML.
func literal(v any) string {
	b, err := toml.Marshal(map[string]any{"v": v})
	if err != nil {
		panic(fmt.Sprintf("debezium: %T as TOML: %v", v, err))
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(b), "v = "), "\n")
}
