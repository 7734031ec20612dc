package check

import (
	"errors"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

// deadLetters looks at the topic that a policy of [deadletter] needs: nothing else remembers what is in it.
func (c topicCheck) deadLetters(t kafka.TopicReport) []slot.Finding {
	if t.Err != nil {
		f := c.missing(t)
		if errors.Is(t.Err, sink.ErrUnknownTopic) {
			f.Fix = kafka.CreateDeadLetterTopicCommand(c.kafka, t.Name, c.brokers)
			if f.Severity == slot.SeverityError {
				f.WAL = "the relay does not start without it, since a policy of [deadletter] needs it: the slot keeps what is written"
			}
		}
		return []slot.Finding{f}
	}
	f := &topicFindings{name: t.Name}
	f.add(slot.SeverityOK, "topic", "for dead letters", "", "")
	c.permission(f, t, true)
	if t.ConfigErr != nil {
		return f.list
	}
	switch {
	case t.CleanupPolicy != "delete":
		f.add(slot.SeverityError, "topic_cleanup", "cleanup.policy "+t.CleanupPolicy, "delete: compact leaves one dead letter of each key, and the relay refuses that",
			c.alter(t.Name, "cleanup.policy=delete"))
	case t.Retention > 0:
		f.add(slot.SeverityWarning, "topic_cleanup", "retention.ms "+health.Duration(t.Retention), "no limit: dead letters that nobody has redriven by then are lost, and their keys no longer parked",
			c.alter(t.Name, "retention.ms=-1"))
	case t.RetentionBytes > 0:
		f.add(slot.SeverityWarning, "topic_cleanup", "retention.bytes "+health.Bytes(t.RetentionBytes), "no limit: dead letters beyond it are lost", c.alter(t.Name, "retention.bytes=-1"))
	}
	return f.list
}
