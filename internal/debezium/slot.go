package debezium

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// slot maps the slot and the publication, which postrider uses as they are.
func (t *translator) slot() {
	name, given := t.get("slot.name")
	switch {
	case !given || name == "":
		t.mapped("slot.name", "is not in the file: Debezium's default",
			setting{"slot", "name", "debezium", ""})
	case !slotName.MatchString(name):
		t.refuse("slot.name", "is no name of a slot: 1 to 63 lower-case letters, digits and underscores")
	default:
		t.mapped("slot.name", "", setting{"slot", "name", name, ""})
	}
	switch plugin, given := t.get("plugin.name"); strings.ToLower(plugin) {
	case "pgoutput":
		t.notNeeded("plugin.name", "postrider reads pgoutput only")
	default:
		text := "postrider reads pgoutput, and a slot keeps the plug-in it was made with. While " +
			"Debezium still runs, give the connector plugin.name=pgoutput and a new slot.name and " +
			"publication, let the old slot run dry, and import again"
		if !given {
			text = "is not in the file and decoderbufs by default; " + text +
				". If the slot is one of pgoutput nevertheless, add the line"
		}
		t.refuse("plugin.name", text)
	}
	if on, ok := t.boolean("slot.drop.on.stop", false); ok && on {
		t.refuse("slot.drop.on.stop", "the slot is dropped when Debezium stops, and what happens "+
			"until the next start is lost. Set it to false and "+
			"restart the connector, or there is nothing to take over; postrider never drops its slot")
	} else if ok {
		t.given("slot.drop.on.stop", "postrider never drops its slot")
	}
	if on, ok := t.boolean("slot.failover", false); ok {
		if _, given := t.get("slot.failover"); given {
			t.mapped("slot.failover", "", setting{"slot", "failover", on, ""})
		}
	}
	t.publication()
}

func (t *translator) publication() {
	text := ""
	publication, given := t.get("publication.name")
	if !given || publication == "" {
		publication, text = "dbz_publication", "is not in the file: Debezium's default"
	}
	t.mapped("publication.name", text, setting{"replication", "publication", publication, ""})
	t.given("publication.autocreate.mode", "the publication exists, and postrider takes it as it "+
		"is. One for inserts only spares the server work: "+
		"ALTER PUBLICATION ... SET (publish = 'insert')")
	t.given("publish.via.partition.root", "the publication exists, and keeps its setting")
}

// snapshot maps what happens to rows that are there before the slot.
func (t *translator) snapshot() {
	const name = "snapshot.mode"
	mode, given := t.get(name)
	for _, choice := range append(t.below("snapshot.select.statement.overrides"),
		"snapshot.include.collection.list") {
		if _, given := t.get(choice); !given {
			continue
		}
		if m := strings.ToLower(mode); m == "no_data" || m == "never" {
			t.notNeeded(choice, "there is no snapshot")
		} else {
			t.refuse(choice, "chooses rows of the snapshot, and postrider publishes all or none. With "+
				"the slot of a connector that has run there is no snapshot: use snapshot.mode=no_data")
		}
	}
	set := func(mode, text string) *Item {
		return t.mapped(name, text, setting{"snapshot", "mode", mode, ""})
	}
	const taken = "an existing slot was preceded by Debezium's snapshot: postrider reads rows only " +
		"when it creates the slot itself"
	switch strings.ToLower(mode) {
	case "":
		if !given {
			set("initial", "is not in the file: Debezium's default; "+taken)
			return
		}
		t.refuse(name, "is empty: Debezium refuses that too")
	case "initial", "when_needed":
		set(strings.ToLower(mode), taken)
	case "no_data", "never", "schema_only":
		set("no_data", "")
	case "exported":
		set("initial", "the name of initial before Debezium 2.0; "+taken)
	case "always":
		t.refuse(name, "publishes every row of the table again with every start. Use initial; to "+
			"publish a row again on purpose, insert it again")
	case "initial_only":
		t.refuse(name, "publishes the rows of the table and stops; postrider goes on with what is "+
			"inserted. Use initial, and stop it when the snapshot is done")
	case "recovery", "schema_only_recovery":
		t.refuse(name, "is no mode of the connector for PostgreSQL")
	case "custom", "configuration_based":
		t.refuse(name, "the mode is decided by code or by options of its own: choose initial, no_data "+
			"or when_needed")
	default:
		t.refuse(name, "must be one of initial, no_data, when_needed")
	}
}

// heartbeats keep their topic and interval, for consumers that watch it. postrider needs none to
// let WAL go.
func (t *translator) heartbeats() {
	const name = "heartbeat.interval.ms"
	interval, given := t.get(name)
	ms, err := strconv.ParseInt(interval, 10, 64)
	prefix := t.value("topic.heartbeat.prefix", "__debezium-heartbeat")
	topic := sanitize(prefix + t.value("topic.delimiter", ".") + t.prefix())
	switch {
	case !given:
		t.given("topic.heartbeat.prefix", "without heartbeat.interval.ms there are no heartbeats")
	case err != nil || ms < 0:
		t.refuse(name, "is no number of milliseconds: Debezium refuses it too")
		t.given("topic.heartbeat.prefix", "belongs to heartbeat.interval.ms")
	case ms == 0:
		t.notNeeded(name, "off, as by default with postrider")
		t.given("topic.heartbeat.prefix", "there are no heartbeats")
	default:
		t.mapped(name, "for whoever consumes "+topic+"; postrider lets WAL go on a quiet database "+
			"without heartbeats, so set it to 0s if nobody does",
			setting{"relay", "heartbeat_interval", duration(time.Duration(ms) * time.Millisecond), ""},
			setting{"relay", "heartbeat_topic", topic, ""})
		t.given("topic.heartbeat.prefix", "in relay.heartbeat_topic")
	}
	t.given("heartbeat.topics.prefix", "is the name before Debezium 2.0 of topic.heartbeat.prefix, "+
		"and without effect since")
	t.given("heartbeat.action.query", "is there to move the slot of a quiet database. postrider "+
		"moves it by what the server says, without writing: "+
		"remove the query, and the table it writes to from the publication")
}

// duration is a duration as the configuration file has it: 5s, 500ms.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
