package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// The tests of examples/go place an order with every driver and mapper; each order is then one record in Kafka, and all are alike.
func TestGo_EveryExampleIsRelayed(t *testing.T) {
	db, kafka := parts.Postgres(t, parts.AnyVersion), parts.Kafka(t)
	topic := kafka.Topic(t, 1)
	table, err := sql.Outbox(sql.Plain, "public", "outbox")
	require.NoError(t, err)
	db.Exec(t, table+sql.Publication()+`
		CREATE TABLE orders (id bigint, total bigint NOT NULL, CONSTRAINT orders_id_key UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)`)
	db.Exec(t, "SELECT pg_create_logical_replication_slot('"+db.Name+"', 'pgoutput')")

	examples := exec.Command("go", "test", "-count=1", "-v", "./...")
	examples.Dir = filepath.Join("..", "..", "examples", "go")
	examples.Env = append(os.Environ(), "EXAMPLES_POSTGRES="+db.DSN(), "GOWORK=off", "GOFLAGS=")
	out, err := examples.CombinedOutput()
	require.NoError(t, err, "%s", out)
	passed := strings.Count(string(out), "--- PASS: TestExamples_WriteTheOrderAndItsEventOrNeither/")
	require.GreaterOrEqual(t, passed, 9, "%s", out)

	config := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
[router]
route.topic.regex = ".*"
route.topic.replacement = %q
headers_column = "headers"
table.fields.additional.placement = "event_type:header:eventType"
`, topic), 0o600))
	relay := parts.StartRelay(t, parts.RelayConfig{Env: parts.Environment("POSTRIDER_POSTGRES_URL="+db.DSN(), "POSTRIDER_SLOT_NAME="+db.Name,
		"POSTRIDER_SINK_KAFKA_BROKERS="+strings.Join(kafka.Brokers(), ","), "POSTRIDER_HTTP_LISTEN=127.0.0.1:0")}, "run", "--config", config)
	records := kafka.Consume(t, topic, passed)
	relay.Stop(t)
	require.Len(t, kafka.All(t, topic), passed, "and no more")
	for i, r := range records {
		require.Equal(t, fmt.Sprint(i+1), string(r.Key))
		require.JSONEq(t, fmt.Sprintf(`{"id": %d, "total": 1250}`, i+1), string(r.Value))
		headers, err := json.Marshal(map[string]string{r.Headers[1].Key: string(r.Headers[1].Value), r.Headers[2].Key: string(r.Headers[2].Value)})
		require.NoError(t, err)
		require.JSONEq(t, `{"eventType": "OrderCreated", "tenant": "acme"}`, string(headers))
		require.Equal(t, "id", r.Headers[0].Key)
	}
}
