package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/auditor"
	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// recoverCall is one call of recover.
type recoverCall struct {
	app          *app
	publish, yes bool
	gap          bool
	asJSON       bool
	selection    backfill.Selection
}

func newRecover(a *app) *cobra.Command {
	c := recoverCall{app: a}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Publish the rows that a lost slot did not deliver, from the tables",
		Long: `recover compares the outbox tables with their topics, and says which rows are
missing there. It is a dry run: with --publish it publishes them, in the order of the tables, and
recreates the slot, so that 'postrider run' can start and nothing is missing or repeated.

The new slot is made before a row is read: what is committed meanwhile comes by it. The lost slot
stays until everything is published. A recovery that was interrupted is repeated with the same
command: what is in the topics is left out.

Rows that were deleted from the tables cannot be published, nor can logical messages: stop the
job that cleans up the outbox first.

Without --since, --until and --id it looks for all rows that the lost slot cannot have delivered,
as far as the slot still has its catalog_xmin, or for all rows of the tables if it was
dropped. With --until or --id a lost slot stays lost.

The login needs SELECT on the tables, and to read the topics.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.publish, "publish", false, "publish what is missing, and recreate the slot")
	f.BoolVar(&c.yes, "yes", false, yesHelp)
	f.BoolVar(&c.gap, "gap", false, "all rows of the gap: the default")
	f.String("since", "",
		"rows from a `TIME` on: 2026-01-31T12:00:00Z, or a duration before now (36h); older "+
			"ones count as delivered")
	f.String("until", "", "rows from before a `TIME`")
	f.StringVar(&c.selection.TimeColumn, "time-column", "",
		"`COLUMN` with the time of the insert, for --since and --until; found if not given")
	f.StringSliceVar(&c.selection.IDs, "id", nil, "rows with this `ID`; may be repeated")
	f.Uint32Var(&c.selection.FromXmin, "from-xmin", 0,
		"rows of transactions from this `XID` on: the catalog_xmin of a slot that was dropped, "+
			"as the relay reported")
	f.BoolVar(&c.selection.Partial, "partial-topics", false,
		"publish every row that is not in the topics, even if they have lost their older records")
	f.BoolVar(&c.selection.SkipRefused, "skip-refused", false,
		"leave out rows that cannot be routed")
	f.BoolVar(&c.asJSON, "json", false, jsonHelp)
	return cmd
}

func (c *recoverCall) run(cmd *cobra.Command) error {
	if err := c.times(cmd); err != nil {
		return err
	}
	l, err := c.app.load(cmd)
	if err != nil {
		return err
	}
	c.app.warn(l)
	cfg := l.Config
	if cfg.Sink.Kind != config.SinkKafka {
		return exit.Usagef("recover reads topics back: sink.kind has to be kafka")
	}
	if len(cfg.Replication.Tables) == 0 {
		return exit.Usagef("replication.tables is empty: logical messages are in no table")
	}
	if c.publish {
		what := fmt.Sprintf("publishes rows of the tables that are not in their topics, and "+
			"recreates slot %s if it is lost", cfg.Slot.Name)
		if err := c.app.confirm(cfg.Slot.Name, what, c.yes); err != nil {
			return err
		}
	}
	report, err := c.recover(cmd.Context(), cfg)
	if err != nil {
		err = explained(err)
		if errors.Is(err, backfill.ErrIncomplete) || errors.Is(err, backfill.ErrParked) {
			if f := (*exit.Error)(nil); errors.As(err, &f) {
				f.Code = exit.Config
			}
		}
		return err
	}
	if c.asJSON {
		return c.app.printJSON(report)
	}
	return c.print(c.app.Stdout, report)
}

// times reads the flags with times.
func (c *recoverCall) times(cmd *cobra.Command) (err error) {
	if c.gap && (cmd.Flags().Changed("until") || len(c.selection.IDs) > 0) {
		return exit.Usagef("--gap is all rows: not with --until or --id")
	}
	now := time.Now()
	if c.selection.Since, err = timeFlag(cmd, "since", now); err != nil {
		return err
	}
	c.selection.Until, err = timeFlag(cmd, "until", now)
	return err
}

func (c *recoverCall) recover(ctx context.Context, cfg config.Config) (*backfill.Report, error) {
	a := c.app
	p := daemon.NewPipeline(a.environment(), cfg,
		metrics.New(prometheus.NewRegistry(), cfg.Slot.Name), a.newLogger(cfg.Log))
	if err := p.PrepareTables(ctx); err != nil { // what the router needs to know
		return nil, err
	}
	parts := backfill.RecoveryParts{
		Parts: p.BackfillParts("recovery"),
		OpenTopics: func(ctx context.Context) (backfill.Topics, error) {
			reader, err := topicreader.Open(ctx, cfg.Sink.Kafka, true) // committed records only
			if err != nil {
				return nil, err // not reader: an interface with a nil pointer is not nil
			}
			return topicReader{reader}, nil
		},
		OpenSink: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
			s, err := producer.Open(ctx, cfg.Sink.Kafka, p.Component("sink"), done)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Router: p.NewRouter,
		Say:    a.progress,
	}
	if cfg.DeadLetter.On() {
		system, err := systemIdentifier(ctx, cfg.Postgres)
		if err != nil {
			return nil, err
		}
		letters := deadletter.NewIndex()
		parts.DeadLetters = cfg.DeadLetter.Topic
		parts.DeadLetter = func(m *sink.Message) (relation, id string) {
			own := *m
			own.Key = bytes.Clone(m.Key) // the reader overwrites m
			letters.Take(&own, 0)        // a key is in one partition, which is read in order
			return rowOfLetter(m, system, cfg.Slot.Name)
		}
		parks := sync.OnceValue(letters.Parks)
		parts.Parked = func(m *sink.Message) bool { return parks()(m) }
	}
	r, err := backfill.NewRecovery(ctx, parts, c.selection)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !c.publish {
		return r.Plan(ctx)
	}
	if cfg.Relay.ExactlyOnce {
		if err := a.shutOut(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return r.Publish(ctx)
}

// shutOut aborts the open transaction of a relay with exactly_once that may only hang: it could
// commit after its rows were published from the tables. What an earlier attempt published behind
// it can be read then.
func (a *app) shutOut(ctx context.Context, cfg config.Config) error {
	source, err := sourceOf(ctx, cfg)
	if err != nil {
		return err
	}
	s, err := producer.OpenTransactional(ctx, cfg.Sink.Kafka, cfg.Relay.PositionTopic,
		a.newLogger(cfg.Log),
		func(*sink.Message, error) {}, func(pglogrepl.LSN, error) {})
	if err != nil {
		return err
	}
	_, err = s.Begin(ctx, source)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeSinkTimeout)
	defer cancel()
	return errors.Join(err, s.Close(closing))
}

// systemIdentifier is that of the server, over a connection of its own.
func systemIdentifier(ctx context.Context, cfg postgres.Config) (string, error) {
	conn, err := postgres.Connect(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer postgres.Close(conn)
	return auditor.SystemIdentifier(ctx, conn)
}

// rowOfLetter is recovery.Parts.DeadLetter. It leaves out records that are no dead letters, and
// those of another relay that shares the topic: its tables and ids may have the same names. system
// is empty if it is not known.
func rowOfLetter(m *sink.Message, system, slot string) (relation, id string) {
	for _, h := range m.Headers {
		switch h.Key {
		case deadletter.HeaderSource:
			if ofSystem, ofSlot, ok := auditor.DeadLetterSource(h.Value); ok &&
				(system != "" && ofSystem != system || ofSlot != slot) {
				return "", ""
			}
		case deadletter.HeaderRelation:
			relation = string(h.Value)
		case deadletter.HeaderEventID:
			id = string(h.Value)
		}
	}
	return relation, id
}

// topicReader is a kafka.Reader as backfill.Topics.
type topicReader struct{ *topicreader.Reader }

func (t topicReader) Read(ctx context.Context, topic string, since time.Time,
	each func(*sink.Message)) (whole bool, err error) {
	whole, err = t.Whole(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	spans, err := t.Spans(ctx, topic, since)
	if err != nil {
		return false, err
	}
	return whole, t.Reader.Read(ctx, spans,
		func(m *sink.Message, _ int64) error { each(m); return nil })
}

// mostNamed bounds the list of open transactions.
const mostNamed = 10

// print writes what was found and done, and what to type next.
func (c *recoverCall) print(w io.Writer, r *backfill.Report) error {
	fmt.Fprintf(w, "slot %s was %s", r.Slot, r.State)
	if r.Reason != "" {
		fmt.Fprintf(w, " (%s)", r.Reason)
	}
	if r.ConfirmedFlushLSN != 0 {
		fmt.Fprintf(w, ", confirmed up to %s", r.ConfirmedFlushLSN)
	}
	fmt.Fprintln(w)
	if r.BySlot > 0 {
		fmt.Fprintf(w, "%s left to the slot, by which they come\n", quantity(r.BySlot, "row"))
	}
	if n := len(r.OpenTransactions); n > 0 {
		more := ""
		if n > mostNamed {
			more = fmt.Sprintf(" and %d more", n-mostNamed)
		}
		fmt.Fprintf(w, "rows of %s may not be counted yet: %s%s\n",
			quantity(n, "open transaction"),
			strings.Join(r.OpenTransactions[:min(n, mostNamed)], ", "), more)
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	verb := "TO PUBLISH"
	if c.publish {
		verb = "PUBLISHED"
	}
	fmt.Fprintf(t,
		"TABLE\tROWS COMPARED\tIN TOPICS\tDEAD LETTERS\tNO MESSAGE\tREFUSED\t%s\tFIRST\tLAST\n",
		verb)
	for _, table := range r.Tables {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", table.Table, table.Rows,
			table.Delivered, table.DeadLetters,
			table.NoMessage, table.Refused, table.Undelivered, placeText(table.First),
			placeText(table.Last))
	}
	fmt.Fprintf(t, "\nTOPIC\tRECORDS READ\t%s\n", verb)
	for _, topic := range r.Topics {
		note := ""
		if !topic.Whole {
			note = "   (older records are gone)"
		}
		fmt.Fprintf(t, "%s\t%d\t%d%s\n", topic.Topic, topic.Records, topic.Undelivered, note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", c.app.typed(c.outcome(r)))
	return err
}

func placeText(p *backfill.Place) string {
	switch {
	case p == nil:
		return "-"
	case p.Time == "":
		return p.ID
	}
	return p.ID + " (" + p.Time + ")"
}

// outcome is the last line.
func (c *recoverCall) outcome(r *backfill.Report) string {
	rows := quantity(r.Undelivered(), "row")
	these, are := "these ", " are"
	if r.Undelivered() == 1 {
		these, are = "this ", " is"
	}
	switch {
	case r.Refusal != nil:
		f := exit.Explain(r.Refusal)
		return fmt.Sprintf("--publish would refuse: %v\nnext: %s", r.Refusal, f.Next)
	case !c.publish && r.State == "usable":
		return "Nothing was changed. With --publish " + these + rows + are +
			" published; the slot stays as it is."
	case !c.publish:
		return "Nothing was changed. With --publish " + these + rows + are +
			" published, and the slot is recreated."
	case r.Recreated:
		return fmt.Sprintf("%s published. Slot %s is recreated: what was committed after %s "+
			"comes by it. Start the relay: postrider run", rows, r.Slot, r.ConsistentPoint)
	case r.State == "usable":
		return rows + " published. The relay can start: postrider run"
	}
	return fmt.Sprintf("%s published. Slot %s is %s as before: postrider recover, without --id "+
		"and --until, recreates it", rows, r.Slot, r.State)
}

// closeSinkTimeout bounds how long a sink that has nothing in flight takes to close.
const closeSinkTimeout = time.Second
