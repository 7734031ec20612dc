package cli

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
)

// redriveWait is how long the relay may take to report that a key is no longer parked. It reads
// the topic all the time.
const redriveWait = 10 * time.Second

// resolution is a command that chooses dead letters and resolves them.
type resolution struct {
	redrives    bool   // false: it discards
	word, past  string // redrive, redriven
	effect      string // for the confirmation, with a %s for the letters
	filter      *letterFilter
	all, dryRun bool
	changed     bool
}

func newDeadLetterRedrive(a *app) *cobra.Command {
	r := &resolution{redrives: true, word: "redrive", past: "redriven", effect: "publishes %s"}
	cmd := r.command(a)
	cmd.Short = "Publish dead letters where they belong"
	cmd.Long = `redrive publishes dead letters to
the topics that they belong to, and records who did. Rows that could not be routed are routed
again with the configuration as it is now; those that were too large are read from the table,
which takes the right to SELECT.

The dead letters of a parked key are published in order, also those that come meanwhile, until the
relay publishes the rows of the key itself again. One that still cannot be delivered stops its key
there. Dead letters of keys that are not parked come after what was published since.

Publishing and recording are one Kafka transaction: a consumer that reads committed records gets
each once, also if redrive is killed and run again. A dead letter that was redriven is not redriven
again. A redrive or discard that starts ends one that is under way.`
	cmd.Flags().BoolVar(&r.changed, "changed", false,
		"publish a row that was too large even if it is no longer what it was when it was "+
			"committed")
	return cmd
}

func newDeadLetterDiscard(a *app) *cobra.Command {
	r := &resolution{word: "discard", past: "discarded",
		effect: "discards %s: consumers never get them"}
	cmd := r.command(a)
	cmd.Short = "Discard dead letters: consumers never get them"
	cmd.Long = `discard records that dead
letters are not to be published, and who decided that. They stay in the topic. A key is no longer
parked when none of its dead letters is open. A redrive or discard that starts ends one that is
under way.`
	return cmd
}

func (r *resolution) command(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:  r.word + " (ID... | --key KEY | --all | other filters)",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var sections []string
			if r.redrives && !r.dryRun {
				sections = []string{"postgres", "replication", "router", "format", "registry"}
			}
			return a.withLetters(cmd, !r.dryRun, sections, func(x *letters) error {
				return r.run(x, args)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.all, "all", false, "all that are open")
	flags.BoolVar(&a.yes, "yes", false, "do not ask")
	flags.BoolVar(&r.dryRun, "dry-run", false,
		"list what would be "+r.past+", and change nothing")
	r.filter = newLetterFilter(cmd)
	return cmd
}

func (r *resolution) run(x *letters, ids []string) error {
	chosen, err := r.choose(x.index, ids)
	switch {
	case err != nil:
		return err
	case len(chosen) == 0:
		return x.printf("nothing to %s\n", r.word)
	case r.dryRun:
		return writeLetters(x.Stdout, chosen, false)
	}
	effect := fmt.Sprintf(r.effect, lettersText(chosen))
	if err := x.confirmWord(r.word, r.word, "answer", effect); err != nil {
		return err
	}
	redriver := deadletter.Redriver{Topic: x.cfg.DeadLetter.Topic, Store: x.store, Who: whoami(),
		Changed: r.changed, Wait: redriveWait, Log: x.newLogger(x.cfg.Log)}
	if r.redrives {
		again := daemon.NewRerouter(x.environment(), x.cfg, redriver.Log)
		defer again.Close()
		redriver.Route, redriver.Row, redriver.Limiter = again.Route, again.Row, again.Limiter()
		return x.redriven(redriver.Redrive(x.ctx, x.index, chosen))
	}
	done, err := redriver.Discard(x.ctx, chosen)
	if len(done) > 0 {
		fmt.Fprintf(x.Stdout, "%s discarded\n", lettersText(done))
	}
	return err
}

// choose returns the letters that ids or the flags choose, and that are open: resolving a letter
// again does nothing.
func (r *resolution) choose(index *deadletter.Index, ids []string) ([]*deadletter.Entry, error) {
	ways := 0
	for _, used := range []bool{len(ids) > 0, r.all, r.filter.given()} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return nil, exit.Usagef("say which: IDs, or --all, or filters like --key")
	}
	if len(ids) == 0 {
		return index.List(r.filter.filter()), nil
	}
	chosen, err := index.FindOpen(ids)
	if err != nil {
		return nil, exit.Usagef("%v", err)
	}
	return chosen, nil
}

func lettersText(letters []*deadletter.Entry) string {
	return quantity(len(letters), "dead letter")
}

// redriven prints the outcome of a redrive, and returns an error unless all letters were redriven.
func (x *letters) redriven(out deadletter.Outcome, err error) error {
	if len(out.Redriven) > 0 {
		fmt.Fprintf(x.Stdout, "%s redriven\n", lettersText(out.Redriven))
	}
	for _, at := range out.Unparked {
		fmt.Fprintf(x.Stdout, "key %s of topic %s is no longer parked\n",
			terminal.Printable(at.Key), terminal.Printable(at.Topic))
	}
	for _, at := range out.Waiting {
		x.progress("key %s of topic %s: the relay has not reported that it publishes it again. "+
			"If it runs it may be behind: list after a while, and redrive what has come; "+
			"else it goes on when it is started",
			terminal.Printable(at.Key), terminal.Printable(at.Topic))
	}
	for _, f := range out.Failed {
		x.progress("dead letter %s not redriven: %s", f.Entry.ID,
			terminal.Printable(f.Err.Error()))
		if f.Behind > 0 {
			x.progress("  nor the %d behind it, of the same key", f.Behind)
		}
	}
	switch {
	case err != nil:
		f := exit.Explain(err)
		f.Next = strings.TrimSpace(f.Next +
			"\nrun it again: what was redriven is not redriven twice")
		return f
	case len(out.Failed) > 0:
		return &exit.Error{
			Code: exit.Runtime, Next: afterFailures(out.Failed),
			Err: fmt.Errorf("%s not redriven", quantity(len(out.Failed), "dead letter")),
		}
	}
	return nil
}

// afterFailures is what to type next. A letter behind another of its key waits for its turn only,
// and is not to be discarded.
func afterFailures(failed []deadletter.Failure) string {
	var next []string
	wrong := false
	for _, f := range failed {
		if !errors.Is(f.Err, deadletter.ErrNotFirst) {
			wrong = true
			continue
		}
		line := "all of the key, in order: postrider deadletter redrive --key " +
			keyWord(f.Entry.Key)
		if !slices.Contains(next, line) {
			next = append(next, line)
		}
	}
	if wrong {
		next = append(next,
			"correct what is wrong, or discard them: postrider deadletter discard ID")
	}
	return strings.Join(next, "\n")
}

// keyWord is a key as it is typed; KEY if it cannot be.
func keyWord(key []byte) string {
	text := string(key)
	if terminal.Printable(text) != text {
		return "KEY"
	}
	return terminal.ShellWord(text)
}

// whoami returns who redrives or discards, as user@host.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
