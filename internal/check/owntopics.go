package check

import (
	"errors"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// own are the topics that the relay needs besides those of rows, and what checks each.
func (c topicCheck) own() map[string]func(topicCheck, kafka.TopicReport) []Finding {
	topics := map[string]func(topicCheck, kafka.TopicReport) []Finding{}
	if c.all.Relay.HeartbeatInterval > 0 {
		topics[c.all.HeartbeatTopic()] = topicCheck.heartbeat
	}
	if c.all.DeadLetter.On() {
		topics[c.all.DeadLetter.Topic] = topicCheck.deadLetters
	}
	if c.all.Snapshot.On() {
		topics[c.all.Snapshot.Topic] = topicCheck.snapshot
	}
	if c.all.Relay.ExactlyOnce {
		topics[kafka.TransactionState] = topicCheck.transactionState
		topics[c.all.Relay.PositionTopic] = topicCheck.positions
	}
	return topics
}

// heartbeat has no errors: rows are relayed without it.
func (c topicCheck) heartbeat(t kafka.TopicReport) []Finding {
	fs := c.topic(t, false)
	for i := range fs {
		if fs[i].Severity == SeverityError {
			fs[i].Severity, fs[i].WAL, fs[i].Class = SeverityWarning, "", ""
		}
	}
	if t.Err != nil {
		fs[0].Required = "an existing topic for relay.heartbeat_interval, or " +
			"sink.kafka.topics.create; rows are relayed without it"
	}
	return fs
}

// snapshot checks the topic that keeps how far a snapshot has come.
func (c topicCheck) snapshot(t kafka.TopicReport) []Finding {
	return c.compacted("snapshot_topic", t)
}

// positions checks the topic that keeps the position of relay.exactly_once.
func (c topicCheck) positions(t kafka.TopicReport) []Finding {
	fs := c.compacted("position_topic", t)
	if t.Err == nil {
		fs = append(fs, c.replicas(t)...)
	}
	return fs
}

// compacted checks a topic that has to keep the newest record of each key.
func (c topicCheck) compacted(code string, t kafka.TopicReport) []Finding {
	switch {
	case errors.Is(t.Err, sink.ErrUnknownTopic):
		return []Finding{found(code, t.Name, "does not exist; the relay creates it").info(
			"the right Create on the topic, if the cluster has ACLs",
			kafka.CreateCompactedTopicCommand(c.kafka, t.Name, c.brokers))}
	case t.Err != nil:
		return []Finding{sinkFinding(code, t.Name, t.Err)}
	}
	f := found(code, t.Name, "cleanup.policy "+terminal.OrDash(t.CleanupPolicy))
	if t.ConfigErr == nil && t.CleanupPolicy != "compact" {
		f = f.fail("compact: only that keeps the newest record for as long as the slot lives",
			c.alter(t.Name, "cleanup.policy", "compact"))
	}
	return append([]Finding{f}, c.permission(t, true)...)
}

// deadLetters checks the topic that a policy of [deadletter] needs: it is the only copy of its
// rows.
func (c topicCheck) deadLetters(t kafka.TopicReport) []Finding {
	if t.Err != nil {
		f := c.missing(t)
		if errors.Is(t.Err, sink.ErrUnknownTopic) {
			f.Fix = kafka.CreateDeadLetterTopicCommand(c.kafka, t.Name, c.brokers)
			if f.Severity == SeverityError {
				f.WAL = "the relay does not start without it, since a policy of [deadletter] needs it: the " +
					"slot keeps what is written"
			}
		}
		return []Finding{f}
	}
	fs := findings{found("topic", t.Name, "for dead letters")}
	fs.add(c.permission(t, true)...)
	cleanup := func(setting, value string) Finding {
		return found("topic_cleanup", t.Name, setting+" "+value)
	}
	switch {
	case t.ConfigErr != nil:
	case t.CleanupPolicy != "delete":
		fs.add(cleanup("cleanup.policy", t.CleanupPolicy).stop(
			"delete: compact leaves one dead letter of each key, and the relay refuses that",
			c.alter(t.Name, "cleanup.policy", "delete")))
	case t.Retention > 0:
		fs.add(cleanup("retention.ms", health.Duration(t.Retention)).warn(
			"no limit: dead letters that are not redriven by then are lost, and their keys no longer "+
				"parked", c.alter(t.Name, "retention.ms", -1)))
	case t.RetentionBytes > 0:
		fs.add(cleanup("retention.bytes", health.Bytes(t.RetentionBytes)).warn(
			"no limit: dead letters beyond it are lost", c.alter(t.Name, "retention.bytes", -1)))
	}
	return fs
}

// transactionState checks the replicas of Kafka's own topic, as far as the login may see it. The
// first transaction creates it.
func (c topicCheck) transactionState(t kafka.TopicReport) []Finding {
	if t.Err != nil {
		return nil
	}
	fs := c.replicas(t)
	for i := range fs {
		fs[i].Code = "kafka_transactions"
	}
	return fs
}
