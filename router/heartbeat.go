package router

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// HeartbeatTopic is where Debezium publishes its heartbeats by default, for a topic.prefix.
func HeartbeatTopic(prefix string) string { return "__debezium-heartbeat." + prefix }

var (
	heartbeatKey = &connect.Schema{
		Kind: connect.KindStruct, Name: "io.debezium.connector.common.ServerNameKey", Version: "1",
		Fields: []*connect.Field{{Name: "serverName", Schema: connect.RequiredString}},
	}
	heartbeatValue = &connect.Schema{
		Kind: connect.KindStruct, Name: "io.debezium.connector.common.Heartbeat", Version: "1",
		Fields: []*connect.Field{{Name: "ts_ms",
			Schema: &connect.Schema{Kind: connect.KindInt64}}},
	}
)

// Heartbeat is the record that Debezium publishes to show that it is at work: its topic.prefix as
// the key, the time as the value, no headers, in partition 0. It fails if the format takes
// no structs.
func Heartbeat(f Format, r Registries, topic, prefix string, at time.Time) (*sink.Message, error) {
	keys, values, err := r.encoders(f, false)
	if err != nil {
		return nil, err
	}
	write := func(e connect.Encoder, s *connect.Schema, value any) ([]byte, error) {
		e.Topic = topic
		return e.Value(s, nil, &connect.Structure{Schema: s, Values: []any{value}})
	}
	key, err := write(keys, heartbeatKey, connect.Text(prefix))
	if err != nil {
		return nil, fmt.Errorf("write the key of a heartbeat: %w", err)
	}
	value, err := write(values, heartbeatValue, at.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("write the value of a heartbeat: %w", err)
	}
	return &sink.Message{Topic: topic, Key: key, Value: value}, nil
}
