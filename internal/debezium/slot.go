package debezium

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/router"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// slot maps the slot and the publication, which postrider uses as they are.
func (t *translator) slot() {
	switch name, _ := t.get("slot.name"); {
	case name == "":
		t.mapped("slot.name", "is not in the file: Debezium's default",
			setting{"slot", "name", "debezium", ""})
	case !slotName.MatchString(name):
		t.refuse("slot.name",
			"is not a valid slot name: use 1 to 63 lower-case letters, digits and underscores")
	default:
		t.mapped("slot.name", "", setting{"slot", "name", name, ""})
	}
	text := "postrider reads pgoutput, and a slot keeps the plug-in it was made with. While " +
		"Debezium still runs, give the connector plugin.name=pgoutput and a new slot.name and " +
		"publication, let the old slot run dry, and import again"
	switch plugin, given := t.get("plugin.name"); {
	case strings.EqualFold(plugin, "pgoutput"):
		t.notNeeded("plugin.name", "postrider reads pgoutput only")
	case !given:
		text = "is not in the file and decoderbufs by default; " + text +
			". If the slot is one of pgoutput nevertheless, add the line"
		fallthrough
	default:
		t.refuse("plugin.name", text)
	}
	t.options("slot")
	t.options("replication")
}

const snapshotTaken = "an existing slot was preceded by Debezium's snapshot: postrider reads " +
	"rows only when it creates the slot itself"

// snapshotModes has what becomes of Debezium's modes: postrider's mode with a remark, or none with
// why it is refused. The empty mode is that of a file without one.
var snapshotModes = map[string]struct{ mode, text string }{
	"":            {"initial", "is not in the file: Debezium's default; " + snapshotTaken},
	"initial":     {"initial", snapshotTaken},
	"when_needed": {"when_needed", snapshotTaken},
	"no_data":     {"no_data", ""},
	"never":       {"no_data", ""},
	"schema_only": {"no_data", ""},
	"exported":    {"initial", "the name of initial before Debezium 2.0; " + snapshotTaken},
	"always": {"", "publishes every row of the table again with every start. Use initial; to " +
		"publish a row again on purpose, insert it again"},
	"initial_only": {"", "publishes the rows of the table and stops; postrider goes on with what " +
		"is inserted. Use initial, and stop it when the snapshot is done"},
	"recovery":             {"", noMode},
	"schema_only_recovery": {"", noMode},
	"custom":               {"", modeOfCode},
	"configuration_based":  {"", modeOfCode},
}

const (
	noMode     = "is no mode of the connector for PostgreSQL"
	modeOfCode = "the mode is decided by code or by options of its own: choose initial, no_data or " +
		"when_needed"
)

// snapshot maps what happens to rows that are there before the slot.
func (t *translator) snapshot() {
	const name = "snapshot.mode"
	v, given := t.get(name)
	mode := strings.ToLower(v)
	choices := t.below("snapshot.select.statement.overrides", "snapshot.include.collection.list")
	for _, choice := range choices {
		if mode == "no_data" || mode == "never" {
			t.notNeeded(choice, "there is no snapshot")
		} else {
			t.refuse(choice, "chooses rows of the snapshot, and postrider publishes all or none. With "+
				"the slot of a connector that has run there is no snapshot: use snapshot.mode=no_data")
		}
	}
	switch becomes, listed := snapshotModes[mode]; {
	case given && mode == "":
		t.refuse(name, "is empty: Debezium refuses that too")
	case !listed:
		t.refuse(name, "must be one of initial, no_data, when_needed")
	case becomes.mode == "":
		t.refuse(name, becomes.text)
	default:
		t.mapped(name, becomes.text, setting{"snapshot", "mode", becomes.mode, ""})
	}
}

// heartbeats keep their topic and interval, for consumers that watch it. postrider needs none to
// let WAL go.
func (t *translator) heartbeats() {
	const name, prefix = "heartbeat.interval.ms", "topic.heartbeat.prefix"
	interval, given := t.get(name)
	ms, err := strconv.ParseInt(interval, 10, 64)
	topic := router.TopicName(t.value(prefix, "__debezium-heartbeat") + t.delimiter() + t.prefix())
	switch {
	case !given:
		t.given(prefix, "without heartbeat.interval.ms there are no heartbeats")
	case err != nil || ms < 0:
		t.refuse(name, "is no number of milliseconds: Debezium refuses it too")
		t.given(prefix, "belongs to heartbeat.interval.ms")
	case ms == 0:
		t.notNeeded(name, "off, as by default with postrider")
		t.given(prefix, "there are no heartbeats")
	default:
		t.mapped(name, "for consumers of "+topic+"; postrider lets WAL go on a quiet database "+
			"without heartbeats, so set it to 0s if there are none",
			setting{"relay", "heartbeat_interval", time.Duration(ms) * time.Millisecond, ""},
			setting{"relay", "heartbeat_topic", topic, ""})
		t.given(prefix, "in relay.heartbeat_topic")
	}
}
