// Package terminal writes for people: colours where they are wanted, text without control characters, and a line that says how far something is.
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

func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// colour reports whether w gets colours and lines that overwrite themselves.
func Colour(w io.Writer, getenv func(string) string) bool {
	return IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// printable keeps what came from a row from doing something to the terminal.
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

func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func Indent(s string) string { return IndentBy(s, "  ") }

func IndentBy(s, by string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+by)
}

// showEvery is how many calls of a progress lie between two lines where no line can be overwritten.
const showEvery = 5

// progress is a line that says how far a command is: overwritten on a terminal, written now and then elsewhere.
type Progress struct {
	out      io.Writer
	terminal bool
	calls    int
}

func NewProgress(w io.Writer) *Progress { return &Progress{out: w, terminal: IsTerminal(w)} }

// say writes a line that stays.
func (p *Progress) Say(text string) { fmt.Fprintln(p.out, text) }

// show replaces the line.
func (p *Progress) Show(line string) {
	p.calls++
	switch {
	case p.terminal:
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	case p.calls%showEvery == 0:
		fmt.Fprintln(p.out, line)
	}
}

// end leaves the line.
func (p *Progress) End() {
	if p.terminal && p.calls > 0 {
		fmt.Fprintln(p.out)
	}
}
