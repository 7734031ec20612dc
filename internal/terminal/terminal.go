// Package terminal writes for people: colours where they are wanted, text without control
// characters, and a line with the progress of a command.
package terminal

import (
	"fmt"
	"io"
	"os"
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

// OneLine replaces each run of white space, line ends too, by one space.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Printable removes the control characters of a text that comes from a row.
func Printable(s string) string {
	if !utf8.ValidString(s) {
		return fmt.Sprintf("%q", s)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
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

// IndentBy puts by in front of each line but the first, and drops line ends at the end.
func IndentBy(s, by string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+by)
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
func (p *Progress) Say(text string) { fmt.Fprintln(p.out, text) }

// Show replaces the line.
func (p *Progress) Show(line string) {
	p.calls++
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
