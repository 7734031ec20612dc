package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/slot"
)

// Hints are written in many places, for a configuration that is found by itself. Here they become
// what the user of this command has to type: every hint passes through typed before it is printed.

var (
	hintCommand = regexp.MustCompile(`(?:^|[\s;:(])postrider\b`)
	hintWord    = regexp.MustCompile(`^ ([A-Za-z0-9_-]+)`)
	plainPath   = regexp.MustCompile(`^[A-Za-z0-9_./@%+=:-]+$`)

	configOption = regexp.MustCompile(` --config (?:'(?:[^']|'\\'')*'|[A-Za-z0-9_./@%+=:-]+)`)
)

// typed has the commands in a hint read the file that this command was told to read.
func (a *app) typed(hint string) string {
	if a.configPath == "" || a.root == nil {
		return hint
	}
	option := " --config " + a.configPath
	if !plainPath.MatchString(a.configPath) {
		option = " --config '" + strings.ReplaceAll(a.configPath, "'", `'\''`) + "'"
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

// commandRest is what belongs to a command behind its name: up to the next command or remark.
func commandRest(text string) string {
	if end := strings.IndexAny(text, ";\n#"); end >= 0 {
		return text[:end]
	}
	return text
}

// commandLength is the length of a command's name and of its argument, a slot, in the words of text; zero
// if there is no such command, or one that reads no configuration.
func (a *app) commandLength(text string) int {
	cmd, length := a.root, 0
	for {
		word := hintWord.FindStringSubmatch(text[length:])
		if word == nil {
			break
		}
		sub := subcommand(cmd, word[1])
		if sub == nil {
			if strings.Contains(cmd.Use, "NAME") && !strings.HasPrefix(word[1], "-") {
				length += len(word[0])
			}
			break
		}
		cmd, length = sub, length+len(word[0])
	}
	switch cmd.Name() {
	case "version", "demo", "example", "schema", "completion", "import-debezium":
		return 0
	}
	return length
}

func subcommand(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

// typedFindings is typed for each hint of check.
func (a *app) typedFindings(findings []slot.Finding) []slot.Finding {
	for i := range findings {
		findings[i].Fix = a.typed(findings[i].Fix)
	}
	return findings
}
