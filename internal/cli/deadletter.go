package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
)

func newDeadLetter(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deadletter",
		Aliases: []string{"dlq"},
		Short:   "List, show, redrive and discard dead letters",
		Long: `deadletter looks after rows that could not be delivered and that the policies of
[deadletter] put into a topic of their own. It reads and writes that topic alone, but for redrive,
which publishes; the relay may run meanwhile.`,
	}
	cmd.AddCommand(newDeadLetterList(a), newDeadLetterShow(a), newDeadLetterRedrive(a),
		newDeadLetterDiscard(a))
	return cmd
}

// deadLetterFunc is what a command does with the dead-letter topic and the index of its letters.
// store is nil if there is no topic and no policy needs one; the index is empty then.
type deadLetterFunc func(
	ctx context.Context, cfg config.Config, store *producer.DeadLetters, x *deadletter.Index,
) error

// withDeadLetters runs f with the dead-letter topic, which is open for transactions if f redrives.
func (a *app) withDeadLetters(cmd *cobra.Command, transactional bool, f deadLetterFunc) error {
	sections := []string{"sink", "deadletter", "log"}
	if transactional {
		sections = append(sections, "postgres", "replication", "router", "format")
	}
	l, err := a.load(cmd, sections...)
	if err != nil {
		return err
	}
	a.warn(l)
	cfg := l.Config
	if cfg.Sink.Kind != config.SinkKafka {
		return exit.Usagef("sink.kind is %q: dead letters are kept by %s alone", cfg.Sink.Kind,
			config.SinkKafka)
	}
	ctx := cmd.Context()
	id := ""
	if transactional {
		id = "postrider.deadletter." + cfg.DeadLetter.Topic
	}
	cfg.Sink.Kafka.Topics.Create = false // the commands create no topic
	store, err := producer.OpenDeadLetters(ctx, cfg.Sink.Kafka, cfg.DeadLetter.Topic, id,
		a.newLogger(cfg.Log))
	x := deadletter.NewIndex()
	switch {
	case err == nil:
		defer store.Close()
		if x, err = deadletter.Read(ctx, store); err != nil {
			return exit.Explain(err)
		}
	case errors.Is(err, sink.ErrUnknownTopic) && !cfg.DeadLetter.On():
		a.progress("topic %s does not exist, and no policy of [deadletter] needs it: there are "+
			"no dead letters", cfg.DeadLetter.Topic)
	default:
		return exit.Explain(err)
	}
	for _, err := range x.Unknown {
		a.progress("left out: %v", err)
	}
	return explained(f(ctx, cfg, store, x))
}

// letterFilter is the flags that choose dead letters.
type letterFilter struct {
	cause, key, topic, relation string
	cmd                         *cobra.Command
}

// causes are those of dead letters.
var causes = []deadletter.Cause{
	deadletter.NotRoutable, deadletter.InvalidTopic, deadletter.TooLarge, deadletter.Refused,
	deadletter.Malformed, deadletter.UnknownTopic, deadletter.Parked,
}

func (f *letterFilter) flags(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	words := make([]string, len(causes))
	for i, cause := range causes {
		words[i] = string(cause)
	}
	last := len(words) - 1
	flags.StringVar(&f.cause, "cause", "",
		"only those of a `cause`: "+strings.Join(words[:last], ", ")+" or "+words[last])
	must(cmd.RegisterFlagCompletionFunc("cause",
		cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	flags.StringVar(&f.key, "key", "", "only those of a `key` of the messages")
	flags.StringVar(&f.topic, "topic", "", "only those that belong to a `topic`")
	flags.StringVar(&f.relation, "relation", "",
		"only those of a `table`, as schema.table, or of message:PREFIX")
	flags.String("since", "",
		"only those since then: a `duration` (1h) or time (2026-01-31T12:00:00Z)")
}

func (f *letterFilter) filter() (deadletter.Filter, error) {
	out := deadletter.Filter{Cause: deadletter.Cause(f.cause), Topic: f.topic,
		Relation: f.relation}
	if f.cause != "" && !slices.Contains(causes, out.Cause) {
		return out, exit.Usagef("--cause %s: there is no such cause", f.cause)
	}
	if f.cmd.Flags().Changed("key") {
		out.Key = &f.key
	}
	var err error
	out.Since, err = timeFlag(f.cmd, "since", time.Now())
	return out, err
}

// given reports whether any of the flags was used.
func (f *letterFilter) given() bool {
	return slices.ContainsFunc([]string{"cause", "key", "topic", "relation", "since"},
		func(name string) bool { return f.cmd.Flags().Changed(name) })
}

func newDeadLetterList(a *app) *cobra.Command {
	var asJSON, all bool
	var chosen letterFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the open dead letters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
				return err
			}
			f.All = all
			return a.withDeadLetters(cmd, false, func(
				_ context.Context, cfg config.Config, _ *producer.DeadLetters, x *deadletter.Index,
			) error {
				letters := x.List(f)
				if asJSON {
					out := make([]letterJSON, len(letters))
					for i, e := range letters {
						out[i] = jsonOf(e)
					}
					return a.printJSON(out)
				}
				if err := writeLetters(a.Stdout, letters, all); err != nil {
					return err
				}
				return writeParked(a.Stderr, x, cfg.DeadLetter.Topic)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	cmd.Flags().BoolVar(&all, "all", false, "also those that were redriven or discarded")
	chosen.flags(cmd)
	return cmd
}

func writeLetters(w io.Writer, letters []*deadletter.Entry, all bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	header := "ID\tAT\tCAUSE\tRELATION\tEVENT\tTOPIC\tKEY\tPARKED"
	if all {
		header += "\tRESOLVED"
	}
	fmt.Fprintln(t, header)
	for _, e := range letters {
		parked := "no"
		if e.Parks && e.Open() {
			parked = "yes"
		}
		line := []string{e.ID.String(), e.At.UTC().Format(time.RFC3339), string(e.Cause),
			e.Relation, e.EventID, e.Topic, keyText(e.Key), parked}
		if all {
			line = append(line, resolvedText(e))
		}
		for i := range line {
			line[i] = terminal.OrDash(terminal.Printable(line[i]))
		}
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	return t.Flush()
}

func resolvedText(e *deadletter.Entry) string {
	if e.Open() {
		return ""
	}
	return fmt.Sprintf("%s by %s at %s", e.Action, e.ResolvedBy,
		e.ResolvedAt.UTC().Format(time.RFC3339))
}

func writeParked(w io.Writer, x *deadletter.Index, topic string) error {
	open := len(x.List(deadletter.Filter{}))
	if open == 0 {
		_, err := fmt.Fprintf(w, "nothing is open in topic %s\n", topic)
		return err
	}
	_, err := fmt.Fprintf(w,
		"%d open, %s parked; next: postrider deadletter show ID, redrive or discard\n",
		open, quantity(len(x.Parked()), "key"))
	return err
}

func keyText(key []byte) string {
	if key == nil {
		return ""
	}
	return terminal.Printable(string(key))
}

// letterJSON is a dead letter as list --json and show --json print it.
type letterJSON struct {
	ID         string     `json:"id"`
	Form       string     `json:"form"`
	Cause      string     `json:"cause"`
	Reason     string     `json:"reason"`
	Error      string     `json:"error,omitempty"`
	Topic      string     `json:"topic,omitempty"`
	Key        *string    `json:"key"`
	Relation   string     `json:"relation"`
	EventID    string     `json:"event_id"`
	Position   string     `json:"position"`
	CommitTime time.Time  `json:"commit_time"`
	Source     string     `json:"source"`
	At         time.Time  `json:"at"`
	Parked     bool       `json:"parked"`
	Size       int64      `json:"size,omitempty"`
	SHA256     string     `json:"sha256,omitempty"`
	Partition  int32      `json:"partition"` // in the dead-letter topic
	Offset     int64      `json:"offset"`
	Action     string     `json:"action,omitempty"`
	ResolvedBy string     `json:"resolved_by,omitempty"`
	ResolvedAt *time.Time `json:"resolved_at,omitempty"`

	Headers []headerJSON `json:"headers,omitempty"`
	Payload *string      `json:"payload,omitempty"`
}

type headerJSON struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

func jsonOf(e *deadletter.Entry) letterJSON {
	out := letterJSON{
		ID: e.ID.String(), Form: string(e.Form), Cause: string(e.Cause), Reason: e.Reason,
		Error: e.Error, Topic: e.Topic, Key: stringOf(e.Key),
		Relation: e.Relation, EventID: e.EventID, Position: e.Position, CommitTime: e.CommitTime,
		Source: e.Source, At: e.At, Parked: e.Parks && e.Open(),
		Size: e.Size, SHA256: e.SHA256, Partition: e.InPartition, Offset: e.Offset,
		Action: e.Action, ResolvedBy: e.ResolvedBy,
	}
	if !e.Open() {
		out.ResolvedAt = &e.ResolvedAt
	}
	return out
}

func stringOf(b []byte) *string {
	if b == nil {
		return nil
	}
	return new(string(b))
}

func newDeadLetterShow(a *app) *cobra.Command {
	var asJSON, payload bool
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
			return a.withDeadLetters(cmd, false, func(
				ctx context.Context, _ config.Config, _ *producer.DeadLetters, x *deadletter.Index,
			) error {
				e, err := x.Find(args[0])
				if err != nil {
					return exit.Usagef("%v", err)
				}
				out := jsonOf(e)
				if payload {
					m, err := x.Message(ctx, e)
					if err != nil {
						return err
					}
					out.Payload = stringOf(m.Value)
					out.Headers = ownHeaders(m)
				}
				if asJSON {
					return a.printJSON(out)
				}
				return writeShown(a.Stdout, out)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, jsonHelp)
	cmd.Flags().BoolVar(&payload, "payload", false,
		"also print the value and the headers of the message")
	return cmd
}

func ownHeaders(m *sink.Message) (out []headerJSON) {
	for _, h := range m.Headers {
		if !strings.HasPrefix(h.Key, "postrider.dead_letter.") {
			out = append(out, headerJSON{h.Key, stringOf(h.Value)})
		}
	}
	return out
}

// writeShown prints the members of the JSON object, one in a line.
func writeShown(w io.Writer, out letterJSON) error {
	return printMembers(w, out, func(t io.Writer, name string, value any) {
		if name != "headers" {
			if value == nil {
				value = "null"
			}
			fmt.Fprintf(t, "%s\t%s\n", name, terminal.Printable(fmt.Sprint(value)))
			return
		}
		for _, h := range out.Headers {
			text := "null"
			if h.Value != nil {
				text = terminal.Printable(*h.Value)
			}
			fmt.Fprintf(t, "header %s\t%s\n", terminal.Printable(h.Key), text)
		}
	})
}

// whoami is who redrives or discards: user@host.
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
