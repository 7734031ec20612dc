package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink/kafka"
)

// settings judges size, elections, cleanup and compression.
func (c topicCheck) settings(f *topicFindings, t kafka.TopicReport) {
	if limit := c.kafka.MaxMessageBytes; t.MaxMessageBytes < limit {
		f.warn("topic_size", fmt.Sprintf("max.message.bytes %d", t.MaxMessageBytes),
			fmt.Sprintf("at least sink.kafka.max_message_bytes, %d", limit),
			c.alter(t.Name, fmt.Sprintf("max.message.bytes=%d", limit))+
				", or set sink.kafka.max_message_bytes lower")
	}
	if t.UncleanElection {
		f.warn("topic_leader", "unclean.leader.election.enable is on",
			"off: an acknowledged message can be lost",
			c.alter(t.Name, "unclean.leader.election.enable=false"))
	}
	if t.CleanupPolicy == "compact" {
		fix := c.alter(t.Name, "cleanup.policy=delete")
		if slices.ContainsFunc(c.all.Router,
			func(r router.Config) bool { return r.NullKey == "publish" }) {
			f.warn("topic_cleanup", "cleanup.policy compact, and router.null_key publish",
				"keys, or cleanup.policy delete: a record without a key is refused, and halts "+
					"the relay",
				fix+", or set router.null_key to refuse")
		} else {
			f.info("topic_cleanup", "cleanup.policy compact", "delete, "+
				"unless consumers want only the newest event of each key: older ones are removed",
				fix)
		}
	}
	ours := c.kafka.Compression
	same := []string{"", "producer", ours}
	if ours == "none" {
		same = append(same, "uncompressed")
	}
	if !slices.Contains(same, t.Compression) {
		f.info("topic_compression",
			"compression.type "+t.Compression+", sink.kafka.compression "+ours,
			"the same, or producer: as it is, the broker compresses every batch again",
			c.alter(t.Name, "compression.type=producer"))
	}
}

const (
	// oldestRecord is how old a record may be that is still relayed: after a long stop, a lost
	// slot, or with a snapshot.
	oldestRecord = 7 * 24 * time.Hour
	// clockError is how far a clock may be ahead of the broker's.
	clockError = 10 * time.Minute
)

// timestamps judges which times the broker refuses, which halts the relay, or replaces.
func (c topicCheck) timestamps(f *topicFindings, t kafka.TopicReport) {
	const code = "topic_timestamp"
	if t.TimestampType == "LogAppendTime" {
		f.info("topic_timestamp", "message.timestamp.type LogAppendTime",
			"CreateTime, if consumers want the time of the event: the broker puts its own in "+
				"its place",
			c.alter(t.Name, "message.timestamp.type=CreateTime"))
		return // no time of ours is refused
	}
	if age := t.TimestampMaxAge; age > 0 && age < oldestRecord {
		f.warn(code, "message.timestamp.before.max.ms "+health.Duration(age),
			"more than the relay "+
				"is ever stopped, or no limit: an older record is refused, and halts the relay",
			c.alter(t.Name, fmt.Sprintf("message.timestamp.before.max.ms=%d", int64(1<<63-1))))
	}
	if ahead := t.TimestampMaxAhead; ahead > 0 && ahead < clockError {
		f.warn(code, "message.timestamp.after.max.ms "+health.Duration(ahead),
			"more than clocks are apart: a record further ahead of the broker's is refused, "+
				"and halts the relay",
			c.alter(t.Name, "message.timestamp.after.max.ms=3600000"))
	}
}

// size compares the largest of the newest records with what may be sent.
func (c topicCheck) size(t kafka.TopicReport, largest int) []Finding {
	if largest == 0 {
		return nil
	}
	f := &topicFindings{name: t.Name}
	observed := fmt.Sprintf("the largest of the newest rows makes a record of %d bytes", largest)
	alter := func(n int) string { return c.alter(t.Name, fmt.Sprintf("max.message.bytes=%d", n)) }
	const smaller = ", unless compression makes it smaller"
	switch limit := c.kafka.MaxMessageBytes; {
	case largest > limit:
		unless := smaller
		if c.kafka.Compression == "none" {
			unless = ""
		}
		f.warn("message_size", observed, fmt.Sprintf(
			"at most sink.kafka.max_message_bytes, %d%s: such a row halts the relay", limit,
			unless),
			fmt.Sprintf("set sink.kafka.max_message_bytes to %d or more; and %s",
				2*largest, alter(2*largest)))
	case t.Err == nil && t.ConfigErr == nil && largest > t.MaxMessageBytes:
		f.warn("message_size", observed, fmt.Sprintf(
			"at most max.message.bytes, %d%s: such a row halts the relay", t.MaxMessageBytes,
			smaller),
			alter(max(2*largest, limit)))
	default:
		f.ok("message_size", observed)
	}
	return f.list
}
