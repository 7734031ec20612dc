package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
)

const (
	yesHelp  = "do not ask for the slot's name"
	jsonHelp = "print one JSON object"
)

// printJSON writes a result as indented JSON, one object to a call.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printMembers writes the members of a JSON object as a table, in their order. row writes one of
// them as cells that end in tabs and lines.
func printMembers(w io.Writer, v any, row func(t io.Writer, name string, value any)) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if _, err := decoder.Token(); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value any
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		row(t, fmt.Sprint(name), value)
	}
	return t.Flush()
}

// progress writes a line for people to stderr.
func (a *app) progress(format string, args ...any) {
	fmt.Fprintln(a.Stderr, terminal.OneLine(fmt.Sprintf(format, args...)))
}

// warn prints the warnings about a configuration, for commands without a log.
func (a *app) warn(l *config.Loaded) {
	for _, w := range l.Warnings {
		fmt.Fprintf(a.Stderr, "postrider: warning: %s\n", w)
	}
}

// confirm has the name of the slot typed before what the command does, unless yes is set.
func (a *app) confirm(name, what string, yes bool) error {
	return a.confirmWord(name, "the slot's name", "name", what, yes)
}

// confirmWord has word typed, which the prompt calls named; a missing one is called missing.
func (a *app) confirmWord(word, named, missing, what string, yes bool) error {
	if yes {
		return nil
	}
	fmt.Fprintf(a.Stderr, "This %s.\nType %s to go on: ", what, named)
	line, err := bufio.NewReader(a.Stdin).ReadString('\n')
	line = strings.TrimSpace(line)
	switch {
	case line == word:
		return nil
	case line == "" && errors.Is(err, io.EOF):
		return exit.Usagef("nothing was changed: no %s on standard input; "+
			"without a terminal add --yes", missing)
	}
	return exit.Usagef("nothing was changed: that is not %s", word)
}

// explained gives an error an exit code and advice, unless it has them.
func explained(err error) error {
	if f := (*exit.Error)(nil); err == nil || errors.As(err, &f) {
		return err
	}
	return exit.Explain(err)
}

// quantity is a number of things: 1 row, 2 rows.
func quantity[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// timeFlag is the value of a flag with a time, or with a duration before now; zero without a
// value.
func timeFlag(cmd *cobra.Command, flag string, now time.Time) (time.Time, error) {
	text, err := cmd.Flags().GetString(flag)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, exit.Usagef("--%s %s: neither a duration (1h30m) nor a time "+
			"(2026-01-31T12:00:00Z)",
			flag, text)
	}
	return at, nil
}
