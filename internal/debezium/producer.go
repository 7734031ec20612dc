package debezium

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const override = "producer.override."

// placeholderBroker lets the file be valid before somebody has named the brokers.
const placeholderBroker = "kafka:9092"

// producer maps the overrides of Kafka Connect's producer.
func (t *translator) producer() {
	t.brokers()
	t.security()
	t.word(override+"compression.type", []string{"none", "gzip", "snappy", "lz4", "zstd"},
		func(word string) setting {
			return setting{"sink.kafka", "compression", word, ""}
		})
	if v, given := t.get(override + "client.id"); given {
		t.mapped(override+"client.id", "", setting{"sink.kafka", "client_id", v, ""})
	}
	t.requestSize()
	t.linger()
	t.deliveryTimeout()
	t.acks()
	for _, p := range t.below(override) {
		t.producerOption(p, strings.TrimPrefix(p, override))
	}
}

func (t *translator) brokers() {
	const name = override + "bootstrap.servers"
	v, given := t.get(name)
	brokers := t.options.Brokers
	text := "as the command line has them"
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
	s := setting{
		"sink.kafka", "brokers", []string{placeholderBroker},
		"Not in the connector's file: put the worker's bootstrap.servers here.",
	}
	t.mapped(name, "is not in the file: the worker has them, often with TLS and a login "+
		"(producer.security.protocol and what belongs to it). "+
		"Give them with --brokers, or edit sink.kafka, sink.kafka.tls and sink.kafka.sasl", s).attend()
}

func (t *translator) requestSize() {
	const name = override + "max.request.size"
	v, given := t.get(name)
	if !given {
		return
	}
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil || n < 1:
		t.refuse(name, "is no number of bytes: Kafka refuses it too")
	case n < 1024:
		t.notNeeded(name, "is less than the least that postrider takes, 1KiB")
	case n >= 99<<20:
		t.refuse(name, "is more than the most that postrider sends, 99MiB: keep large documents "+
			"elsewhere and their address in the payload")
	default:
		t.mapped(name, "", setting{"sink.kafka", "max_message_bytes", size(n), ""})
	}
}

// size is a size as the configuration file has it.
func size(n int64) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

func (t *translator) linger() {
	const name = override + "linger.ms"
	switch linger, ok := t.milliseconds(name); {
	case !ok:
	case linger > time.Second:
		t.mapped(name, "at most one second", setting{"sink.kafka", "linger", "1s", ""})
	default:
		t.mapped(name, "", setting{"sink.kafka", "linger", duration(linger), ""})
	}
}

func (t *translator) deliveryTimeout() {
	const name = override + "delivery.timeout.ms"
	switch timeout, ok := t.milliseconds(name); {
	case !ok:
	case timeout <= 30*time.Second || timeout > 24*time.Hour:
		t.notNeeded(name, "postrider never drops a message: after sink.kafka.delivery_timeout without "+
			"any acknowledgement it starts again from the slot")
	default:
		t.mapped(name, "", setting{"sink.kafka", "delivery_timeout", duration(timeout), ""})
	}
}

func (t *translator) acks() {
	const name = override + "acks"
	v, given := t.get(name)
	switch {
	case !given:
	case v == "all" || v == "-1":
		t.notNeeded(name, "postrider always waits for all in-sync replicas")
	default:
		t.notNeeded(name, "postrider always waits for all in-sync replicas: with fewer, an "+
			"acknowledged event can be lost").attend()
	}
}

// producerOption judges an option by its value. The others are in the catalog.
func (t *translator) producerOption(name, option string) {
	v, _ := t.get(name)
	switch {
	case option == "partitioner.class" && (v == "" || strings.HasSuffix(v, ".DefaultPartitioner")):
		t.notNeeded(name, "postrider chooses the partition as Kafka's default does: murmur2 of the key")
	case option == "partitioner.class":
		t.refuse(name, simpleName(v)+" chooses the partition: postrider does as Kafka's default does, "+
			"murmur2 of the key, "+
			"or takes it from a column (table.fields.additional.placement = column:partition)")
	case option == "partitioner.ignore.keys":
		if on, ok := t.boolean(name, false); ok && on {
			t.refuse(name, "events with one key are spread over the partitions and lose their order: "+
				"postrider keeps them together")
		} else if ok {
			t.notNeeded(name, "the default")
		}
	case option == "interceptor.classes" && v != "":
		t.refuse(name, "is code that sees every record, which postrider cannot run: its metrics are "+
			"at /metrics, its logs have a line for each state change")
	case option == "interceptor.classes":
		t.notNeeded(name, "is empty")
	case strings.HasPrefix(option, "confluent.monitoring."):
		t.notNeeded(name, "postrider's own metrics are at /metrics")
	case option == "transactional.id":
		t.refuse(name, "Kafka Connect does not publish in transactions with it. For transactions "+
			"remove it, and set relay.exactly_once = true: postrider names its own")
	case strings.HasPrefix(option, "compression."):
		t.notNeeded(name, "the default level")
	}
}

// exactlyOnce maps what a connector demands of its worker. What it only requests depends on the
// worker.
func (t *translator) exactlyOnce() {
	const name = "exactly.once.support"
	v, given := t.get(name)
	switch {
	case !given:
	case strings.EqualFold(v, "required"):
		t.mapped(name, "postrider publishes in transactions of its own: consumers with "+
			"isolation.level=read_committed see each event once (docs/GUARANTEES.md)",
			setting{"relay", "exactly_once", true, ""}).attend()
	case strings.EqualFold(v, "requested"):
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
	create := false
	for _, o := range [][2]string{
		{"default.partitions", "partitions"}, {"default.replication.factor", "replication_factor"},
	} {
		v, given := t.get(creation + o[0])
		n, err := strconv.Atoi(v)
		switch {
		case !given:
		case err != nil:
			t.refuse(creation+o[0], "is no number: Kafka Connect refuses it too")
		case n < 1:
			t.refuse(creation+o[0], "leaves the number to the broker: give a number in sink.kafka.topics."+
				o[1]+", or create the topics beforehand and remove topic.creation")
		default:
			t.mapped(creation+o[0], "", setting{"sink.kafka.topics", o[1], n, ""})
			create = true
		}
	}
	if create {
		t.doc.set(setting{"sink.kafka.topics", "create", true, ""})
		for _, o := range [][2]string{
			{"default.partitions", "partitions"}, {"default.replication.factor", "replication_factor"},
		} {
			if _, given := t.doc.get("sink.kafka.topics", o[1]); !given {
				t.doc.set(setting{"sink.kafka.topics", o[1], 1, "Not in the connector's file."})
			}
		}
	}
	if v, given := t.get(creation + "enable"); given {
		if strings.EqualFold(v, "false") {
			t.doc.set(setting{"sink.kafka.topics", "create", false, ""})
		}
		t.notNeeded(creation+"enable", "sink.kafka.topics.create says it")
	}
	for _, name := range t.below(creation) {
		switch {
		case name == creation+"groups":
			if v, _ := t.get(name); v == "" {
				t.notNeeded(name, "is empty")
				continue
			}
			t.refuse(name, "postrider creates all topics alike: create those of the groups beforehand, "+
				"with the settings that stand here")
		case strings.HasPrefix(name, creation+"default."):
			t.refuse(name, "postrider creates topics with the broker's defaults: create those that need "+
				"it beforehand, or set it afterwards (kafka-configs.sh --alter)")
		default:
			t.refuse(name, "belongs to a group of topics: create them beforehand")
		}
	}
}
