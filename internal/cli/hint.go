package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Every hint passes through typed before it is printed: the packages write hints without --config.

var (
	hintCommand = regexp.MustCompile(`(?:^|[\s;:(])postrider\b`)
	hintWord    = regexp.MustCompile(`^ ([A-Za-z0-9_-]+)`)
	plainPath   = regexp.MustCompile(`^[A-Za-z0-9_./@%+=:-]+$`)

	configOption = regexp.MustCompile(` --config (?:'(?:[^']|'\\'')*'|[A-Za-z0-9_./@%+=:-]+)`)
)

// typed adds --config of this command to the commands in a hint.
func (a *app) typed(hint string) string {
	if a.configPath == "" || a.root == nil {
		return hint
	}
	option := " --config " + a.configPath
	if !plainPath.MatchString(a.configPath) {
		option = " --config " + quoted(a.configPath)
	}
	var b strings.Builder
	for {
		at := hintCommand.FindStringIndex(hint)
		if at == nil {
			return b.String() + hint
		}
		n := a.commandLength(hint[at[1]:])
		b.WriteString(hint[:at[1]+n])
		hint = hint[at[1]+n:]
		if n > 0 && !strings.Contains(commandRest(hint), "--config") {
			b.WriteString(option)
		}
	}
}

// commandRest is the part of text before the next command or remark.
func commandRest(text string) string {
	if end := strings.IndexAny(text, ";\n#"); end >= 0 {
		return text[:end]
	}
	return text
}

// commandLength is the length of a command and its argument, a slot, at the beginning of text;
// zero if it is no command, or one that reads no configuration.
func (a *app) commandLength(text string) int {
	cmd, length := a.root, 0
	for {
		word := hintWord.FindStringSubmatch(text[length:])
		if word == nil {
			break
		}
		i := slices.IndexFunc(cmd.Commands(), func(sub *cobra.Command) bool {
			return sub.Name() == word[1]
		})
		if i < 0 {
			if strings.Contains(cmd.Use, "NAME") && !strings.HasPrefix(word[1], "-") {
				length += len(word[0])
			}
			break
		}
		cmd, length = cmd.Commands()[i], length+len(word[0])
	}
	switch cmd.Name() {
	case "version", "demo", "example", "schema", "completion", "import-debezium":
		return 0
	}
	return length
}

// quoted is a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
