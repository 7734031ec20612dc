package badinput

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

var configurationMistakes = []mistake{
	{
		name: "unknown-key-in-file", about: "a key is misspelt in the file",
		make: func(_ *testing.T, s *site) { s.set("slot", "nmae = \"postrider\"") },
		run:  78, check: 78, advised: []string{"postrider.toml:", "slot.nmae", "slot.name"},
	},
	{
		name: "unknown-section", about: "a section is misspelt in the file",
		make: func(_ *testing.T, s *site) { s.set("replicaton", "publication = \"postrider\"") },
		run:  78, check: 78, advised: []string{"postrider.toml:", "replicaton", "[replication]"},
	},
	{
		name: "unknown-key-in-set", about: "a key is misspelt in --set",
		make: func(*testing.T, *site) {}, args: []string{"--set", "slot.nmae=postrider"},
		run: 78, check: 78, advised: []string{"--set", "slot.nmae", "slot.name"},
	},
	{
		name: "unknown-flag", about: "a flag does not exist",
		make: func(*testing.T, *site) {}, args: []string{"--slot-nmae=postrider"},
		run: 2, check: 2, advised: []string{"--slot-nmae"},
	},
	{
		name: "wrong-type-in-file", about: "a number is written as a word",
		make: func(_ *testing.T, s *site) { s.set("relay", "in_flight_messages = \"many\"") },
		run:  78, check: 78, advised: []string{"postrider.toml:", "relay.in_flight_messages", "integer"},
	},
	{
		name: "wrong-type-in-environment", about: "a duration has no unit",
		make: func(_ *testing.T, s *site) { s.env = append(s.env, "POSTRIDER_RELAY_DRAIN_TIMEOUT=20") },
		run:  78, check: 78, advised: []string{"env POSTRIDER_RELAY_DRAIN_TIMEOUT", "relay.drain_timeout", "duration"},
	},
	{
		name: "not-toml", about: "a quotation mark is missing in the file",
		make: func(_ *testing.T, s *site) { s.set("slot", "name = \"postrider") },
		run:  78, check: 78, advised: []string{"postrider.toml:"},
	},
	{
		name: "rules-for-another-table", about: "a [[router]] is for a table that is not relayed",
		make: func(_ *testing.T, s *site) {
			s.set("[router]", `tables = ["public.orders"]`+"\n[[router]]\nnull_key = \"publish\"")
		},
		run: 78, check: 78, advised: []string{"postrider.toml:", "router[1].tables", "public.orders", "replication.tables"},
	},
	{
		name: "missing-brokers", about: "no broker is configured",
		make: func(_ *testing.T, s *site) { delete(s.config, "sink.kafka") },
		run:  78, check: 78, advised: []string{"sink.kafka.brokers"},
	},
	{
		name: "missing-environment-variable", about: "the password comes from a variable that is not set",
		make: func(_ *testing.T, s *site) {
			s.url = nil
			s.set("postgres", `url = "postgres://postrider:${DB_PASSWORD}@db:5432/shop"`)
		},
		run: 78, check: 78, advised: []string{"DB_PASSWORD"},
	},
	{
		name: "missing-file", about: "the file named by --config does not exist",
		make: func(*testing.T, *site) {}, args: []string{"--config", "/etc/postrider/postrdier.toml"},
		run: 78, check: 78, advised: []string{"/etc/postrider/postrdier.toml"},
	},
	{
		name: "invalid-regex", about: "route.topic.regex is no regular expression",
		make: func(_ *testing.T, s *site) { s.set("router", `route.topic.regex = '(?<routedByValue>.*'`) },
		run:  78, check: 78, advised: []string{"postrider.toml:", "router.route.topic.regex"},
	},
	{
		name: "invalid-regex-group", about: "route.topic.replacement names a group that the regular expression does not have",
		make: func(_ *testing.T, s *site) {
			s.set("router", `route.topic.regex = '(?<kind>.*)'`)
			s.set("router", `route.topic.replacement = 'events.${knid}'`)
		},
		run: 78, check: 78, advised: []string{"postrider.toml:", "router.route.topic.replacement", "knid"},
	},
	{
		name: "no-attribute-of-a-cloudevent", about: "a column becomes an attribute of a CloudEvent, and its name cannot be one",
		make: func(_ *testing.T, s *site) {
			s.set("router", `table.fields.additional.placement = "created_at:envelope"`)
			s.set("format", `cloudevents = "binary"`)
		},
		run: 78, check: 78, advised: []string{"postrider.toml:", "router.table.fields.additional.placement", `"created_at"`, "created_at:envelope:createdat"},
		heal: func(_ *testing.T, s *site, _ string) {
			s.set("router", `table.fields.additional.placement = "created_at:envelope:createdat"`)
		},
	},
	{
		name: "cloudevents-with-json-headers", about: "CloudEvents have headers of text, and others are configured",
		make: func(_ *testing.T, s *site) {
			s.set("format", `cloudevents = "structured"`)
			s.set("format", `headers = "json"`)
		},
		run: 78, check: 78, advised: []string{"postrider.toml:", "format.headers", `"simple"`, "format.cloudevents"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("format", `headers = "simple"`) },
	},
	{
		name: "listen-address-in-use", about: "another process listens on http.listen",
		make: func(t *testing.T, s *site) {
			other, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = other.Close() })
			s.set("http", `listen = "`+other.Addr().String()+`"`)
			s.masks[other.Addr().String()] = "127.0.0.1:8432"
		},
		run: 75, check: 78, advised: []string{"127.0.0.1:8432", "http.listen"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("http", `listen = "127.0.0.1:0"`) },
	},
}

// A variable with our prefix that means nothing cannot be refused: Kubernetes makes such for a service of our name.
func TestUnknownVariable_IsAWarningWithTheNearestName(t *testing.T) {
	s := &site{servers: &servers{binary: parts.Binary(t)}, dir: t.TempDir(), config: map[string][]string{}, env: []string{"POSTRIDER_SLOT_NMAE=other", "POSTRIDER_POSTGRES_URL=postgres://127.0.0.1:1/shop"}}
	s.set("sink", `kind = "stdout"`)
	s.set("http", `listen = "127.0.0.1:0"`)
	s.write(t)
	d := s.start(t)
	// The listener comes after it.
	require.Contains(t, d.stderr(), `"level":"warn"`)
	require.Contains(t, d.stderr(), "POSTRIDER_SLOT_NMAE is not a key and is ignored; did you mean POSTRIDER_SLOT_NAME?")
	d.Stop(t)
}
