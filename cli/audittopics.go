package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"postrider/audit"
	"postrider/config"
	"postrider/sink"
	"postrider/sink/kafka"
)

// auditTopics reads the topics. It is the audit's Published.
type auditTopics struct {
	*kafka.Reader
	spans []kafka.Span
	parts []audit.Partition
	id    eventID
	own   *ownLetters
}

// openAuditTopics connects and notes where the topics end.
func openAuditTopics(ctx context.Context, o auditOptions, plan auditPlan, cfg config.Config) (*auditTopics, error) {
	id := plan.id
	if id.from == "" {
		id = eventID{from: idFromHeader, name: headerOfIDs(cfg)}
	}
	reader, err := kafka.OpenReader(ctx, cfg.Sink.Kafka, plan.committed)
	if err != nil {
		return nil, err
	}
	t := &auditTopics{Reader: reader, id: id}
	if err := t.find(ctx, o, plan, cfg); err != nil {
		reader.Close()
		return nil, err
	}
	return t, nil
}

func (t *auditTopics) find(ctx context.Context, o auditOptions, plan auditPlan, cfg config.Config) error {
	dead := o.deadLetters
	if dead == "" && cfg.DeadLetter.On() {
		dead = cfg.DeadLetter.Topic
	}
	names := slices.Clone(o.topics)
	pattern := plan.pattern
	if len(names) == 0 && pattern == nil {
		var err error
		if pattern, err = topicsToRead("", cfg.Router); err != nil {
			return err
		}
		if pattern == nil {
			return usagef("route.topic.replacement can make any topic: name those to read with --topic or --topics")
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
		return &failure{code: exitConfig, err: fmt.Errorf("no topic matches %s", pattern), next: "name the topics: postrider audit --topic NAME"}
	}
	if err := t.add(ctx, names, plan.since, false); err != nil {
		return err
	}
	if dead == "" {
		return nil
	}
	err := t.add(ctx, []string{dead}, plan.since, true)
	if errors.Is(err, sink.ErrUnknownTopic) && o.deadLetters == "" { // no row has been poison yet
		return nil
	}
	return err
}

// clockMargin is how much earlier than the rows the records may be: by the clocks of brokers, and of those who write rows.
const clockMargin = time.Minute

func (t *auditTopics) add(ctx context.Context, names []string, since time.Time, deadLetter bool) error {
	if !since.IsZero() {
		since = since.Add(-clockMargin)
	}
	for _, name := range names {
		spans, err := t.Spans(ctx, name, since)
		if err != nil {
			return err
		}
		for _, s := range spans {
			t.spans = append(t.spans, s)
			t.parts = append(t.parts, audit.Partition{Topic: s.Topic, Number: s.Partition, From: s.From, End: s.End, DeadLetter: deadLetter})
		}
	}
	return nil
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
	return t.Read(ctx, t.spans, func(span int, offset int64, m *sink.Message) error {
		r = audit.Record{Partition: span, Offset: offset, ID: t.id.of(m), Key: plainText(m.Key)}
		if t.parts[span].DeadLetter {
			if r.ID = deadLetterID(m, r.ID); !t.own.has(m) {
				r.ID = nil
			}
		}
		return each(&r)
	})
}
