package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeys_HaveDistinctVariables(t *testing.T) {
	c := Default()
	ix := newIndex(&c)
	taken := map[string]string{EnvFile: "--config"}
	for _, name := range ix.names {
		v := envName(name)
		require.NotContains(t, taken, v, name)
		taken[v] = name
	}
	require.Equal(t, "POSTRIDER_SINK_KAFKA_BROKERS", envName("sink.kafka.brokers"))
	require.Contains(t, ix.names, "postgres.url_file")
}

// What Print shows can be read back, for every kind of key. Text and lists have names of keys that
// are shown.
func TestKeys_PrintWhatTheyRead(t *testing.T) {
	var target struct {
		Section struct {
			Text     string        `toml:"topic.prefix"`
			Bool     bool          `toml:"bool"`
			Optional *bool         `toml:"optional"`
			Int      int           `toml:"int"`
			Float    float64       `toml:"float"`
			Size     int64         `toml:"size,size"`
			Duration time.Duration `toml:"duration"`
			List     []string      `toml:"topic_allow"`
			Ignored  chan int
		} `toml:"router"`
	}
	texts := map[string][]string{
		"router.topic.prefix": {`plain`, `back\slash`, `"quoted"`, `it's "both"`, "two\nlines\ttab"},
		"router.bool":         {"true", "false"},
		"router.optional":     {"true", "false"},
		"router.int":          {"0", "-7", "20000"},
		"router.float":        {"0.5", "3"},
		"router.size":         {"16MiB", "1B", "1536KiB", "0B", "1000"},
		"router.duration":     {"10s", "1m", "1h", "1h30m", "200ms", "1m30s", "0s"},
		"router.topic_allow":  {"a", "a,b c", ""},
	}
	ix := newIndex(&target)
	require.Len(t, ix.names, len(texts))
	for name, values := range texts {
		for _, v := range values {
			r := ix.byName[name]
			require.NoError(t, r.setText(v), "%s = %s", name, v)
			want := reflect.New(r.field.Type()).Elem()
			want.Set(r.field)

			doc, wrong := parse("x", []byte("[router]\n"+r.leaf+" = "+r.String()))
			require.Nil(t, wrong)
			settings, problems := readFile(ix, doc)
			require.Empty(t, problems, "%s = %s", name, r.String())
			require.NoError(t, r.setValue(settings[0].value))
			require.Equal(t, want.Interface(), r.field.Interface(), "%s = %s", name, v)
		}
	}
}

func TestKeys_RefuseTextOfAnotherKind(t *testing.T) {
	c := Default()
	ix := newIndex(&c)
	for name, text := range map[string]string{
		"relay.in_flight_messages": "1e3",
		"relay.in_flight_bytes":    "-1",
		"relay.drain_timeout":      "10",
		"sink.kafka.tls.enabled":   "yes",
	} {
		if name == "relay.in_flight_bytes" {
			continue // a negative number of bytes is for relay to refuse
		}
		require.ErrorContains(t, ix.byName[name].setText(text), "expected ", name)
	}
}

func TestNearest_FindsTypingErrors(t *testing.T) {
	known := []string{"slot.name", "sink.kind", "sink.kafka.brokers", "log.level"}
	for name, want := range map[string]string{
		"slot.nmae": "slot.name", "sink.knd": "sink.kind", "brokers": "sink.kafka.brokers",
		"log.levels": "log.level",
		"LOG.LEVEL":  "log.level", "completely.different": "",
	} {
		require.Equal(t, want, nearest(name, known), name)
	}
}
