package debezium

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// connector is a complete one, with what a test adds to it.
func connector(more map[string]string) Connector {
	p := map[string]string{
		"connector.class":                     postgresConnector,
		"database.hostname":                   "db",
		"database.dbname":                     "shop",
		"plugin.name":                         "pgoutput",
		"topic.prefix":                        "pg",
		"table.include.list":                  "public.outbox",
		"key.converter":                       "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":                     "org.apache.kafka.connect.storage.StringConverter",
		"transforms":                          "outbox",
		"transforms.outbox.type":              eventRouter,
		"producer.override.bootstrap.servers": "kafka-1:9092",
	}
	maps.Copy(p, more)
	return Connector{Properties: p}
}

func TestTranslate_GivesEveryPropertyOneItem(t *testing.T) {
	c := connector(map[string]string{"no.such.thing": "x", "slot.name": "outbox", "tasks.max": "1"})
	seen := map[string]int{}
	for _, i := range Translate(c, Options{}).Items {
		if !i.Default {
			seen[i.Property]++
		}
	}
	for name := range c.Properties {
		require.Equal(t, 1, seen[name], name)
	}
	require.Len(t, seen, len(c.Properties))
}
