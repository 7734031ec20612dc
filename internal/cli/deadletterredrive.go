package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/sink/kafka/producer"
)

// redriveWait is how long the relay may take to report that a key is no longer parked. It reads
// the topic all the time.
const redriveWait = 10 * time.Second

// resolution is a command that chooses dead letters and resolves them.
type resolution struct {
	app               *app
	word              string // redrive or discard
	past              string // redriven or discarded
	filter            letterFilter
	all, yes, dryRun  bool
	changed, redrives bool
	effect            func(letters string) string // for the confirmation
	resolve           func(context.Context, resolving) error
}

// resolving is what a resolution works on.
type resolving struct {
	cfg     config.Config
	store   *producer.DeadLetters
	index   *deadletter.Index
	letters []*deadletter.Entry
}

func newDeadLetterRedrive(a *app) *cobra.Command {
	r := &resolution{
		app: a, word: "redrive", past: "redriven", redrives: true,
		effect: func(letters string) string { return "publishes " + letters },
	}
	r.resolve = func(ctx context.Context, x resolving) error {
		again := daemon.NewRerouter(a.environment(), x.cfg, a.newLogger(x.cfg.Log))
		defer again.Close()
		redriver := deadletter.Redriver{
			Topic: x.cfg.DeadLetter.Topic, Store: x.store, Route: again.Route, Row: again.Row,
			Who: whoami(), Changed: r.changed, Wait: redriveWait, Log: a.newLogger(x.cfg.Log),
		}
		out, err := redriver.Redrive(ctx, x.index, x.letters)
		return a.redriven(out, err)
	}
	cmd := r.command("Publish dead letters where they belong", `redrive publishes dead letters to
the topics that they belong to, and records who did. Rows that could not be routed are routed
again with the configuration as it is now; those that were too large are read from the table,
which takes the right to SELECT.

The letters of a parked key are published in order, also those that come meanwhile, until the relay
publishes the rows of the key itself again. One that still cannot be delivered stops its key there.
Letters of keys that are not parked come behind what was published since.

Publishing and recording are one Kafka transaction: a consumer that reads committed records gets
each once, also if redrive is killed and run again. A letter that was redriven is not redriven
again. A second redrive ends the first one.`)
	cmd.Flags().BoolVar(&r.changed, "changed", false,
		"publish a row that was too large even if it is no longer what it was when it was "+
			"committed")
	return cmd
}

func newDeadLetterDiscard(a *app) *cobra.Command {
	r := &resolution{
		app: a, word: "discard", past: "discarded",
		effect: func(letters string) string {
			return "lets " + letters + " go: consumers never get them"
		},
		resolve: func(ctx context.Context, x resolving) error {
			redriver := deadletter.Redriver{
				Topic: x.cfg.DeadLetter.Topic, Store: x.store, Who: whoami(),
				Log: a.newLogger(x.cfg.Log),
			}
			done, err := redriver.Discard(ctx, x.letters)
			if len(done) > 0 {
				fmt.Fprintf(a.Stdout, "%s discarded\n", lettersText(done))
			}
			return err
		},
	}
	return r.command("Let dead letters go: consumers never get them", `discard records that dead
letters are not to be published, and who decided that. They stay in the topic. A key is no longer
parked when none of its letters is open.`)
}

func (r *resolution) command(short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   r.word + " (ID... | --key KEY | --all | other filters)",
		Short: short, Long: long,
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.app.withDeadLetters(cmd, r.redrives && !r.dryRun, func(
				ctx context.Context, cfg config.Config, store *producer.DeadLetters,
				x *deadletter.Index,
			) error {
				letters, err := chosenLetters(x, args, r.all, &r.filter)
				if err != nil {
					return err
				}
				return r.run(ctx, resolving{cfg, store, x, letters})
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.all, "all", false, "all that are open")
	flags.BoolVar(&r.yes, "yes", false, "do not ask")
	flags.BoolVar(&r.dryRun, "dry-run", false,
		"list what would be "+r.past+", and change nothing")
	r.filter.flags(cmd)
	return cmd
}

func (r *resolution) run(ctx context.Context, x resolving) error {
	switch {
	case len(x.letters) == 0:
		_, err := fmt.Fprintln(r.app.Stdout, "nothing to "+r.word)
		return err
	case r.dryRun:
		return writeLetters(r.app.Stdout, x.letters, false)
	}
	effect := r.effect(lettersText(x.letters))
	if err := r.app.confirmWord(r.word, r.word, "answer", effect, r.yes); err != nil {
		return err
	}
	return r.resolve(ctx, x)
}

// chosenLetters are the chosen letters that are open: resolving a letter again does nothing.
func chosenLetters(x *deadletter.Index, ids []string, all bool,
	chosen *letterFilter) ([]*deadletter.Entry, error) {
	ways := 0
	for _, used := range []bool{len(ids) > 0, all, chosen.given()} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return nil, exit.Usagef("say which: IDs, or --all, or filters like --key")
	}
	if len(ids) == 0 {
		f, err := chosen.filter()
		return x.List(f), err
	}
	var letters []*deadletter.Entry
	for _, id := range ids {
		e, err := x.Find(id)
		if err != nil {
			return nil, exit.Usagef("%v", err)
		}
		if e.Open() {
			letters = append(letters, e)
		}
	}
	return letters, nil
}

func lettersText(letters []*deadletter.Entry) string {
	return quantity(len(letters), "dead letter")
}

// redriven prints the outcome.
func (a *app) redriven(out deadletter.Outcome, err error) error {
	if len(out.Redriven) > 0 {
		fmt.Fprintf(a.Stdout, "%s redriven\n", lettersText(out.Redriven))
	}
	for _, at := range out.Unparked {
		fmt.Fprintf(a.Stdout, "key %s of topic %s is no longer parked\n",
			terminal.Printable(at.Key), terminal.Printable(at.Topic))
	}
	for _, at := range out.Waiting {
		a.progress("key %s of topic %s: the relay has not reported that it publishes it again. "+
			"If it runs it may be behind: list after a while, and redrive what has come; "+
			"else it goes on when it is started",
			terminal.Printable(at.Key), terminal.Printable(at.Topic))
	}
	for _, f := range out.Failed {
		a.progress("dead letter %s not redriven: %s", f.Entry.ID,
			terminal.Printable(f.Err.Error()))
		if f.Behind > 0 {
			a.progress("  nor the %d behind it, of the same key", f.Behind)
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
			shellWord(f.Entry.Key)
		if !slices.Contains(next, line) {
			next = append(next, line)
		}
	}
	if wrong {
		next = append(next,
			"correct what is wrong, or let them go: postrider deadletter discard ID")
	}
	return strings.Join(next, "\n")
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9._:@%+/][a-zA-Z0-9._:@%+/-]*$`)

// shellWord is a key as it is typed; KEY if it cannot be.
func shellWord(key []byte) string {
	text := string(key)
	switch {
	case plainWord.MatchString(text):
		return text
	case terminal.Printable(text) != text:
		return "KEY"
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
