package router

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/sink"
)

// HeartbeatTopic is where Debezium publishes its heartbeats by default, for a topic.prefix.
func HeartbeatTopic(prefix string) string { return "__debezium-heartbeat." + prefix }

var (
	heartbeatKey = &schema{
		kind: kindStruct, name: "io.debezium.connector.common.ServerNameKey", version: "1",
		fields: []*field{{"serverName", requiredString}},
	}
	heartbeatValue = &schema{
		kind: kindStruct, name: "io.debezium.connector.common.Heartbeat", version: "1",
		fields: []*field{{"ts_ms", &schema{kind: kindInt64}}},
	}
)

// Heartbeat is the record that Debezium publishes to say that it is at work: its topic.prefix as the key, the time as the value, no
// headers, in partition 0. An error says that the format takes no structs.
func Heartbeat(f Format, topic, prefix string, at time.Time) (*sink.Message, error) {
	keys, values := newEncoder(f.key(), false), newEncoder(f.value(), false)
	key, err := keys.value(heartbeatKey, nil, &structure{heartbeatKey, []any{text(prefix)}})
	if err != nil {
		return nil, fmt.Errorf("write the key of a heartbeat: %w", err)
	}
	value, err := values.value(heartbeatValue, nil, &structure{heartbeatValue, []any{at.UnixMilli()}})
	if err != nil {
		return nil, fmt.Errorf("write the value of a heartbeat: %w", err)
	}
	return &sink.Message{Topic: topic, Key: key, Value: value}, nil
}
