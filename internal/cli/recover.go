package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
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
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// recovery is one call of recover.
type recovery struct {
	*app
	ctx       context.Context
	cfg       config.Config
	publish   bool
	gap       bool
	selection backfill.Selection
}

func newRecover(a *app) *cobra.Command {
	c := recovery{app: a}
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
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.publish, "publish", false, "publish what is missing, and recreate the slot")
	a.yesFlag(cmd)
	f.BoolVar(&c.gap, "gap", false, "all rows of the gap: the default")
	timeFlag(cmd, &c.selection.Since, "since",
		"rows from a `TIME` on: 2026-01-31T12:00:00Z, or a duration before now (36h); older "+
			"ones count as delivered")
	timeFlag(cmd, &c.selection.Until, "until", "rows from before a `TIME`")
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
	a.jsonFlag(cmd, "")
	return cmd
}

func (c *recovery) run(cmd *cobra.Command) error {
	if c.gap && (cmd.Flags().Changed("until") || len(c.selection.IDs) > 0) {
		return exit.Usagef("--gap is all rows: not with --until or --id")
	}
	l, err := c.load(cmd)
	if err != nil {
		return err
	}
	c.warn(l.Warnings)
	c.ctx, c.cfg = cmd.Context(), l.Config
	switch name := c.cfg.Slot.Name; {
	case c.cfg.Sink.Kind != config.SinkKafka:
		return exit.Usagef("recover reads topics back: sink.kind has to be kafka")
	case len(c.cfg.Replication.Tables) == 0:
		return exit.Usagef("replication.tables is empty: logical messages are in no table")
	case c.publish:
		if err := c.confirm(name, fmt.Sprintf("publishes rows of the tables that are not in "+
			"their topics, and recreates slot %s if it is lost", name)); err != nil {
			return err
		}
	}
	report, err := c.recover()
	if err != nil {
		return err
	}
	return c.print(report, func(w io.Writer) error { return c.write(w, report) })
}

func (c *recovery) recover() (*backfill.Report, error) {
	p := daemon.NewPipeline(c.environment(), c.cfg,
		metrics.New(prometheus.NewRegistry(), c.cfg.Slot.Name), c.newLogger(c.cfg.Log))
	if err := p.PrepareTables(c.ctx); err != nil { // what the router needs to know
		return nil, err
	}
	parts := backfill.RecoveryParts{
		Parts: p.BackfillParts("recovery"),
		OpenTopics: func(ctx context.Context) (backfill.Topics, error) {
			reader, err := topicreader.Open(ctx, c.cfg.Sink.Kafka, true) // committed records only
			if err != nil {
				return nil, err // not reader: an interface with a nil pointer is not nil
			}
			return topicReader{reader}, nil
		},
		OpenSink: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
			s, err := producer.Open(ctx, c.cfg.Sink.Kafka, p.Component("sink"), done)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Router: p.NewRouter,
		Say:    c.progress,
	}
	if c.cfg.DeadLetter.On() {
		if err := c.countDeadLetters(&parts); err != nil {
			return nil, err
		}
	}
	r, err := backfill.NewRecovery(c.ctx, parts, c.selection)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !c.publish {
		return r.Plan(c.ctx)
	}
	if c.cfg.Relay.ExactlyOnce {
		if err := c.abortTransaction(); err != nil {
			return nil, err
		}
	}
	return r.Publish(c.ctx)
}

// countDeadLetters has rows with a dead letter count as delivered.
func (c *recovery) countDeadLetters(parts *backfill.RecoveryParts) error {
	var system string
	err := c.connect(c.ctx, c.cfg, func(s *session) (err error) {
		system, err = auditor.SystemIdentifier(s.ctx, s.conn)
		return err
	})
	index := deadletter.NewIndex()
	parts.DeadLetters = c.cfg.DeadLetter.Topic
	parts.DeadLetter = func(m *sink.Message) (relation, id string) {
		own := *m
		own.Key = bytes.Clone(m.Key) // the reader overwrites m
		index.Take(&own, 0)          // a key is in one partition, which is read in order
		return rowOfLetter(m, system, c.cfg.Slot.Name)
	}
	parks := sync.OnceValue(index.Parks)
	parts.Parked = func(m *sink.Message) bool { return parks()(m) }
	return err
}

// abortTransaction aborts the open transaction of a relay with exactly_once that may only hang: it
// could commit after its rows were published from the tables. What an earlier attempt published
// behind it can be read then.
func (c *recovery) abortTransaction() error {
	source, err := sourceOf(c.ctx, c.cfg)
	if err != nil {
		return err
	}
	s, err := producer.OpenTransactional(c.ctx, c.cfg.Sink.Kafka, c.cfg.Relay.PositionTopic,
		c.newLogger(c.cfg.Log), func(*sink.Message, error) {}, func(pglogrepl.LSN, error) {})
	if err != nil {
		return err
	}
	_, err = s.Begin(c.ctx, source)
	return errors.Join(err, closeSink(c.ctx, s))
}

// rowOfLetter returns the row of a dead letter, and nothing for other records and for a letter of
// another relay that shares the topic: its tables and ids may have the same names. system is empty
// if it is not known.
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

// topicReader is a topicreader.Reader as backfill.Topics.
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
	return whole, t.Reader.Read(ctx, spans, func(m *sink.Message, _ int64) error {
		each(m)
		return nil
	})
}

// mostNamed bounds the list of open transactions.
const mostNamed = 10

// write writes what was found and done, and what to type next.
func (c *recovery) write(w io.Writer, r *backfill.Report) error {
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
	verb := "TO PUBLISH"
	if c.publish {
		verb = "PUBLISHED"
	}
	lines := [][]string{{"TABLE", "ROWS COMPARED", "IN TOPICS", "DEAD LETTERS", "NO MESSAGE",
		"REFUSED", verb, "FIRST", "LAST"}}
	for _, t := range r.Tables {
		line := []string{t.Table}
		for _, n := range []int64{t.Rows, t.Delivered, t.DeadLetters, t.NoMessage, t.Refused,
			t.Undelivered} {
			line = append(line, fmt.Sprint(n))
		}
		lines = append(lines, append(line, placeText(t.First), placeText(t.Last)))
	}
	lines = append(lines, nil, []string{"TOPIC", "RECORDS READ", verb})
	for _, t := range r.Topics {
		published := fmt.Sprint(t.Undelivered)
		if !t.Whole {
			published += "   (older records are gone)"
		}
		lines = append(lines, []string{t.Topic, fmt.Sprint(t.Records), published})
	}
	if err := writeTable(w, lines...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", c.typed(c.outcome(r)))
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
func (c *recovery) outcome(r *backfill.Report) string {
	rows := quantity(r.Undelivered(), "row")
	switch {
	case r.Refusal != nil:
		return fmt.Sprintf("--publish would refuse: %v\nnext: %s", r.Refusal,
			exit.Explain(r.Refusal).Next)
	case !c.publish:
		these, slot := "these "+rows+" are", ", and the slot is recreated."
		if r.Undelivered() == 1 {
			these = "this 1 row is"
		}
		if r.State == "usable" {
			slot = "; the slot stays as it is."
		}
		return "Nothing was changed. With --publish " + these + " published" + slot
	case r.Recreated:
		return fmt.Sprintf("%s published. Slot %s is recreated: what was committed after %s "+
			"comes by it. Start the relay: postrider run", rows, r.Slot, r.ConsistentPoint)
	case r.State == "usable":
		return rows + " published. The relay can start: postrider run"
	}
	return fmt.Sprintf("%s published. Slot %s is %s as before: postrider recover, without --id "+
		"and --until, recreates it", rows, r.Slot, r.State)
}
