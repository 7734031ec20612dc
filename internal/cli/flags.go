package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
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
	descriptions := config.Descriptions(a.Example)
	for _, key := range keys {
		name := strings.NewReplacer(".", "-", "_", "-").Replace(key)
		help, _, _ := strings.Cut(descriptions[key], ". ")
		cmd.Flags().String(name, "", fmt.Sprintf("%s (%s)", strings.TrimSuffix(help, "."), key))
		cmd.Flags().Lookup(name).Annotations = map[string][]string{keyAnnotation: {key}}
		if words := config.Accepted(key); words != nil {
			completeWords(cmd, name, words)
		} else if key == "slot.name" {
			must(cmd.RegisterFlagCompletionFunc(name, a.slotNames))
		}
	}
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
			"(2026-01-31T12:00:00Z)", flag, text)
	}
	return at, nil
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
	descriptions := config.Descriptions(a.Example)
	for _, name := range config.Names() {
		help, _, _ := strings.Cut(descriptions[name], ". ")
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
