package check

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

// topicCheck judges topics of one cluster.
type topicCheck struct {
	kafka   kafka.Config
	all     config.Config
	brokers int
	acls    bool // the cluster has an authoriser, or it is not known
}

// aboutTopic tells whether the subject of a finding is a topic.
func AboutTopic(code string) bool {
	return code == "topic" || code == "message_size" || strings.HasPrefix(code, "topic_")
}

// topicFindings collects what is wrong with one topic.
type topicFindings struct {
	name string
	list []slot.Finding
}

func (f *topicFindings) add(severity slot.Severity, code, observed, required, fix string) {
	finding := slot.Finding{Severity: severity, Code: code, Subject: f.name, Observed: observed, Required: required, Fix: fix}
	if severity == slot.SeverityError {
		finding.Class = slot.ClassConfiguration
		finding.WAL = stopsThere
	}
	f.list = append(f.list, finding)
}

const stopsThere = "the first row for it stops the relay there: the slot keeps what comes after, more with every write"

func (c topicCheck) alter(topic, setting string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config %s", c.kafka.Brokers[0], topic, setting)
}

// topic looks at a topic to which rows are published.
func (c topicCheck) topic(t kafka.TopicReport, readable bool) []slot.Finding {
	if t.Err != nil {
		return []slot.Finding{c.missing(t)}
	}
	f := &topicFindings{name: t.Name}
	f.add(slot.SeverityOK, "topic", fmt.Sprintf("%d partitions, replication factor %d", t.Partitions, t.ReplicationFactor), "", "")
	c.permission(f, t, readable)
	c.replicas(f, t)
	if t.ConfigErr != nil {
		f.add(slot.SeverityInfo, "topic", "its settings are not known: "+t.ConfigErr.Error(), "the right DescribeConfigs on the topic, to look at min.insync.replicas, sizes and "+
			"timestamps; the relay works without", kafka.AllowCommand(c.kafka, "--operation DescribeConfigs --topic "+t.Name))
		return f.list
	}
	c.settings(f, t)
	c.timestamps(f, t)
	return f.list
}

func (c topicCheck) missing(t kafka.TopicReport) slot.Finding {
	switch {
	case errors.Is(t.Err, sink.ErrUnknownTopic) && c.kafka.Topics.Create:
		return slot.Finding{Severity: slot.SeverityInfo, Code: "topic", Subject: t.Name, Observed: "does not exist; the relay creates it",
			Required: "the right Create on the topic, if the cluster has ACLs", Fix: kafka.CreateTopicCommand(c.kafka, t.Name, c.brokers)}
	case errors.Is(t.Err, sink.ErrUnknownTopic):
		f := sinkFinding("topic", t.Name, t.Err)
		f.Observed, f.Required = "does not exist", "an existing topic, or sink.kafka.topics.create"
		f.WAL, f.Fix = stopsThere, kafka.CreateTopicCommand(c.kafka, t.Name, c.brokers)
		return f
	}
	return sinkFinding("topic", t.Name, t.Err)
}

// permission looks at what the broker says the login may do, since trying would write.
func (c topicCheck) permission(f *topicFindings, t kafka.TopicReport, readable bool) {
	if !c.acls {
		return
	}
	if !t.Rights.Known {
		f.add(slot.SeverityInfo, "topic_permission", "not known: the broker is older than 2.3, and does not tell", "Describe and Write on the topic",
			kafka.AllowCommand(c.kafka, "--producer --topic "+t.Name))
		return
	}
	refuse := func(right, required, option string) {
		f.add(slot.SeverityError, "topic_permission", "the login has no right "+right, required, kafka.AllowCommand(c.kafka, option+" --topic "+t.Name))
		f.list[len(f.list)-1].Class = slot.ClassPermission
	}
	switch {
	case !t.Rights.Write:
		refuse("Write", "Describe and Write on the topic", "--producer")
	case readable && !t.Rights.Read:
		refuse("Read", "Read on the topic: with snapshot.mode, what was published before a crash is read back", "--operation Read")
	default:
		f.add(slot.SeverityOK, "topic_permission", "may be written", "", "")
	}
}

// replicas looks at what becomes of the topic when a broker is down.
func (c topicCheck) replicas(f *topicFindings, t kafka.TopicReport) {
	if len(t.Leaderless) > 0 {
		f.add(slot.SeverityWarning, "topic_leader", fmt.Sprintf("partitions %v have no leader", t.Leaderless), "a leader: nobody can write to them just now", "start the missing brokers")
	}
	reassign := "kafka-reassign-partitions.sh --bootstrap-server " + c.kafka.Brokers[0] + " --execute --reassignment-json-file FILE   # replicas of a topic are changed by a plan"
	if t.ReplicationFactor == 1 && c.brokers > 1 {
		f.add(slot.SeverityWarning, "topic_replicas", "replication factor 1", "3, or at least 2: with one, events are gone with the broker that has them, and nothing is "+
			"published while it is down", reassign)
	}
	if t.ConfigErr != nil {
		return
	}
	alter := func(n int) string { return c.alter(t.Name, fmt.Sprintf("min.insync.replicas=%d", n)) }
	var few []int
	for p, n := range t.InSync {
		if n < t.MinInsync && n > 0 {
			few = append(few, p)
		}
	}
	switch n, replicas := t.MinInsync, t.ReplicationFactor; {
	case n > replicas:
		f.add(slot.SeverityError, "topic_replicas", fmt.Sprintf("min.insync.replicas %d, replication factor %d", n, replicas), "fewer than there are replicas: every write is refused",
			alter(max(1, replicas-1)))
	case n == replicas && replicas > 1:
		f.add(slot.SeverityWarning, "topic_replicas", fmt.Sprintf("min.insync.replicas %d, replication factor %d", n, replicas),
			"one less than there are replicas: as it is, nothing can be published while one broker is down", alter(replicas-1))
	case n < 2 && replicas > 1:
		f.add(slot.SeverityWarning, "topic_replicas", fmt.Sprintf("min.insync.replicas %d", n), "2: with one, a message that a single broker holds counts as delivered", alter(2))
	}
	if len(few) > 0 && t.MinInsync <= t.ReplicationFactor {
		f.add(slot.SeverityWarning, "topic_replicas", fmt.Sprintf("partitions %v have fewer replicas in sync than min.insync.replicas, %d", few, t.MinInsync),
			"enough of them: writes are refused just now", "start the missing brokers")
	}
}

func (c topicCheck) settings(f *topicFindings, t kafka.TopicReport) {
	if t.MaxMessageBytes < c.kafka.MaxMessageBytes {
		f.add(slot.SeverityWarning, "topic_size", fmt.Sprintf("max.message.bytes %d", t.MaxMessageBytes), fmt.Sprintf("at least sink.kafka.max_message_bytes, %d", c.kafka.MaxMessageBytes),
			c.alter(t.Name, fmt.Sprintf("max.message.bytes=%d", c.kafka.MaxMessageBytes))+", or set sink.kafka.max_message_bytes lower")
	}
	if t.UncleanElection {
		f.add(slot.SeverityWarning, "topic_leader", "unclean.leader.election.enable is on", "off: an acknowledged message can be lost",
			c.alter(t.Name, "unclean.leader.election.enable=false"))
	}
	if t.CleanupPolicy == "compact" {
		keyless := false
		for _, rule := range c.all.Router {
			keyless = keyless || rule.NullKey == "publish"
		}
		if keyless {
			f.add(slot.SeverityWarning, "topic_cleanup", "cleanup.policy compact, and router.null_key publish", "keys, or cleanup.policy delete: a record without a key is refused, and halts the relay",
				c.alter(t.Name, "cleanup.policy=delete")+", or set router.null_key to refuse")
		} else {
			f.add(slot.SeverityInfo, "topic_cleanup", "cleanup.policy compact", "delete, unless consumers want only the newest event of each key: older ones are removed",
				c.alter(t.Name, "cleanup.policy=delete"))
		}
	}
	if t.Compression != "" && t.Compression != "producer" && t.Compression != c.kafka.Compression && (t.Compression != "uncompressed" || c.kafka.Compression != "none") {
		f.add(slot.SeverityInfo, "topic_compression", "compression.type "+t.Compression+", sink.kafka.compression "+c.kafka.Compression,
			"the same, or producer: as it is, the broker compresses every batch anew", c.alter(t.Name, "compression.type=producer"))
	}
}

// How old a record may be that is still relayed: after a long stop, a lost slot, or with a snapshot. And how far clocks go wrong.
const (
	agedRecord  = 7 * 24 * time.Hour
	aheadRecord = 10 * time.Minute
)

// timestamps: a broker refuses records of a time that it does not like, which halts the relay, or gives them another.
func (c topicCheck) timestamps(f *topicFindings, t kafka.TopicReport) {
	if t.TimestampType == "LogAppendTime" {
		f.add(slot.SeverityInfo, "topic_timestamp", "message.timestamp.type LogAppendTime", "CreateTime, if consumers want the time of the event: the broker puts its own in its place",
			c.alter(t.Name, "message.timestamp.type=CreateTime"))
		return // any time of ours is fine
	}
	if t.TimestampMaxAge > 0 && t.TimestampMaxAge < agedRecord {
		f.add(slot.SeverityWarning, "topic_timestamp", "message.timestamp.before.max.ms "+health.Duration(t.TimestampMaxAge), "more than the relay is ever stopped, or no limit: an older record is "+
			"refused, and halts the relay", c.alter(t.Name, fmt.Sprintf("message.timestamp.before.max.ms=%d", int64(1<<63-1))))
	}
	if t.TimestampMaxAhead > 0 && t.TimestampMaxAhead < aheadRecord {
		f.add(slot.SeverityWarning, "topic_timestamp", "message.timestamp.after.max.ms "+health.Duration(t.TimestampMaxAhead), "more than clocks are apart: a record that is "+
			"further ahead of the broker's is refused, and halts the relay", c.alter(t.Name, "message.timestamp.after.max.ms=3600000"))
	}
}

// size compares the largest of the newest records with what may be sent.
func (c topicCheck) size(t kafka.TopicReport, largest int) []slot.Finding {
	f := &topicFindings{name: t.Name}
	observed := fmt.Sprintf("the largest of the newest rows makes a record of %d bytes", largest)
	switch {
	case largest == 0:
	case largest > c.kafka.MaxMessageBytes:
		unless := ""
		if c.kafka.Compression != "none" {
			unless = ", unless compression makes it smaller"
		}
		f.add(slot.SeverityWarning, "message_size", observed, fmt.Sprintf("at most sink.kafka.max_message_bytes, %d%s: such a row halts the relay", c.kafka.MaxMessageBytes, unless),
			fmt.Sprintf("set sink.kafka.max_message_bytes to %d or more; and %s", 2*largest, c.alter(t.Name, fmt.Sprintf("max.message.bytes=%d", 2*largest))))
	case t.Err == nil && t.ConfigErr == nil && largest > t.MaxMessageBytes:
		f.add(slot.SeverityWarning, "message_size", observed, fmt.Sprintf("at most max.message.bytes, %d, unless compression makes it smaller: such a row halts the relay", t.MaxMessageBytes),
			c.alter(t.Name, fmt.Sprintf("max.message.bytes=%d", max(2*largest, c.kafka.MaxMessageBytes))))
	default:
		f.add(slot.SeverityOK, "message_size", observed, "", "")
	}
	return f.list
}

// heartbeat: rows are relayed without it, so nothing about it is an error.
func (c topicCheck) heartbeat(t kafka.TopicReport) []slot.Finding {
	findings := c.topic(t, false)
	for i := range findings {
		f := &findings[i]
		if f.Severity == slot.SeverityError {
			f.Severity, f.WAL, f.Class = slot.SeverityWarning, "", ""
		}
		if i == 0 && t.Err != nil {
			f.Required = "an existing topic for relay.heartbeat_interval, or sink.kafka.topics.create; rows are relayed without it"
		}
	}
	return findings
}

// snapshot looks at the topic that remembers how far a snapshot has come.
func (c topicCheck) snapshot(t kafka.TopicReport) []slot.Finding {
	return c.compacted("snapshot_topic", t)
}

// positions looks at the topic that keeps the position of relay.exactly_once.
func (c topicCheck) positions(t kafka.TopicReport) []slot.Finding {
	findings := c.compacted("position_topic", t)
	if t.Err == nil {
		f := &topicFindings{name: t.Name}
		c.replicas(f, t)
		findings = append(findings, f.list...)
	}
	return findings
}

// compacted looks at a topic that has to keep the newest record of each key.
func (c topicCheck) compacted(code string, t kafka.TopicReport) []slot.Finding {
	f := &topicFindings{name: t.Name}
	create := kafka.CreateCompactedTopicCommand(c.kafka, t.Name, c.brokers)
	switch {
	case errors.Is(t.Err, sink.ErrUnknownTopic):
		f.add(slot.SeverityInfo, code, "does not exist; the relay creates it", "the right Create on the topic, if the cluster has ACLs", create)
		return f.list
	case t.Err != nil:
		return []slot.Finding{sinkFinding(code, t.Name, t.Err)}
	}
	f.add(slot.SeverityOK, code, "cleanup.policy "+terminal.OrDash(t.CleanupPolicy), "", "")
	if t.ConfigErr == nil && t.CleanupPolicy != "compact" {
		f.list[0].Severity, f.list[0].Class = slot.SeverityError, slot.ClassConfiguration
		f.list[0].Required, f.list[0].Fix = "compact: only that keeps the newest record for as long as the slot lives", c.alter(t.Name, "cleanup.policy=compact")
	}
	c.permission(f, t, true)
	return f.list
}
