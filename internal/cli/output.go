package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
)

func (a *app) jsonFlag(cmd *cobra.Command, help string) {
	cmd.Flags().BoolVar(&a.json, "json", false, cmp.Or(help, "print one JSON object"))
}

func (a *app) yesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask for the slot's name")
}

// printf writes a result for people, which cannot command their terminal.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprint(a.Stdout, terminal.Lines(fmt.Sprintf(format, args...)))
	return err
}

// print writes a result as indented JSON with --json, and otherwise with text, which cannot
// command the terminal of the reader.
func (a *app) print(v any, text func(w io.Writer) error) error {
	return a.printColoured(v, func(w io.Writer) error {
		var b strings.Builder
		err := text(&b)
		_, writeErr := fmt.Fprint(w, terminal.Lines(b.String()))
		return cmp.Or(err, writeErr)
	})
}

// printColoured is print with a text that has its own colours, and makes the rest of it printable.
func (a *app) printColoured(v any, text func(w io.Writer) error) error {
	if a.json {
		return a.printJSON(v)
	}
	return text(a.Stdout)
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(terminal.JSON(a.Stdout))
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// writeTable writes lines of cells in columns. No cell goes on in another line or column.
func writeTable(w io.Writer, lines ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, cells := range lines {
		shown := make([]string, len(cells))
		for i, cell := range cells {
			shown[i] = terminal.Printable(cell)
		}
		fmt.Fprintln(t, strings.Join(shown, "\t"))
	}
	return t.Flush()
}

// writeMembers writes the members of a JSON object as a table, in their order. row makes the lines
// of one of them.
func writeMembers(w io.Writer, v any, row func(name string, value any) [][]string) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if _, err := decoder.Token(); err != nil {
		return err
	}
	var lines [][]string
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value any
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		lines = append(lines, row(fmt.Sprint(name), value)...)
	}
	return writeTable(w, lines...)
}

// progress writes a line for people to stderr.
func (a *app) progress(format string, args ...any) {
	fmt.Fprintln(a.Stderr, terminal.OneLine(fmt.Sprintf(format, args...)))
}

// warn prints warnings, for commands without a log.
func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(a.Stderr, "postrider: warning: %s\n", terminal.Indent(w))
	}
}

// confirm asks the user to type the name of the slot before the command does what, unless --yes is
// given.
func (a *app) confirm(name, what string) error {
	return a.confirmWord(name, "the slot's name", "name", what)
}

// confirmWord is confirm with any word. named is how the prompt calls it, missing how the error
// does if nothing was typed.
func (a *app) confirmWord(word, named, missing, what string) error {
	if a.yes {
		return nil
	}
	fmt.Fprintf(a.Stderr, "This %s.\nType %s to go on: ", terminal.Lines(what), named)
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

// quantity returns a number with its noun: 1 row, 2 rows.
func quantity[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// statusUnless ends a command with a code and no message unless its result is good.
func statusUnless(good bool, code int) error {
	if good {
		return nil
	}
	return exit.Status(code)
}

var (
	// hintCommand is a command in a hint, up to the first thing that is not a word.
	hintCommand = regexp.MustCompile(`(?:^|[\s;:(])postrider(?: [A-Za-z0-9_-]+)+`)
	// ownOptions is what typed adds.
	ownOptions = regexp.MustCompile(`^(?: --(?:config|set) ` +
		`(?:'(?:[^']|'\\'')*'|[A-Za-z0-9_./@%+=:-]+))+`)
)

// typed adds the options that this command has its configuration from to the commands in a hint,
// which the packages write without them: --config, and --set for each setting, see options.
// Every hint passes through typed before it is printed. It is safe for concurrent use: the watch
// and each request to the listener have hints.
func (a *app) typed(hint string) string {
	return a.withOptions(hint, a.options(), false)
}

// retyped is typed for a hint of the daemon, which has the options of the daemon: those of a
// command with --config replace them.
func (a *app) retyped(hint string) string {
	return a.withOptions(hint, a.options(), a.configPath != "")
}

// typedForRelay is typed for a hint of a command with another login than the relay: it leaves out
// how this one connects.
func (a *app) typedForRelay(hint string) string {
	return a.withOptions(hint, a.options("postgres."), false)
}

func (a *app) withOptions(hint, options string, replace bool) string {
	if options == "" || a.root == nil {
		return hint
	}
	var b strings.Builder
	done := 0
	for _, at := range hintCommand.FindAllStringIndex(hint, -1) {
		words := strings.Split(hint[at[0]:at[1]], " ")
		first := 1 + slices.IndexFunc(words, func(w string) bool {
			return strings.HasSuffix(w, "postrider")
		})
		a.finding.Lock()
		cmd, rest, err := a.root.Find(words[first:])
		a.finding.Unlock()
		end := len(words) - len(rest) // of the command and its argument, a slot
		if err != nil || end == first || slices.Contains(withoutConfiguration, cmd.Name()) {
			continue
		}
		if strings.Contains(cmd.Use, "NAME") && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			end++
		}
		place := at[0] + len(strings.Join(words[:end], " "))
		given := ownOptions.FindString(hint[place:])
		if !replace {
			if strings.Contains(given, " --config ") || strings.HasPrefix(given, options) {
				continue
			}
			given = ""
		}
		b.WriteString(hint[done:place] + options)
		done = place + len(given)
	}
	return b.String() + hint[done:]
}

// options lead another command to the configuration of this one, without the keys that begin with
// one of without. A value that is not shown has a mark in its place: without the setting the
// command would go on with another value of the file, such as another database.
func (a *app) options(without ...string) string {
	options := ""
	if a.configPath != "" {
		options = " --config " + terminal.ShellWord(a.configPath)
	}
	if a.command == nil {
		return options
	}
	flags, _ := a.settings(a.command) // a wrong one is no setting
	for _, f := range flags {
		left := slices.ContainsFunc(without, func(s string) bool { return strings.HasPrefix(f.Key, s) })
		if shown, known := config.InCommand(f.Key, f.Value); known && !left {
			options += " --set " + terminal.ShellWord(f.Key+"="+shown)
		}
	}
	return options
}

var withoutConfiguration = []string{"version", "demo", "example", "schema", "completion",
	"import-debezium"}
