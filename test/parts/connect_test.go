package parts_test

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

// debeziumConfig is that of a connector which routes public.outbox to outbox.event.TYPE of a topic
// prefix of its own.
func debeziumConfig(t *testing.T, db *parts.Database, name string) map[string]string {
	pg, err := pgconn.ParseConfig(db.DSN())
	require.NoError(t, err)
	return map[string]string{
		"connector.class":             "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname":           pg.Host,
		"database.port":               strconv.Itoa(int(pg.Port)),
		"database.user":               pg.User,
		"database.password":           pg.Password,
		"database.dbname":             pg.Database,
		"topic.prefix":                name,
		"plugin.name":                 "pgoutput",
		"slot.name":                   name,
		"publication.name":            name,
		"publication.autocreate.mode": "filtered",
		"table.include.list":          "public.outbox",
		"snapshot.mode":               "no_data",
		"transforms":                  "outbox",
		"transforms.outbox.type":      "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": name + ".${routedByValue}",
	}
}

func TestKafkaConnect_RelaysAfterStopKillAndRestart(t *testing.T) {
	broker := parts.RealKafka(t)
	db := parts.Postgres(t, parts.AnyVersion)
	worker := parts.KafkaConnect(t, broker, map[string]string{"offset.flush.interval.ms": "100"})
	name := parts.Unique("debezium")
	topic := name + ".order"
	broker.CreateTopic(t, topic, 1, nil)
	db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		aggregatetype text, aggregateid text, type text, payload text)`)
	insert := `INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
		VALUES ('order', '1', 'created', '{}')`

	worker.Create(t, name, debeziumConfig(t, db, name))
	db.Exec(t, insert)
	broker.Consume(t, topic, 1)

	worker.Stop(t, name)
	var stored struct {
		Offsets []struct{ Offset map[string]any }
	}
	require.NoError(t, json.Unmarshal(worker.Offsets(t, name), &stored))
	require.Len(t, stored.Offsets, 1)
	require.Contains(t, stored.Offsets[0].Offset, "lsn")
	db.Exec(t, insert)
	worker.Resume(t, name)
	broker.Consume(t, topic, 2)

	worker.Kill(t)
	db.Exec(t, insert)
	worker.Restart(t)
	worker.AwaitRunning(t, name)
	broker.ConsumeUntil(t, []string{topic},
		func(records []*kgo.Record) bool { return len(records) >= 3 })
	worker.Delete(t, name)
}

func TestKafkaConnect_RunsTheVersionsOfThePoms(t *testing.T) {
	for file, version := range map[string]string{"worker.xml": parts.KafkaVersion,
		"debezium.xml": parts.DebeziumVersion} {
		text, err := os.ReadFile("connect/" + file)
		require.NoError(t, err)
		var pom struct {
			Kafka    string `xml:"properties>kafka.version"`
			Debezium string `xml:"properties>debezium.version"`
		}
		require.NoError(t, xml.Unmarshal(text, &pom))
		require.Equal(t, version, pom.Kafka+pom.Debezium)
	}
}
