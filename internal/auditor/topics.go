package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

// auditTopics reads the topics. It is the audit's Published.
type auditTopics struct {
	*topics.Reader
	spans []topics.Span
	parts []audit.Partition
	early time.Time // records from before it need no row
	id    EventID
	own   *deadLetters
	// removed are topics whose records were removed in part, by retention, compaction or deletion.
	removed []string
	// hidden are topics with an open transaction: what follows it cannot be read yet.
	hidden []string
	// tombstones are the records without a value and an id in the last reading: they prove no row.
	tombstones int64
}

// openAuditTopics connects and notes where the topics end. They are read from a time on; zero:
// from their beginnings.
func openAuditTopics(ctx context.Context, o Options, plan Plan, cfg config.Config,
	since time.Time) (t *auditTopics, err error) {
	t = &auditTopics{id: plan.ID, removed: []string{}, hidden: []string{}}
	if !plan.Since.IsZero() {
		t.early = plan.Since.Add(-clockMargin)
	}
	if t.id.from == "" {
		t.id = EventID{from: fromHeader, name: headerOfIDs(cfg)}
	}
	if t.Reader, err = topics.OpenReader(ctx, cfg.Sink.Kafka, plan.Committed); err != nil {
		return nil, err
	}
	if err := t.find(ctx, o, plan, cfg, since); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *auditTopics) find(ctx context.Context, o Options, plan Plan, cfg config.Config,
	since time.Time) error {
	dead := o.DeadLetters
	if dead == "" && cfg.DeadLetter.On() {
		dead = cfg.DeadLetter.Topic
	}
	names := slices.Clone(o.Topics)
	pattern := plan.Pattern
	if len(names) == 0 && pattern == nil {
		var err error
		if pattern, err = topicsToRead("", cfg.Router); err != nil {
			return err
		}
		if pattern == nil {
			return exit.Usagef("route.topic.replacement can make any topic: name those to read " +
				"with --topic or --topics")
		}
	}
	if pattern != nil {
		found, err := t.Reader.Topics(ctx, pattern)
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == dead })
	if len(names) == 0 {
		shown := strings.TrimSuffix(strings.TrimPrefix(pattern.String(), "^(?:"), ")$")
		return &exit.Error{Code: exit.Config, Err: fmt.Errorf("no topic matches %s", shown),
			Next: "postrider audit --topic TOPIC   # where the rows are published; " +
				kafka.Command(cfg.Sink.Kafka, "kafka-topics.sh", "--list")}
	}
	if err := t.add(ctx, names, since, false); err != nil {
		return err
	}
	if dead == "" {
		return nil
	}
	err := t.add(ctx, []string{dead}, since, true)
	if errors.Is(err, sink.ErrUnknownTopic) && o.DeadLetters == "" { // there is no dead letter yet
		return nil
	}
	return err
}

// noteRemoved adds the topics of which records were removed since their spans were noted: what
// was not found there may have been read too late.
func (t *auditTopics) noteRemoved(ctx context.Context) error {
	first := map[string]map[int32]int64{} // offsets that are left, by topic and partition
	for _, s := range t.spans {
		if s.From == s.End || slices.Contains(t.removed, s.Topic) {
			continue
		}
		if first[s.Topic] == nil {
			left, err := t.Spans(ctx, s.Topic, time.Time{})
			if err != nil {
				return err
			}
			first[s.Topic] = map[int32]int64{}
			for _, l := range left {
				first[s.Topic][l.Partition] = l.From
			}
		}
		if first[s.Topic][s.Partition] > s.From {
			t.removed = append(t.removed, s.Topic)
		}
	}
	return nil
}

// clockMargin is how much earlier than its row a record may be, by the clocks of brokers and
// writers.
const clockMargin = time.Minute

func (t *auditTopics) add(ctx context.Context, names []string, since time.Time,
	deadLetter bool) error {
	if !since.IsZero() {
		since = since.Add(-clockMargin)
	}
	for _, name := range names {
		whole := deadLetter
		spans, open, err := t.spansBehindTransactions(ctx, name, since)
		if err == nil && !deadLetter {
			whole, err = t.WholeFrom(ctx, name, spans)
		}
		if err != nil {
			return err
		}
		if !whole {
			t.removed = append(t.removed, name)
		}
		if open {
			t.hidden = append(t.hidden, name)
		}
		for _, s := range spans {
			t.spans = append(t.spans, s)
			t.parts = append(t.parts, audit.Partition{Topic: s.Topic, Number: s.Partition,
				From: s.From, End: s.End, DeadLetter: deadLetter})
		}
	}
	return nil
}

// openTransactionWait bounds the wait for open transactions in a topic. Those of a relay that runs
// take less, one of a producer that was killed up to its transaction timeout.
const openTransactionWait = 10 * time.Second

// spansBehindTransactions returns the spans of a topic when each transaction that is open in it
// now has ended, or after openTransactionWait. open: one has not.
func (t *auditTopics) spansBehindTransactions(ctx context.Context, name string,
	since time.Time) (spans []topics.Span, open bool, err error) {
	ends, err := t.Ends(ctx, name)
	for began := time.Now(); err == nil; err = kafka.Pause(ctx, kafka.ReadPause) {
		if spans, err = t.Spans(ctx, name, since); err != nil {
			return nil, false, err
		}
		open = slices.ContainsFunc(spans,
			func(s topics.Span) bool { return s.End < ends[s.Partition] })
		if !open || time.Since(began) > openTransactionWait {
			return spans, open, nil
		}
	}
	return nil, false, err
}

// headerOfIDs is the name that all rules agree on.
func headerOfIDs(cfg config.Config) string {
	name := "id"
	for i := range cfg.Router {
		if cfg.Router[i].HeaderID != "" {
			name = cfg.Router[i].HeaderID
		}
	}
	return name
}

func (t *auditTopics) names() []string {
	var names []string
	for i := range t.parts {
		if name := t.parts[i].Topic; !t.parts[i].DeadLetter && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Partitions is that of audit.Published.
func (t *auditTopics) Partitions() []audit.Partition { return t.parts }

// Records is that of audit.Published.
func (t *auditTopics) Records(ctx context.Context, each func(*audit.Record) error) error {
	var r audit.Record
	t.tombstones = 0
	return t.Read(ctx, t.spans, func(span int, offset int64, m *sink.Message) error {
		r = audit.Record{
			Partition: span, Offset: offset, ID: t.id.of(m), Key: audit.PlainText(m.Key),
			Position: positionOf(m), Redriven: header(m, sink.HeaderRedriven) != nil,
			Early: m.Timestamp.Before(t.early),
		}
		if m.Key != nil {
			r.Hash = producer.KeyHash(m.Key) + 1
		}
		if t.parts[span].DeadLetter {
			if r.ID = deadLetterID(m, r.ID); !t.own.has(m) {
				r.ID = nil
			}
		}
		if r.ID == nil && m.Value == nil && !t.parts[span].DeadLetter {
			t.tombstones++
			return nil
		}
		return each(&r)
	})
}

// deadLetters recognizes the dead letters of the audited tables among those of other relays that
// share their topic: another database may have tables and ids of the same names.
type deadLetters struct {
	system  string   // identifier; empty: not known
	foreign []string // slots of other databases of the server
	// relations are the names under which rows of the tables are decoded: their own and those of
	// their partitions. None: any name.
	relations []string
}

func findDeadLetters(ctx context.Context, conn *pgx.Conn) (d *deadLetters, err error) {
	d = &deadLetters{}
	if d.system, err = postgres.SystemIdentifier(ctx, conn); err != nil {
		return nil, err
	}
	rows, _ := conn.Query(ctx, "SELECT slot_name::text FROM pg_catalog.pg_replication_slots "+
		"WHERE database <> pg_catalog.current_database()") // CollectRows returns the error
	d.foreign, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return d, postgres.Error(err)
}

func (d *deadLetters) add(ctx context.Context, conn *pgx.Conn, t slot.Table) error {
	names, err := t.PartitionNames(ctx, conn)
	d.relations = append(append(d.relations, names...), t.Name)
	return err
}

// has reports whether m may be a dead letter of the tables: one without headers about its source
// may be. Nil is that of a write log: every dead letter may be of it.
func (d *deadLetters) has(m *sink.Message) bool {
	if d == nil {
		return true
	}
	relation := header(m, deadletter.HeaderRelation)
	if relation != nil && len(d.relations) > 0 && !slices.Contains(d.relations, string(relation)) {
		return false
	}
	system, slot, ok := deadletter.ParseSource(header(m, deadletter.HeaderSource))
	return !ok || !slices.Contains(d.foreign, slot) && (d.system == "" || system == d.system)
}
