package debezium

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/postrider/postrider/internal/units"
)

// setting is a key of postrider.toml.
type setting struct {
	section string // "sink.kafka"; empty for a comment of its own
	key     string
	value   any
	comment string // a line above it
}

func (s setting) String() string { return s.section + "." + s.key + " = " + literal(s.value) }

// line is the setting as the file has it. In [format] the options of a converter stand beside its
// name, value and "value.delegate": without quotes the second would be a table, and TOML refuses a
// name that is both.
func (s setting) line() string {
	key, comment := s.key, ""
	if s.section == "format" && strings.Contains(key, ".") {
		key = `"` + key + `"`
	}
	if s.comment != "" {
		comment = "# " + s.comment + "\n"
	}
	return comment + key + " = " + literal(s.value) + "\n"
}

// literal is a value as TOML.
func literal(v any) string {
	if d, ok := v.(time.Duration); ok {
		v = units.FormatDuration(d)
	}
	b, err := toml.Marshal(map[string]any{"v": v})
	if err != nil {
		panic(fmt.Sprintf("debezium: %T as TOML: %v", v, err))
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(b), "v = "), "\n")
}

// document is the file to write. The zero value is empty.
type document struct {
	settings []setting
	routers  [][]setting // of each [router], or [[router]] if there are several
}

// order is that of config.example.toml.
var order = []string{
	"postgres", "slot", "snapshot", "replication", "router", "format", "registry", "registry.oauth",
	"sink", "sink.kafka", "sink.kafka.tls", saslSection, oauthSection, "sink.kafka.sasl.aws",
	kerberosSection, "sink.kafka.topics", "relay",
}

// set adds a key or replaces its value.
func (d *document) set(s setting) {
	for n, o := range d.settings {
		if o.section == s.section && o.key == s.key {
			d.settings[n] = s
			return
		}
	}
	d.settings = append(d.settings, s)
}

// get is the value of a key; nil if it is not set.
func (d *document) get(section, key string) any {
	for _, s := range d.in(section) {
		if s.key == key {
			return s.value
		}
	}
	return nil
}

// in lists the settings of a section.
func (d *document) in(section string) []setting {
	return slices.DeleteFunc(slices.Clone(d.settings),
		func(s setting) bool { return s.section != section })
}

func (d *document) render(variables []string) []byte {
	var b bytes.Buffer
	b.WriteString("# Made by postrider import-debezium. postrider config example explains every " +
		"key.\n")
	if len(variables) > 0 {
		fmt.Fprintf(&b, "# Refers to these environment variables: %s.\n", strings.Join(variables, ", "))
	}
	for _, section := range order {
		sections, title := [][]setting{d.in(section)}, "["+section+"]"
		if section == "router" {
			sections = d.routers
		}
		if len(sections) > 1 {
			title = "[[" + section + "]]"
		}
		for _, settings := range sections {
			if len(settings) == 0 {
				continue
			}
			fmt.Fprintf(&b, "\n%s\n", title)
			for _, s := range settings {
				b.WriteString(s.line())
			}
		}
	}
	return b.Bytes()
}
