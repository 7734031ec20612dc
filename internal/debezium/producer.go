package debezium

import (
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/units"
)

const override = "producer.override."

// placeholderBroker makes the file valid before the brokers are known.
const placeholderBroker = "kafka:9092"

// producer maps the overrides of Kafka Connect's producer.
func (t *translator) producer() {
	t.brokers()
	t.security()
	t.options("sink.kafka")
	t.requestSize()
	if linger, ok := t.milliseconds(override + "linger.ms"); ok {
		text := ""
		if linger > time.Second {
			linger, text = time.Second, "at most one second"
		}
		t.mapped(override+"linger.ms", text, setting{"sink.kafka", "linger", linger, ""})
	}
	const delivery = override + "delivery.timeout.ms"
	switch timeout, ok := t.milliseconds(delivery); {
	case !ok:
	case timeout <= 30*time.Second || timeout > 24*time.Hour:
		t.notNeeded(delivery, "postrider never drops a message: after sink.kafka.delivery_timeout "+
			"without any acknowledgement it starts again from the slot")
	default:
		t.mapped(delivery, "", setting{"sink.kafka", "delivery_timeout", timeout, ""})
	}
}

func (t *translator) brokers() {
	const name = override + "bootstrap.servers"
	v, given := t.get(name)
	brokers, text := t.external.Brokers, "as the command line has them"
	if given && len(brokers) == 0 {
		text = ""
		for _, b := range list(v) {
			if _, host, found := strings.Cut(b, "://"); found {
				b = host
			}
			brokers = append(brokers, b)
		}
	}
	if len(brokers) > 0 && !reference.MatchString(strings.Join(brokers, "")) {
		t.mapped(name, text, setting{"sink.kafka", "brokers", brokers, ""})
		return
	}
	t.mapped(name, "is not in the file: the worker has them, often with TLS and a login "+
		"(producer.security.protocol and what belongs to it). "+
		"Give them with --brokers, or edit sink.kafka, sink.kafka.tls and sink.kafka.sasl",
		setting{"sink.kafka", "brokers", []string{placeholderBroker},
			"Not in the connector's file: put the worker's bootstrap.servers here."}).attend()
}

func (t *translator) requestSize() {
	const name = override + "max.request.size"
	v, given := t.get(name)
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case !given:
	case err != nil || n < 1:
		t.refuse(name, "is no number of bytes: Kafka refuses it too")
	case n < 1024:
		t.notNeeded(name, "is less than the least that postrider takes, 1KiB")
	case n >= 99<<20:
		t.refuse(name, "is more than the most that postrider sends, 99MiB: keep large documents "+
			"elsewhere and their address in the payload")
	default:
		t.mapped(name, "", setting{"sink.kafka", "max_message_bytes", units.FormatSize(n), ""})
	}
}

// exactlyOnce maps what a connector demands of its worker. What it only requests depends on the
// worker.
func (t *translator) exactlyOnce() {
	const name = "exactly.once.support"
	switch _, given := t.get(name); {
	case !given:
	case t.is(name, "required"):
		t.mapped(name, "postrider publishes in transactions of its own: consumers with "+
			"isolation.level=read_committed see each event once (docs/GUARANTEES.md)",
			setting{"relay", "exactly_once", true, ""}).attend()
	case t.is(name, "requested"):
		t.notNeeded(name, "if the worker has exactly.once.source.support=enabled, set "+
			"relay.exactly_once = true; else events are published at least once, as now, and "+
			"relay.dedup = \"tail\" leaves out what a crash would repeat").attend()
	default:
		t.refuse(name, "must be requested or required: Kafka Connect refuses it too")
	}
}

const creation = "topic.creation."

// topics maps the creation of topics by Kafka Connect.
func (t *translator) topics() {
	if len(t.below(creation)) == 0 {
		t.notNeeded(creation+"enable", "no topics are created, unless by the broker for Connect "+
			"(auto.create.topics.enable). postrider creates none, and waits "+
			"for one that does not exist: set sink.kafka.topics if new ones come up").attend()
		return
	}
	const section = "sink.kafka.topics"
	numbers := [][2]string{
		{"default.partitions", "partitions"}, {"default.replication.factor", "replication_factor"},
	}
	for _, o := range numbers {
		name := creation + o[0]
		v, given := t.get(name)
		n, err := strconv.Atoi(v)
		switch {
		case !given:
		case err != nil:
			t.refuse(name, "is no number: Kafka Connect refuses it too")
		case n < 1:
			t.refuse(name, "leaves the number to the broker: give a number in "+section+"."+o[1]+
				", or create the topics beforehand and remove topic.creation")
		default:
			t.mapped(name, "", setting{section, o[1], n, ""})
		}
	}
	if len(t.doc.in(section)) > 0 {
		t.doc.set(setting{section, "create", true, ""})
		for _, o := range numbers {
			if t.doc.get(section, o[1]) == nil {
				t.doc.set(setting{section, o[1], 1, "Not in the connector's file."})
			}
		}
	}
	if t.is(creation+"enable", "false") {
		t.doc.set(setting{section, "create", false, ""})
	}
	t.given(creation+"enable", "sink.kafka.topics.create decides that")
}
