package debezium

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Report is the translation of a file, for people and as JSON. It contains no secret.
type Report struct {
	File       string   `json:"file"`
	Connector  string   `json:"connector,omitempty"`
	Properties int      `json:"properties"`
	Mapped     int      `json:"mapped"`
	NotNeeded  int      `json:"not_needed"`
	Refused    int      `json:"refused"`
	Items      []Item   `json:"items"`
	Variables  []string `json:"environment_variables,omitempty"`
	Output     string   `json:"output,omitempty"` // file that the configuration was written to
	TOML       string   `json:"toml,omitempty"`   // the configuration, where no file took it
	Next       []string `json:"next"`
}

// NewReport makes a report. toml is nil if the configuration was not written; else output is its
// file, empty for none.
func NewReport(file, output string, c Connector, t *Translation, toml []byte) Report {
	r := Report{
		File: file, Connector: c.Name, Properties: len(c.Properties), Items: t.Items,
		Variables: t.Variables,
		Mapped:    t.Count(Mapped), NotNeeded: t.Count(NotNeeded), Refused: len(t.Refused()),
	}
	switch {
	case toml != nil && output != "":
		r.Output = output
	case toml != nil:
		r.TOML = string(toml)
	}
	r.Next = []string{
		"correct what is refused, then import again",
		"--draft writes the configuration without it, to look at",
	}
	if r.Refused > 0 {
		return r
	}
	config := cmp.Or(r.Output, "postrider.toml")
	r.Next = []string{
		"set what is marked with ! above, and the passwords, which are never copied",
		"postrider config validate --config " + config,
		"postrider check --config " + config,
		"stop the connector, then: postrider run --config " + config +
			"   # docs/MIGRATING-FROM-DEBEZIUM.md has the whole way",
	}
	return r
}

// reportWidth is the width of the text, also on a wider terminal: long lines are hard to read.
const reportWidth = 120

// Print writes the report for people, the refused properties first.
func (r Report) Print(w io.Writer) {
	name := ""
	if r.Connector != "" {
		name = ": connector " + r.Connector
	}
	fmt.Fprintf(w, "%s%s, %d properties: %d mapped, %d not needed, %d refused\n", r.File, name,
		r.Properties, r.Mapped, r.NotNeeded, r.Refused)
	for _, section := range []string{"refused", "needs attention", "mapped", "not needed"} {
		title := "\n" + section + "\n"
		for _, i := range r.Items {
			if i.section() == section {
				fmt.Fprint(w, title, i.line())
				title = ""
			}
		}
	}
	fmt.Fprintf(w, "\nnext\n")
	for n, step := range r.Next {
		fmt.Fprintf(w, "  %d. %s\n", n+1, step)
	}
}

func (i Item) section() string {
	if i.Attention && i.Outcome != Refused {
		return "needs attention"
	}
	return string(i.Outcome)
}

func (i Item) line() string {
	mark := " "
	if i.Attention || i.Outcome == Refused {
		mark = "!"
	}
	line := mark + " " + i.Property + "  "
	if i.Default {
		line = mark + " " + i.Property + " (not in the file)  "
	}
	text := strings.Join(i.Settings, ", ")
	if text != "" && i.Text != "" {
		text += "; "
	}
	return line + wrapped(text+i.Text, reportWidth, len(line)) + "\n"
}

// wrapped breaks a text between words and indents all lines but the first by four.
func wrapped(text string, width, used int) string {
	const indent = "\n    "
	var b strings.Builder
	for n, word := range strings.Fields(text) {
		switch {
		case n > 0 && used+1+len(word) > width:
			b.WriteString(indent)
			used = len(indent) - 1
		case n > 0:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += len(word)
	}
	return b.String()
}
