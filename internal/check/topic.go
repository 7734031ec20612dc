package check

import (
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/config"
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

// topicFindings collects the findings of one topic.
type topicFindings struct {
	name string
	list []Finding
}

func (f *topicFindings) ok(code, observed string) {
	f.list = append(f.list, okFinding(code, f.name, observed))
}

func (f *topicFindings) info(code, observed, required, fix string) {
	f.list = append(f.list, infoFinding(code, f.name, observed, required, fix))
}

func (f *topicFindings) warn(code, observed, required, fix string) {
	f.list = append(f.list, warningFinding(code, f.name, observed, required, fix))
}

// fail adds an error that stops the relay at the first row for the topic.
func (f *topicFindings) fail(code, observed, required, fix string) {
	finding := configFinding(code, f.name, observed, required, fix)
	finding.WAL = stopsThere
	f.list = append(f.list, finding)
}

const stopsThere = "the first row for it stops the relay there: " +
	"the slot keeps what comes after, more with every write"

func (c topicCheck) alter(topic, setting string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config %s",
		c.kafka.Brokers[0], topic, setting)
}

// topic checks a topic to which rows are published.
func (c topicCheck) topic(t kafka.TopicReport, readable bool) []Finding {
	if t.Err != nil {
		return []Finding{c.missing(t)}
	}
	f := &topicFindings{name: t.Name}
	f.ok("topic", fmt.Sprintf("%d partitions, replication factor %d",
		t.Partitions, t.ReplicationFactor))
	c.permission(f, t, readable)
	c.replicas(f, t)
	if t.ConfigErr != nil {
		f.info("topic", "its settings are not known: "+t.ConfigErr.Error(),
			"the right DescribeConfigs on the topic, to look at min.insync.replicas, sizes and "+
				"timestamps; the relay works without",
			kafka.AllowCommand(c.kafka, "--operation DescribeConfigs --topic "+t.Name))
		return f.list
	}
	c.settings(f, t)
	c.timestamps(f, t)
	return f.list
}

func (c topicCheck) missing(t kafka.TopicReport) Finding {
	create := kafka.CreateTopicCommand(c.kafka, t.Name, c.brokers)
	switch {
	case errors.Is(t.Err, sink.ErrUnknownTopic) && c.kafka.Topics.Create:
		return infoFinding("topic", t.Name, "does not exist; the relay creates it",
			"the right Create on the topic, if the cluster has ACLs", create)
	case errors.Is(t.Err, sink.ErrUnknownTopic):
		f := configFinding("topic", t.Name, "does not exist",
			"an existing topic, or sink.kafka.topics.create", create)
		f.WAL = stopsThere
		return f
	}
	return sinkFinding("topic", t.Name, t.Err)
}

// permission takes the broker's word for what the login may do: to try is to write.
func (c topicCheck) permission(f *topicFindings, t kafka.TopicReport, readable bool) {
	if !c.acls {
		return
	}
	if !t.Rights.Known {
		f.info("topic_permission", "not known: the broker is older than 2.3, and does not tell",
			"Describe and Write on the topic",
			kafka.AllowCommand(c.kafka, "--producer --topic "+t.Name))
		return
	}
	refuse := func(right, required, option string) {
		f.fail("topic_permission", "the login has no right "+right, required,
			kafka.AllowCommand(c.kafka, option+" --topic "+t.Name))
		f.list[len(f.list)-1].Class = ClassPermission
	}
	switch {
	case !t.Rights.Write:
		refuse("Write", "Describe and Write on the topic", "--producer")
	case readable && !t.Rights.Read:
		refuse("Read", "Read on the topic: with snapshot.mode, "+
			"what was published before a crash is read back", "--operation Read")
	default:
		f.ok("topic_permission", "may be written")
	}
}

// replicas judges what becomes of the topic when a broker is down.
func (c topicCheck) replicas(f *topicFindings, t kafka.TopicReport) {
	if len(t.Leaderless) > 0 {
		f.warn("topic_leader", fmt.Sprintf("partitions %v have no leader", t.Leaderless),
			"a leader: they cannot be written to just now", "start the missing brokers")
	}
	if t.ReplicationFactor == 1 && c.brokers > 1 {
		f.warn("topic_replicas", "replication factor 1",
			"3, or at least 2: with one, events are gone with the broker that has them, "+
				"and nothing is published while it is down",
			"kafka-reassign-partitions.sh --bootstrap-server "+c.kafka.Brokers[0]+" --execute "+
				"--reassignment-json-file FILE   # replicas of a topic are changed by a plan")
	}
	if t.ConfigErr != nil {
		return
	}
	n, replicas := t.MinInsync, t.ReplicationFactor
	alter := func(n int) string {
		return c.alter(t.Name, fmt.Sprintf("min.insync.replicas=%d", n))
	}
	both := fmt.Sprintf("min.insync.replicas %d, replication factor %d", n, replicas)
	switch {
	case n > replicas:
		f.fail("topic_replicas", both, "fewer than there are replicas: every write is refused",
			alter(max(1, replicas-1)))
	case n == replicas && replicas > 1:
		f.warn("topic_replicas", both, "one less than there are replicas: "+
			"as it is, nothing can be published while one broker is down", alter(replicas-1))
	case n < 2 && replicas > 1:
		f.warn("topic_replicas", fmt.Sprintf("min.insync.replicas %d", n),
			"2: with one, a message that a single broker holds counts as delivered", alter(2))
	}
	var few []int
	for p, inSync := range t.InSync {
		if inSync < n && inSync > 0 {
			few = append(few, p)
		}
	}
	if len(few) > 0 && n <= replicas {
		f.warn("topic_replicas", fmt.Sprintf(
			"partitions %v have fewer replicas in sync than min.insync.replicas, %d", few, n),
			"enough of them: writes are refused just now", "start the missing brokers")
	}
}
