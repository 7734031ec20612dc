// Package cli is the command line. A command parses, calls and prints; what it does is in other
// packages.
//
//	root.go              Main, the list of commands, and version
//	frame.go             the configuration and the connection of a command
//	flags.go             flags of several commands, and their completion
//	output.go            results, progress, confirmations, and hints as they have to be typed
//	run.go               run
//	demo.go              demo
//	bench.go             bench
//	init.go              init
//	check.go             check
//	status.go            status
//	pause.go             pause and resume
//	slot.go              slot list, show, create and drop
//	slotadvance.go       slot advance, with --past
//	slotadopt.go         slot adopt
//	recover.go           recover
//	prune.go             prune
//	tail.go              tail
//	deadletter.go        deadletter list and show
//	deadletterredrive.go deadletter redrive and discard
//	audit.go             audit and audit compare
//	trace.go             trace
//	alerts.go            alerts test
//	importdebezium.go    import-debezium
//	config.go            config print, validate, example and schema
//	healthcheck.go       healthcheck
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
)

// Process is the process that a command runs in. Tests replace it with buffers.
type Process struct {
	Args   []string // without the program's name
	Env    []string // "NAME=value", as os.Environ returns it
	Stdin  io.Reader
	Stdout io.Writer // results
	Stderr io.Writer // logs, progress and errors
	// Example is the text of config.example.toml, the one description of the keys.
	Example string
}

// Main runs one command line and returns the exit code. It blocks until the command has ended.
func Main(p Process) int {
	a := &app{Process: p, descriptions: config.Descriptions(p.Example)}
	err := newRoot(a).ExecuteContext(context.Background())
	f := (*exit.Error)(nil)
	switch {
	case err == nil:
		return exit.OK
	case a.command == nil:
		f = &exit.Error{Code: exit.Usage, Err: err}
		err = f
	case !errors.As(err, &f):
		f = exit.Explain(err)
		err = f
	}
	f.Next = a.typed(f.Next)
	return exit.Print(p.Stderr, err)
}

// app is what the commands of one process share.
type app struct {
	Process
	descriptions map[string]string // of the keys, by their full names
	configPath   string            // --config
	set          []string          // --set key=value
	json, yes    bool              // --json and --yes, of commands that have them
	root         *cobra.Command
	finding      sync.Mutex     // guards Find of root, which writes to it
	command      *cobra.Command // whose RunE began; nil: an error is one of usage
}

type runFunc = func(*cobra.Command, []string) error

// The help has the commands in the order of newRoot. This setting of cobra is for the whole
// process.
func init() { cobra.EnableCommandSorting = false }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "postrider",
		Short: "Relay a PostgreSQL outbox table to Kafka",
		Long: `postrider streams the WAL of PostgreSQL, turns rows inserted into an outbox table
into messages the way Debezium's Outbox Event Router does, and publishes them to Kafka. A position
is confirmed to PostgreSQL only after the broker has acknowledged everything up to it.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	a.root = root
	root.SuggestionsMinimumDistance = 2
	// Not cobra's own flag: its template has the linker keep every method of every type, 6 MB of
	// them.
	showVersion := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*showVersion {
			return cmd.Help()
		}
		return a.printf("%v\n", build.Current())
	}
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee '%s --help'.", err, cmd.CommandPath())
	})
	a.globalFlags(root)
	// In the order of the help.
	root.AddCommand(newRun(a), newDemo(a), newBench(a), newInit(a), newCheck(a), newStatus(a),
		newPause(a), newResume(a), newSlot(a), newRecover(a), newPrune(a), newTail(a),
		newDeadLetter(a), newAudit(a), newTrace(a), newAlerts(a), newImportDebezium(a), newConfig(a),
		newHealthcheck(a), newVersion(a))
	a.prepare(root)
	return root
}

// group is a command that only has others below it.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(subs...)
	return cmd
}

// prepare has every command below cmd refuse unknown subcommands and arguments, and note that its
// RunE began.
func (a *app) prepare(cmd *cobra.Command) {
	if cmd.HasParent() && cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = knownSubcommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if cmd.HasParent() && cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.command = cmd
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		a.prepare(sub)
	}
}

// knownSubcommand refuses `postrider slot lits`, for which cobra would print the help and exit
// with 0.
func knownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "\n\nDid you mean this?\n\t" + strings.Join(near, "\n\t")
	}
	return errors.New(text)
}

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return json.NewEncoder(a.Stdout).Encode(build.Current())
			}
			return a.printf("%v\n", build.Current())
		},
	}
	a.jsonFlag(cmd, "")
	return cmd
}
