package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
)

func newDeadLetter(a *app) *cobra.Command {
	cmd := group("deadletter", "List, show, redrive and discard dead letters",
		newDeadLetterList(a), newDeadLetterShow(a), newDeadLetterRedrive(a), newDeadLetterDiscard(a))
	cmd.Aliases = []string{"dlq"}
	cmd.Long = `deadletter looks after rows that could not be delivered and that the policies of
[deadletter] put into a topic of their own. It reads and writes that topic alone, but for redrive,
which publishes; the relay may run meanwhile.`
	return cmd
}

// letters is a call of a command with the dead-letter topic.
type letters struct {
	*app
	ctx context.Context
	cfg config.Config
	// store is nil if there is no topic and no policy needs one; the index is empty then.
	store *producer.DeadLetters
	index *deadletter.Index
}

// withLetters runs f with the dead-letter topic, and with a configuration that is valid in these
// sections too. If f resolves dead letters, the topic is open for transactions, which ends every
// other process that resolves some: a dead letter must not be both redriven and discarded.
func (a *app) withLetters(cmd *cobra.Command, resolves bool, sections []string,
	f func(x *letters) error) error {
	l, err := a.load(cmd, append([]string{"sink", "deadletter", "log"}, sections...)...)
	if err != nil {
		return err
	}
	a.warn(l.Warnings)
	cfg := l.Config
	if cfg.Sink.Kind != config.SinkKafka {
		return exit.Usagef("sink.kind is %q: dead letters are kept by %s alone", cfg.Sink.Kind,
			config.SinkKafka)
	}
	id := ""
	if resolves {
		id = "postrider.deadletter." + cfg.DeadLetter.Topic
	}
	cfg.Sink.Kafka.Topics.Create = false // the commands create no topic
	x := &letters{app: a, ctx: cmd.Context(), cfg: cfg, index: deadletter.NewIndex()}
	x.store, err = producer.OpenDeadLetters(x.ctx, cfg.Sink.Kafka, cfg.DeadLetter.Topic, id,
		a.newLogger(cfg.Log))
	switch {
	case err == nil:
		defer x.store.Close()
		if x.index, err = deadletter.Read(x.ctx, x.store); err != nil {
			return err
		}
	case errors.Is(err, sink.ErrUnknownTopic) && !cfg.DeadLetter.On():
		a.progress("topic %s does not exist, and no policy of [deadletter] needs it: there are "+
			"no dead letters", cfg.DeadLetter.Topic)
	default:
		return err
	}
	for _, err := range x.index.Unknown {
		a.progress("left out: %v", err)
	}
	return f(x)
}

// letterFilter is the flags that choose dead letters.
type letterFilter struct {
	deadletter.Filter
	flags *pflag.FlagSet
}

func newLetterFilter(cmd *cobra.Command) *letterFilter {
	f := &letterFilter{flags: cmd.Flags()}
	causes := []string{
		string(deadletter.NotRoutable), string(deadletter.InvalidTopic),
		string(deadletter.TooLarge), string(deadletter.Refused), string(deadletter.Malformed),
		string(deadletter.UnknownTopic), string(deadletter.Parked)}
	last := len(causes) - 1
	wordFlag(cmd, (*string)(&f.Cause), "cause", "",
		"only those of a `cause`: "+strings.Join(causes[:last], ", ")+" or "+causes[last], causes)
	f.flags.String("key", "", "only those of a `key` of the messages")
	f.flags.StringVar(&f.Topic, "topic", "", "only those that belong to a `topic`")
	f.flags.StringVar(&f.Relation, "relation", "",
		"only those of a `table`, as schema.table, or of message:PREFIX")
	timeFlag(cmd, &f.Since, "since",
		"only those since then: a `duration` (1h) or time (2026-01-31T12:00:00Z)")
	return f
}

// filter returns the filter of the flags. An empty --key selects letters with an empty key.
func (f *letterFilter) filter() deadletter.Filter {
	if key, err := f.flags.GetString("key"); err == nil && f.flags.Changed("key") {
		f.Key = &key
	}
	return f.Filter
}

// given reports whether any of the flags was used.
func (f *letterFilter) given() bool {
	return slices.ContainsFunc([]string{"cause", "key", "topic", "relation", "since"},
		f.flags.Changed)
}

func newDeadLetterList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the open dead letters",
	}
	chosen := newLetterFilter(cmd)
	cmd.Flags().BoolVar(&chosen.All, "all", false, "also those that were redriven or discarded")
	a.jsonFlag(cmd, "print one JSON array")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withLetters(cmd, false, nil, func(x *letters) error {
			return x.list(chosen.filter())
		})
	}
	return cmd
}

func (x *letters) list(f deadletter.Filter) error {
	found := x.index.List(f)
	if x.json {
		out := make([]letterJSON, len(found))
		for i, e := range found {
			out[i] = jsonOf(e)
		}
		return x.printJSON(out)
	}
	if err := writeLetters(x.Stdout, found, f.All); err != nil {
		return err
	}
	open := len(x.index.List(deadletter.Filter{}))
	if open == 0 {
		_, err := fmt.Fprintf(x.Stderr, "nothing is open in topic %s\n", x.cfg.DeadLetter.Topic)
		return err
	}
	_, err := fmt.Fprintf(x.Stderr, "%d open, %s parked; next: %s\n",
		open, quantity(len(x.index.Parked()), "key"),
		x.typed("postrider deadletter show ID, redrive or discard"))
	return err
}

func writeLetters(w io.Writer, found []*deadletter.Entry, all bool) error {
	lines := [][]string{
		{"ID", "AT", "CAUSE", "RELATION", "EVENT", "TOPIC", "KEY", "PARKED", "RESOLVED"}}
	for _, e := range found {
		parked, resolved := "no", ""
		if e.Parks && e.Open() {
			parked = "yes"
		}
		if !e.Open() {
			resolved = fmt.Sprintf("%s by %s at %s", e.Action, e.ResolvedBy,
				e.ResolvedAt.UTC().Format(time.RFC3339))
		}
		line := []string{e.ID.String(), e.At.UTC().Format(time.RFC3339), string(e.Cause),
			e.Relation, e.EventID, e.Topic, string(e.Key), parked, resolved}
		for i := range line {
			line[i] = terminal.OrDash(terminal.Printable(line[i]))
		}
		lines = append(lines, line)
	}
	if !all {
		for i, line := range lines {
			lines[i] = line[:len(line)-1]
		}
	}
	return writeTable(w, lines...)
}

// letterJSON is a dead letter as list --json and show --json print it.
type letterJSON struct {
	ID         deadletter.ID    `json:"id"`
	Form       deadletter.Form  `json:"form"`
	Cause      deadletter.Cause `json:"cause"`
	Reason     string           `json:"reason"`
	Error      string           `json:"error,omitempty"`
	Topic      string           `json:"topic,omitempty"`
	Key        *string          `json:"key"`
	Relation   string           `json:"relation"`
	EventID    string           `json:"event_id"`
	Position   string           `json:"position"`
	CommitTime time.Time        `json:"commit_time"`
	Source     string           `json:"source"`
	At         time.Time        `json:"at"`
	Parked     bool             `json:"parked"`
	Size       int64            `json:"size,omitempty"`
	SHA256     string           `json:"sha256,omitempty"`
	Partition  int32            `json:"partition"` // in the dead-letter topic
	Offset     int64            `json:"offset"`
	Action     string           `json:"action,omitempty"`
	ResolvedBy string           `json:"resolved_by,omitempty"`
	ResolvedAt time.Time        `json:"resolved_at,omitzero"`

	Headers []headerJSON `json:"headers,omitempty"`
	Payload *string      `json:"payload,omitempty"`
}

type headerJSON struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

func jsonOf(e *deadletter.Entry) letterJSON {
	return letterJSON{
		ID: e.ID, Form: e.Form, Cause: e.Cause, Reason: e.Reason, Error: e.Error, Topic: e.Topic,
		Key: stringOf(e.Key), Relation: e.Relation, EventID: e.EventID, Position: e.Position,
		CommitTime: e.CommitTime, Source: e.Source, At: e.At, Parked: e.Parks && e.Open(),
		Size: e.Size, SHA256: e.SHA256, Partition: e.InPartition, Offset: e.Offset,
		Action: e.Action, ResolvedBy: e.ResolvedBy, ResolvedAt: e.ResolvedAt,
	}
}

func stringOf(b []byte) *string {
	if b == nil {
		return nil
	}
	return new(string(b))
}

func newDeadLetterShow(a *app) *cobra.Command {
	payload := false
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead letter, its payload only with --payload",
		Long: `show prints what is known of one dead letter. The beginning of an ID is enough if
no other one begins like that. The payload may be confidential: it is printed with --payload
alone, as are the headers of the message.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return exit.Usagef("the ID of a dead letter is empty: postrider deadletter list " +
					"has them")
			}
			return a.withLetters(cmd, false, nil, func(x *letters) error {
				return x.show(args[0], payload)
			})
		},
	}
	a.jsonFlag(cmd, "")
	cmd.Flags().BoolVar(&payload, "payload", false,
		"also print the value and the headers of the message")
	return cmd
}

func (x *letters) show(id string, payload bool) error {
	e, err := x.index.Find(id)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	out := jsonOf(e)
	if payload {
		m, err := x.index.Message(x.ctx, e)
		if err != nil {
			return err
		}
		out.Payload = stringOf(m.Value)
		for _, h := range m.Headers {
			if !strings.HasPrefix(h.Key, "postrider.dead_letter.") {
				out.Headers = append(out.Headers, headerJSON{h.Key, stringOf(h.Value)})
			}
		}
	}
	return x.print(out, func(w io.Writer) error { return writeShown(w, out) })
}

// writeShown prints the members of the JSON object, one in a line.
func writeShown(w io.Writer, out letterJSON) error {
	return writeMembers(w, out, func(name string, value any) (lines [][]string) {
		if name != "headers" {
			if value == nil {
				value = "null"
			}
			return [][]string{{name, terminal.Printable(fmt.Sprint(value))}}
		}
		for _, h := range out.Headers {
			text := "null"
			if h.Value != nil {
				text = terminal.Printable(*h.Value)
			}
			lines = append(lines, []string{"header " + terminal.Printable(h.Key), text})
		}
		return lines
	})
}
