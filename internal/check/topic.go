package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// topicCheck judges topics of one cluster.
type topicCheck struct {
	kafka   kafka.Config
	all     config.Config
	brokers int
	acls    bool // the cluster has an authoriser, or it is not known
}

// AboutTopic reports whether the subject of a finding is a topic.
func AboutTopic(code string) bool {
	return code == "topic" || code == "message_size" || strings.HasPrefix(code, "topic_")
}

const stopsThere = "the first row for it stops the relay there: the slot keeps what comes " +
	"after, more with every write"

// stop makes f an error that stops the relay at the first row for the topic.
func (f Finding) stop(required, fix string) Finding {
	f = f.fail(required, fix)
	f.WAL = stopsThere
	return f
}

// alter is the command that changes a setting of a topic; value may be a number.
func (c topicCheck) alter(topic, setting string, value any) string {
	return kafka.AlterTopicCommand(c.kafka, topic, setting, value)
}

// topic checks a topic to which rows are published.
func (c topicCheck) topic(t kafka.TopicReport, readable bool) []Finding {
	if t.Err != nil {
		return []Finding{c.missing(t)}
	}
	fs := findings{found("topic", t.Name,
		fmt.Sprintf("%d partitions, replication factor %d", t.Partitions, t.ReplicationFactor))}
	fs.add(c.permission(t, readable)...)
	fs.add(c.replicas(t)...)
	if t.ConfigErr != nil {
		fs.add(found("topic", t.Name, "its settings are not known: "+t.ConfigErr.Error()).info(
			"the right DescribeConfigs on the topic, to look at min.insync.replicas, sizes and "+
				"timestamps; the relay works without",
			kafka.AllowCommand(c.kafka, "--operation DescribeConfigs --topic "+t.Name)))
		return fs
	}
	fs.add(c.settings(t)...)
	fs.add(c.timestamps(t)...)
	return fs
}

func (c topicCheck) missing(t kafka.TopicReport) Finding {
	if !errors.Is(t.Err, sink.ErrUnknownTopic) {
		return sinkFinding("topic", t.Name, t.Err)
	}
	create := kafka.CreateTopicCommand(c.kafka, t.Name, c.brokers)
	if c.kafka.Topics.Create {
		return found("topic", t.Name, "does not exist; the relay creates it").info(
			"the right Create on the topic, if the cluster has ACLs", create)
	}
	return found("topic", t.Name, "does not exist").stop(
		"an existing topic, or sink.kafka.topics.create", create)
}

// permission takes the broker's word for what the login may do: to try is to write.
func (c topicCheck) permission(t kafka.TopicReport, readable bool) []Finding {
	if !c.acls {
		return nil
	}
	f := found("topic_permission", t.Name, "may be written")
	refuse := func(right, required, option string) {
		f.Observed = "the login has no right " + right
		f = f.stop(required, kafka.AllowCommand(c.kafka, option+" --topic "+t.Name))
		f.Class = ClassPermission
	}
	switch {
	case !t.Rights.Known:
		f.Observed = "not known: the broker is older than 2.3, and does not report it"
		f = f.info("Describe and Write on the topic",
			kafka.AllowCommand(c.kafka, "--producer --topic "+t.Name))
	case !t.Rights.Write:
		refuse("Write", "Describe and Write on the topic", "--producer")
	case readable && !t.Rights.Read:
		refuse("Read", "Read on the topic: with snapshot.mode or relay.dedup, what was published "+
			"before a crash is read back", "--operation Read")
	}
	return []Finding{f}
}

// replicas judges what becomes of the topic when a broker is down.
func (c topicCheck) replicas(t kafka.TopicReport) []Finding {
	var fs findings
	warn := func(code, observed, required, fix string) {
		fs.add(found(code, t.Name, observed).warn(required, fix))
	}
	if len(t.Leaderless) > 0 {
		warn("topic_leader", fmt.Sprintf("partitions %v have no leader", t.Leaderless),
			"a leader: they cannot be written to just now", "start the missing brokers")
	}
	if t.ReplicationFactor == 1 && c.brokers > 1 {
		warn("topic_replicas", "replication factor 1",
			"3, or at least 2: with one, events are gone with the broker that has them, and nothing is "+
				"published while it is down",
			kafka.Command(c.kafka, "kafka-reassign-partitions.sh", "--execute "+
				"--reassignment-json-file FILE   # replicas of a topic are changed by a plan"))
	}
	if t.ConfigErr != nil {
		return fs
	}
	const setting = "min.insync.replicas"
	n, replicas := t.MinInsync, t.ReplicationFactor
	both := fmt.Sprintf("min.insync.replicas %d, replication factor %d", n, replicas)
	switch {
	case n > replicas:
		fs.add(found("topic_replicas", t.Name, both).stop(
			"fewer than there are replicas: every write is refused",
			c.alter(t.Name, setting, max(1, replicas-1))))
	case n == replicas && replicas > 1:
		warn("topic_replicas", both, "one less than there are replicas: as it is, nothing can be "+
			"published while one broker is down", c.alter(t.Name, setting, replicas-1))
	case n < 2 && replicas > 1:
		warn("topic_replicas", fmt.Sprintf("min.insync.replicas %d", n), "2: with one, a message that "+
			"a single broker has counts as delivered", c.alter(t.Name, setting, 2))
	}
	var few []int
	for p, inSync := range t.InSync {
		if inSync < n && inSync > 0 {
			few = append(few, p)
		}
	}
	if len(few) > 0 && n <= replicas {
		warn("topic_replicas", fmt.Sprintf(
			"partitions %v have fewer replicas in sync than min.insync.replicas, %d", few, n),
			"enough of them: writes are refused just now", "start the missing brokers")
	}
	return fs
}

// settings judges size, elections, cleanup and compression.
func (c topicCheck) settings(t kafka.TopicReport) []Finding {
	var fs findings
	if limit := c.kafka.MaxMessageBytes; t.MaxMessageBytes < limit {
		fs.add(found("topic_size", t.Name, fmt.Sprintf("max.message.bytes %d", t.MaxMessageBytes)).warn(
			fmt.Sprintf("at least sink.kafka.max_message_bytes, %d", limit),
			c.alter(t.Name, "max.message.bytes", limit)+", or set sink.kafka.max_message_bytes lower"))
	}
	if t.UncleanElection {
		fs.add(found("topic_leader", t.Name, "unclean.leader.election.enable is on").warn(
			"off: an acknowledged message can be lost",
			c.alter(t.Name, "unclean.leader.election.enable", false)))
	}
	if t.CleanupPolicy == "compact" {
		f := found("topic_cleanup", t.Name, "cleanup.policy compact")
		fix := c.alter(t.Name, "cleanup.policy", "delete")
		keyless := func(r router.Config) bool { return r.NullKey == "publish" }
		if slices.ContainsFunc(c.all.Router, keyless) {
			f.Observed += ", and router.null_key publish"
			f = f.warn("keys, or cleanup.policy delete: a record without a key is refused, and halts the "+
				"relay", fix+", or set router.null_key to refuse")
		} else {
			f = f.info("delete, unless consumers want only the newest event of each key: older ones are "+
				"removed", fix)
		}
		fs.add(f)
	}
	ours := c.kafka.Compression
	same := []string{"", "producer", ours}
	if ours == "none" {
		same = append(same, "uncompressed")
	}
	if !slices.Contains(same, t.Compression) {
		fs.add(found("topic_compression", t.Name,
			"compression.type "+t.Compression+", sink.kafka.compression "+ours).info(
			"the same, or producer: as it is, the broker compresses every batch again",
			c.alter(t.Name, "compression.type", "producer")))
	}
	return fs
}

const (
	// oldestRecord is the age of the oldest record that is relayed: after a long stop, a lost slot,
	// or with a snapshot.
	oldestRecord = 7 * 24 * time.Hour
	// clockError is how far a clock may be ahead of the broker's.
	clockError = 10 * time.Minute
)

// timestamps judges which times the broker refuses, which halts the relay, or replaces.
func (c topicCheck) timestamps(t kafka.TopicReport) []Finding {
	stamp := func(setting string, value any) Finding {
		return found("topic_timestamp", t.Name, fmt.Sprint(setting, " ", value))
	}
	if t.TimestampType == "LogAppendTime" { // no time of the relay's is refused
		return []Finding{stamp("message.timestamp.type", "LogAppendTime").info(
			"CreateTime, if consumers want the time of the event: the broker puts its own in its place",
			c.alter(t.Name, "message.timestamp.type", "CreateTime"))}
	}
	var fs findings
	if age := t.TimestampMaxAge; age > 0 && age < oldestRecord {
		const setting = "message.timestamp.before.max.ms"
		fs.add(stamp(setting, health.Duration(age)).warn(
			"more than the relay is ever stopped, or no limit: an older record is refused, and halts the "+
				"relay", c.alter(t.Name, setting, int64(1<<63-1))))
	}
	if ahead := t.TimestampMaxAhead; ahead > 0 && ahead < clockError {
		const setting = "message.timestamp.after.max.ms"
		fs.add(stamp(setting, health.Duration(ahead)).warn(
			"more than clocks are apart: a record further ahead of the broker's is refused, and halts the "+
				"relay", c.alter(t.Name, setting, 3600000)))
	}
	return fs
}

// size compares the largest of the newest records with what may be sent.
func (c topicCheck) size(t kafka.TopicReport, largest int) []Finding {
	if largest == 0 {
		return nil
	}
	f := found("message_size", t.Name,
		fmt.Sprintf("the largest of the newest rows makes a record of %d bytes", largest))
	const setting, smaller = "max.message.bytes", ", unless compression makes it smaller"
	switch limit := c.kafka.MaxMessageBytes; {
	case largest > limit:
		unless := smaller
		if c.kafka.Compression == "none" {
			unless = ""
		}
		f = f.warn(fmt.Sprintf("at most sink.kafka.max_message_bytes, %d%s: such a row halts the relay",
			limit, unless), fmt.Sprintf("set sink.kafka.max_message_bytes to %d or more; and %s",
			2*largest, c.alter(t.Name, setting, 2*largest)))
	case t.Err == nil && t.ConfigErr == nil && largest > t.MaxMessageBytes:
		f = f.warn(fmt.Sprintf("at most max.message.bytes, %d%s: such a row halts the relay",
			t.MaxMessageBytes, smaller), c.alter(t.Name, setting, max(2*largest, limit)))
	}
	return []Finding{f}
}
