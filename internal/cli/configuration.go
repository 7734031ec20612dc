package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/logging"
	"github.com/postrider/postrider/internal/terminal"
)

// keyAnnotation marks a flag that sets a configuration key, and says which.
const keyAnnotation = "postrider/key"

func (a *app) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.configPath, "config", "",
		"configuration `file` (default postrider.toml, then /etc/postrider/postrider.toml)")
	f.StringArrayVar(&a.set, "set", nil,
		"set a configuration key, as `key=value`; may be repeated")
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
		switch words := config.Accepted(key); {
		case words != nil:
			must(cmd.RegisterFlagCompletionFunc(name,
				cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
		case key == "slot.name":
			must(cmd.RegisterFlagCompletionFunc(name, a.slotNamesOfFlag))
		}
	}
}

// source is where the configuration of a command comes from.
func (a *app) source(cmd *cobra.Command) (config.Source, error) {
	src := config.Source{Path: a.configPath, Env: a.Env}
	for _, s := range a.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return src, exit.Usagef("--set %s: expected key=value", s)
		}
		src.Flags = append(src.Flags,
			config.Flag{Key: strings.TrimSpace(key), Value: value, Name: "--set"})
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if key := f.Annotations[keyAnnotation]; len(key) == 1 {
			src.Flags = append(src.Flags,
				config.Flag{Key: key[0], Value: f.Value.String(), Name: "--" + f.Name})
		}
	})
	return src, nil
}

// load reads the configuration and validates the named sections, all of them if none is named. A
// RunE returns its error as it is, and logs or prints the warnings of the result.
func (a *app) load(cmd *cobra.Command, sections ...string) (*config.Loaded, error) {
	src, err := a.source(cmd)
	if err != nil {
		return nil, err
	}
	l, err := config.LoadValid(src, sections...)
	if err != nil {
		return nil, exit.ConfigFailure(err)
	}
	return l, nil
}

// env looks a variable up, "" if it is not set.
func (a *app) env(name string) string {
	for _, v := range slices.Backward(a.Env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// environment is the environment of a relay in this process.
func (a *app) environment() daemon.Environment {
	return daemon.Environment{Stdout: a.Stdout, Stderr: a.Stderr, Getenv: a.env, Hint: a.typed}
}

// newLogger returns a logger to stderr.
func (a *app) newLogger(cfg config.Log) zerolog.Logger {
	log, _ := a.newLeveledLogger(cfg)
	return log
}

// newLeveledLogger returns a logger to stderr, and its level, which can change.
func (a *app) newLeveledLogger(cfg config.Log) (zerolog.Logger, *logging.Level) {
	level := new(logging.Level)
	level.Configure(cfg)
	return logging.New(a.Stderr, cfg, level, a.colour(a.Stderr)), level
}

// colour reports whether w gets colours.
func (a *app) colour(w io.Writer) bool { return terminal.Colour(w, a.env) }
