package router

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The records of golden cases FLT-18, FLT-18.schema and FLT-18.prefix.
func TestHeartbeat_EqualsTheRecordsOfDebezium(t *testing.T) {
	at := time.UnixMilli(1795220897573)
	for format, want := range map[string][2]string{
		"string": {"Struct{serverName=pg}", "Struct{ts_ms=1795220897573}"},
		"json":   {`{"serverName":"pg"}`, `{"ts_ms":1795220897573}`},
		"json+schema": {
			`{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"serverName"}],"optional":false,"name":"io.debezium.connector.common.ServerNameKey","version":1},"payload":{"serverName":"pg"}}`,
			`{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"ts_ms"}],"optional":false,"name":"io.debezium.connector.common.Heartbeat","version":1},"payload":{"ts_ms":1795220897573}}`,
		},
	} {
		f := DefaultFormat()
		f.Key, f.Value = format, format
		m, err := Heartbeat(f, Registries{}, HeartbeatTopic("pg"), "pg", at)
		require.NoError(t, err)
		require.Equal(t, "__debezium-heartbeat.pg", m.Topic)
		require.Equal(t, want[0], string(m.Key))
		require.Equal(t, want[1], string(m.Value))
		require.Zero(t, m.Partition)
		require.Empty(t, m.Headers)
		require.Zero(t, m.Timestamp, "the producer's clock")
	}

	f := DefaultFormat()
	f.Value = "binary"
	_, err := Heartbeat(f, Registries{}, "heartbeats", "pg", at)
	require.ErrorContains(t, err, "format binary takes bytes")
	f.ValueDelegate = "json"
	m, err := Heartbeat(f, Registries{}, "heartbeats", "pg", at)
	require.NoError(t, err)
	require.Equal(t, `{"ts_ms":1795220897573}`, string(m.Value))
}
