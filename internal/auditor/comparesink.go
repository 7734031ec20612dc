package auditor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
)

// openSink makes a sink that hands each message to the comparison: at once, or, with a prefix,
// when it is published to the topic with the prefix.
func (c *comparing) openSink(p *daemon.Pipeline) sink.Open {
	return func(ctx context.Context, done sink.Done) (sink.Sink, error) {
		s := &compareSink{comparing: c, done: done}
		if c.options.Prefix == "" {
			return s, nil
		}
		shadow, err := producer.Open(ctx, p.Config.Sink.Kafka, p.Component("sink"), s.published)
		if err != nil {
			return nil, err
		}
		s.shadow = shadow
		return s, nil
	}
}

type compareSink struct {
	*comparing
	done   sink.Done
	shadow sink.Sink // publishes to the topics with the prefix; nil: nothing is published
}

// Publish never blocks without a prefix.
func (s *compareSink) Publish(ctx context.Context, ms []*sink.Message) error {
	for _, m := range ms {
		s.follower.Add(m.Topic)
		if s.shadow == nil {
			s.published(m, nil)
			continue
		}
		m.Topic = s.options.Prefix + m.Topic
	}
	if s.shadow == nil {
		return nil
	}
	err := s.shadow.Publish(ctx, ms)
	s.note(err)
	return err
}

// note keeps the first error: the session that it ends takes its slot with it, and the error of
// the next session only follows from that.
func (c *comparing) note(err error) {
	if err != nil && !errors.Is(err, sink.ErrClosed) && !errors.Is(err, context.Canceled) {
		c.unpublished.CompareAndSwap(nil, &err)
	}
}

func (s *compareSink) published(m *sink.Message, err error) {
	if err == nil {
		ours := *m
		ours.Topic = strings.TrimPrefix(m.Topic, s.options.Prefix)
		s.comparison.Ours(&ours, time.Now())
	}
	s.note(err)
	s.done(m, err)
}

func (s *compareSink) Topic(ctx context.Context, topic string) error {
	if s.shadow == nil {
		return nil
	}
	return s.shadow.Topic(ctx, s.options.Prefix+strings.TrimPrefix(topic, s.options.Prefix))
}

func (s *compareSink) Close(ctx context.Context) error {
	if s.shadow == nil {
		return nil
	}
	return s.shadow.Close(ctx)
}

// compareRules is what the comparison needs of the rules by which rows are routed.
type compareRules struct {
	idHeaders []string
	sources   int             // tables and message prefixes
	timed     map[string]bool // sources with a column for the record's time
}

func newCompareRules(cfg config.Config) (compareRules, error) {
	r := compareRules{
		timed: map[string]bool{}, idHeaders: []string{"id"},
		sources: len(cfg.Replication.Tables) + len(cfg.Replication.Messages),
	}
	if slices.Contains(cfg.Replication.Messages, router.AnyPrefix) {
		r.sources++ // there may be many
	}
	divided, err := router.Divide(cfg.Router, cfg.Replication.Tables, cfg.Replication.Messages)
	if err != nil {
		return r, err
	}
	for i := range divided {
		c := &divided[i]
		r.idHeaders = append(r.idHeaders, c.HeaderID)
		for _, table := range c.Tables {
			r.timed[table] = c.FieldTimestamp != ""
		}
		for _, prefix := range c.Messages {
			r.timed["message:"+prefix] = c.FieldTimestamp != ""
		}
	}
	return r, nil
}

func (r *compareRules) timeColumn(relation string) bool {
	timed, known := r.timed[relation]
	if !known && strings.HasPrefix(relation, "message:") {
		timed = r.timed["message:"+router.AnyPrefix]
	}
	return timed
}

// topicsToRead matches the topics to which the other relay may publish: those of the pattern, else
// those to which the rules can route. Nil: the rules can route to any topic, since a replacement
// has no literal part; then only the topics are read to which postrider routes a row.
func topicsToRead(pattern string, rules []router.Config) (*regexp.Regexp, error) {
	if pattern != "" {
		return regexp.Compile("^(?:" + pattern + ")$")
	}
	var all []string
	for i := range rules {
		expression, literal := replacementPattern(rules[i].TopicReplacement)
		if !literal {
			return nil, nil
		}
		all = append(all, expression)
	}
	return regexp.Compile("^(?:" + strings.Join(all, "|") + ")$")
}

// replacement finds $1, ${name} and characters behind a backslash in a Java replacement.
var replacement = regexp.MustCompile(`\\.|\$\{[^}]*\}|\$[0-9]+`)

func replacementPattern(text string) (expression string, literal bool) {
	var out strings.Builder
	add := func(s string) {
		out.WriteString(regexp.QuoteMeta(s))
		literal = literal || strings.Trim(s, "._-") != ""
	}
	at := 0
	for _, found := range replacement.FindAllStringIndex(text, -1) {
		add(text[at:found[0]])
		if text[found[0]] == '\\' {
			add(text[found[0]+1 : found[1]])
		} else {
			fmt.Fprint(&out, ".*")
		}
		at = found[1]
	}
	add(text[at:])
	return out.String(), literal
}
