package config

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Validate is Loaded.Validate for a configuration that was not loaded.
func (c Config) Validate(sections ...string) error {
	return (&Loaded{Config: c}).Validate(sections...)
}

func TestLocate_FindsTheKeyThatAnErrorIsAbout(t *testing.T) {
	l := &Loaded{Config: Default(), origins: map[string]string{
		"sink.kafka.read_timeout":  "postrider.toml:7",
		"router.route.topic.regex": "env POSTRIDER_ROUTER_ROUTE_TOPIC_REGEX",
	}}
	keys := keysOf(&l.Config)
	for _, tt := range []struct{ section, text, key, want string }{
		{
			"sink", "sink.kafka.read_timeout: 1s must be longer than produce_timeout (10s)",
			"sink.kafka.read_timeout",
			"postrider.toml:7: sink.kafka.read_timeout: 1s must be longer than produce_timeout (10s)",
		},
		{
			"router", "route.topic.regex: missing )", "router.route.topic.regex",
			"env POSTRIDER_ROUTER_ROUTE_TOPIC_REGEX: router.route.topic.regex: missing )",
		},
		{
			"router", `option route.topic.regex = "(" cannot be read`, "router.route.topic.regex",
			`env POSTRIDER_ROUTER_ROUTE_TOPIC_REGEX: router.route.topic.regex: option route.topic.regex = "(" cannot be read`,
		},
		{"http", "listen is 7", "http.listen", "http.listen is 7"},
		{"http", "nobody can listen there", "http", "http: nobody can listen there"},
		{
			"relay", "relay.backoff_min = 1s, relay.backoff_max = 0s: must be in this order",
			"relay.backoff_min",
			"relay.backoff_min = 1s, relay.backoff_max = 0s: must be in this order",
		},
	} {
		p := l.locate(keys, tt.section, errors.New(tt.text))
		require.Equal(t, tt.key, p.Key)
		require.Equal(t, tt.want, p.Error())
	}
}

func TestSplit_UndoesJoinAlone(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	require.Empty(t, split(nil))
	require.Equal(t, []error{a, b, c}, split(errors.Join(a, errors.Join(b, c))))
	both := fmt.Errorf("%w: because of %w", a, b)
	require.Equal(t, []error{both}, split(both))
}

func TestValidate_AcceptsWhatTheDefaultsLack(t *testing.T) {
	c := Default()
	require.ErrorContains(t, c.Validate(), "sink.kafka.brokers")
	c.Sink.Kafka.Brokers = []string{"localhost:9092"}
	require.NoError(t, c.Validate())
}

func TestValidate_RegistryHasWhatTheFormatNeeds(t *testing.T) {
	c := Default()
	c.Sink.Kafka.Brokers = []string{"localhost:9092"}
	c.Format.Value = "protobuf"
	require.ErrorContains(t, c.Validate(), `registry.urls: is empty, and format.key = "string" with format.value = "protobuf" needs a schema registry`)
	c.Registry.Framing = "glue"
	require.ErrorContains(t, c.Validate(), `registry.framing: "glue" takes formats avro, json_schema and framed, without references`)
	c.Format.Value, c.Format.ValueSchemaFile, c.Format.ValueSchemaReferences = "avro", "order.avsc", []string{"a=b:1"}
	require.ErrorContains(t, c.Validate(), `registry.framing: "glue" takes formats`)
	c.Format.ValueSchemaReferences = nil
	require.NoError(t, c.Validate())
}

func TestAccepted_AgreesWithThePackages(t *testing.T) {
	for name, words := range accepted {
		for _, word := range append([]string{"nonsense"}, words...) {
			c := Default()
			c.Sink.Kafka.SASL.Mechanism = "OAUTHBEARER"
			c.Registry.OAuth.TokenURL = "https://login.example.com/token"
			c.Sink.Kafka.SASL.OAuth.TokenURL = "https://login.example.com/token"
			r, known := newIndex(&c).byName[name]
			require.True(t, known, name)
			require.NoError(t, r.setText(word))

			refused := false
			var problems Problems
			if errors.As(c.Validate(topSection(name)), &problems) {
				for _, p := range problems {
					refused = refused || p.Key == name
				}
			}
			require.Equal(t, word == "nonsense", refused, "%s = %s: %v", name, word, problems)
		}
	}
}
