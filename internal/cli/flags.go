package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// keyAnnotation marks a flag that sets a configuration key with the name of the key.
const keyAnnotation = "postrider/key"

func (a *app) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.configPath, "config", "",
		"configuration `file` (default postrider.toml, then /etc/postrider/postrider.toml)")
	f.StringArrayVar(&a.set, "set", nil,
		"set a configuration key, as `key=value`; may be repeated")
	must(root.RegisterFlagCompletionFunc("set", a.completeSet))
	must(root.MarkPersistentFlagFilename("config", "toml"))
}

// keyFlags gives a command a flag for each of the keys, named after it: slot.name is --slot-name.
// The help text is the first sentence of what config.example.toml says about the key.
func (a *app) keyFlags(cmd *cobra.Command, keys ...string) {
	for _, key := range keys {
		name := strings.NewReplacer(".", "-", "_", "-").Replace(key)
		help, _, _ := strings.Cut(a.descriptions[key], ". ")
		cmd.Flags().String(name, "", fmt.Sprintf("%s (%s)", strings.TrimSuffix(help, "."), key))
		cmd.Flags().Lookup(name).Annotations = map[string][]string{keyAnnotation: {key}}
		if words := config.Accepted(key); words != nil {
			completeWords(cmd, name, words)
		} else if key == "slot.name" {
			must(cmd.RegisterFlagCompletionFunc(name, a.slotNames))
		}
	}
}

// parsed is a flag whose text is parsed as it is given. An empty text is no value.
type parsed struct {
	text  string
	parse func(text string) error
}

func (p *parsed) String() string { return p.text }

func (p *parsed) Type() string { return "string" }

func (p *parsed) Set(text string) error {
	p.text = text
	if text == "" {
		return nil
	}
	return p.parse(text)
}

// parsedFlag gives a command a flag with a default. Its error is one of usage.
func parsedFlag(cmd *cobra.Command, name, value, help string, parse func(text string) error) {
	cmd.Flags().Var(&parsed{value, parse}, name, help)
}

// timeFlag gives a command a flag with a time, or with a duration before now.
func timeFlag(cmd *cobra.Command, at *time.Time, name, help string) {
	parsedFlag(cmd, name, "", help, func(text string) (err error) {
		if d, err := time.ParseDuration(text); err == nil {
			*at = time.Now().Add(-d)
			return nil
		}
		if *at, err = time.Parse(time.RFC3339, text); err != nil {
			return errors.New("neither a duration (1h30m) nor a time (2026-01-31T12:00:00Z)")
		}
		return nil
	})
}

// wordFlag gives a command a flag that takes one of some words.
func wordFlag(cmd *cobra.Command, into *string, name, value, help string, words []string) {
	*into = value
	last := len(words) - 1
	parsedFlag(cmd, name, value, help, func(text string) error {
		if *into = text; !slices.Contains(words, text) {
			return fmt.Errorf("expected %s or %s", strings.Join(words[:last], ", "), words[last])
		}
		return nil
	})
	completeWords(cmd, name, words)
}

// completeSet completes the value of --set. The completion command is cobra's.
func (a *app) completeSet(
	_ *cobra.Command, _ []string, begun string,
) (out []string, directive cobra.ShellCompDirective) {
	if key, _, found := strings.Cut(begun, "="); found {
		for _, word := range config.Accepted(key) {
			out = append(out, key+"="+word)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range config.Names() {
		help, _, _ := strings.Cut(a.descriptions[name], ". ")
		out = append(out, name+"=\t"+help)
	}
	return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

func completeWords(cmd *cobra.Command, flag string, words []string) {
	must(cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// completeNothing keeps the shell from completing the flags with names of files.
func completeNothing(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
}

// slotArgument completes the one argument of a command with the slots of the server.
func (a *app) slotArgument(cmd *cobra.Command, args []string, begun string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.slotNames(cmd, nil, begun)
}

// slotNames are the slots of the server. If the server is not reachable there are none: a shell
// has no place for an error.
func (a *app) slotNames(cmd *cobra.Command, _ []string, _ string) (names []string,
	directive cobra.ShellCompDirective) {
	directive = cobra.ShellCompDirectiveNoFileComp
	l, err := a.load(cmd, "postgres")
	if err != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := postgres.Connect(ctx, l.Config.Postgres)
	if err != nil {
		return nil, directive
	}
	defer postgres.Close(conn)
	slots, _ := slot.List(ctx, conn)
	for _, s := range slots {
		state := "inactive"
		if s.Active {
			state = "active"
		}
		names = append(names, s.Name+"\t"+state)
	}
	return names, directive
}

// must panics if a flag does not exist or has a completion already.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
