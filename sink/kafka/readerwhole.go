package kafka

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Whole tells whether a topic still has every record that was published to it: none was deleted by retention, and none is by compaction. A topic
// whose configuration may not be read is taken for one without compaction. A topic that does not exist is a sink.ErrUnknownTopic.
func (r *Reader) Whole(ctx context.Context, topic string) (bool, error) {
	spans, err := r.Spans(ctx, topic, time.Time{})
	if err != nil {
		return false, err
	}
	return r.WholeFrom(ctx, topic, spans)
}

// WholeFrom is Whole for the spans of a topic: what was deleted in front of them does not count, where a record in front of them is left.
func (r *Reader) WholeFrom(ctx context.Context, topic string, spans []Span) (bool, error) {
	all, err := r.Spans(ctx, topic, time.Time{})
	if err != nil {
		return false, err
	}
	for i, s := range all {
		if s.From > 0 && (i >= len(spans) || s.From >= spans[i].From) {
			return false, nil
		}
	}
	compacted := false
	err = r.within(ctx, func() error {
		var report TopicReport
		asked := topics{cfg: &r.cfg, client: r.client}
		if asked.configuration(topic, &report) == nil {
			compacted = strings.Contains(report.CleanupPolicy, "compact")
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read the configuration of topic %q: %w", topic, err)
	}
	return !compacted, nil
}
