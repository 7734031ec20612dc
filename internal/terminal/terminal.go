// Package terminal writes for people: colours where they are wanted, text without control
// characters, words for a shell, and a line with the progress of a command.
package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Colour reports whether w gets colours and lines that overwrite themselves.
func Colour(w io.Writer, getenv func(string) string) bool {
	return IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// OneLine is Printable, with each run of white space, line ends too, replaced by one space.
func OneLine(s string) string { return strings.Join(strings.Fields(Printable(s)), " ") }

// Printable replaces what a terminal would obey in a text that others have written, as a name in
// the database, a record or the message of a server is: control characters, line ends too, and
// what changes the direction of the text.
func Printable(s string) string {
	if !utf8.ValidString(s) {
		return fmt.Sprintf("%q", s)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, s)
}

// Lines is Printable of each line, with its line ends and tabs.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j := range parts {
			parts[j] = Printable(parts[j])
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./@%+=:][A-Za-z0-9_./@%+=:-]*$`)

// ShellWord is Printable as one word for a shell: in quotes, unless it is plain.
func ShellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(Printable(s), "'", `'\''`) + "'"
}

// OrDash returns s, or - if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Indent is IndentBy with two spaces.
func Indent(s string) string { return IndentBy(s, "  ") }

// JSON returns a writer to w of JSON, in which what Printable would replace is escaped.
// encoding/json leaves some of it as it is.
func JSON(w io.Writer) io.Writer { return escaping{w} }

type escaping struct{ w io.Writer }

// Write takes whole characters, as an encoder writes them.
func (e escaping) Write(document []byte) (int, error) {
	var b bytes.Buffer
	for _, r := range string(document) {
		if r >= 0x7f && Printable(string(r)) == " " {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	if _, err := e.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(document), nil
}

// IndentBy is Lines with by in front of each but the first, and without line ends at the end.
func IndentBy(s, by string) string {
	return strings.ReplaceAll(strings.TrimRight(Lines(s), "\n"), "\n", "\n"+by)
}

// showEvery: where lines cannot be overwritten, one of so many calls of Show writes a line.
const showEvery = 5

// Progress is a line with the progress of a command: overwritten on a terminal, and elsewhere
// written at some of the calls.
type Progress struct {
	out      io.Writer
	terminal bool
	calls    int
}

// NewProgress returns a Progress that writes to w. It is for one goroutine.
func NewProgress(w io.Writer) *Progress { return &Progress{out: w, terminal: IsTerminal(w)} }

// Say writes a line that stays.
func (p *Progress) Say(text string) { fmt.Fprintln(p.out, Lines(text)) }

// Show replaces the line.
func (p *Progress) Show(line string) {
	p.calls++
	line = Printable(line)
	switch {
	case p.terminal:
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	case p.calls%showEvery == 0:
		fmt.Fprintln(p.out, line)
	}
}

// End ends the line.
func (p *Progress) End() {
	if p.terminal && p.calls > 0 {
		fmt.Fprintln(p.out)
	}
}
