package takeover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// rig is a connector that relays an outbox table, a topic that exists, and one that does not: a
// row for that one ends the connector after everything before it was published, in the middle of a
// transaction as well.
type rig struct {
	t      *testing.T
	db     *parts.Database
	conn   *pgx.Conn
	broker *parts.Broker
	worker *parts.ConnectWorker
	name   string // of connector, slot and publication, and the first part of the topics
	dir    string
	config map[string]string
}

func newRig(t *testing.T, worker *parts.ConnectWorker, broker *parts.Broker) *rig {
	r := &rig{t: t, db: parts.Postgres(t, "17"), broker: broker, worker: worker,
		name: parts.Unique("handover"), dir: t.TempDir()}
	r.conn = r.db.Connect(t)
	r.exec(`CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		aggregatetype text, aggregateid text, type text, payload text)`)
	r.exec(`CREATE TABLE business (n bigint PRIMARY KEY)`)
	r.exec(`CREATE PUBLICATION ` + r.name + ` FOR ALL TABLES`) // as Debezium would make it
	broker.CreateTopic(t, r.topic(), 1, nil)
	for _, name := range []string{"__debezium-heartbeat." + r.name, r.name + ".transaction",
		r.name + ".message"} {
		broker.CreateTopic(t, name, 1, nil)
	}

	pg, err := pgconn.ParseConfig(r.db.DSN())
	require.NoError(t, err)
	r.config = map[string]string{
		"connector.class":        "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname":      pg.Host,
		"database.port":          strconv.Itoa(int(pg.Port)),
		"database.user":          pg.User,
		"database.password":      pg.Password,
		"database.dbname":        pg.Database,
		"topic.prefix":           r.name,
		"plugin.name":            "pgoutput",
		"slot.name":              r.name,
		"publication.name":       r.name,
		"table.include.list":     "public.outbox",
		"snapshot.mode":          "no_data",
		"poll.interval.ms":       "20",
		"key.converter":          "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":        "org.apache.kafka.connect.storage.StringConverter",
		"transforms":             "outbox",
		"transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": r.name + ".${routedByValue}",
		// Only rows of the outbox have the event router's columns.
		"predicates":                     "isOutbox",
		"predicates.isOutbox.type":       "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
		"predicates.isOutbox.pattern":    r.name + `\.public\.outbox`,
		"transforms.outbox.predicate":    "isOutbox",
		"producer.override.max.block.ms": "500",
	}
	return r
}

// topic is where rows go that can be published.
func (r *rig) topic() string { return r.name + ".open" }

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.conn.Exec(r.t.Context(), sql, args...)
	require.NoError(r.t, err)
}

// row is the VALUES of one event for a topic: open, or missing.
func row(topic, payload string) string {
	return fmt.Sprintf(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
		VALUES ('%s', '1', 'created', '%s')`, topic, payload)
}

// emit is a logical message.
func emit(transactional bool, payload string) string {
	return fmt.Sprintf("SELECT pg_logical_emit_message(%v, 'outbox', '%s')", transactional,
		payload)
}

// transaction runs statements in one transaction.
func (r *rig) transaction(statements ...string) {
	r.t.Helper()
	r.exec("BEGIN; " + strings.Join(statements, "; ") + "; COMMIT")
}

// copied writes rows with COPY: those of one call share an LSN.
func (r *rig) copied(topic string, payloads ...string) {
	r.t.Helper()
	_, err := r.conn.CopyFrom(r.t.Context(), pgx.Identifier{"outbox"},
		[]string{"aggregatetype", "aggregateid", "type", "payload"},
		pgx.CopyFromSlice(len(payloads),
			func(i int) ([]any, error) { return []any{topic, "1", "created", payloads[i]}, nil }))
	require.NoError(r.t, err)
}

// start runs the connector.
func (r *rig) start() {
	r.t.Helper()
	r.worker.Create(r.t, r.name, r.config)
}

// published waits until the topic has n records, and returns the payloads.
func (r *rig) published(n int) (payloads []string) {
	r.t.Helper()
	for _, record := range r.broker.Consume(r.t, r.topic(), n) {
		payloads = append(payloads, string(record.Value))
	}
	return payloads
}

// offset is what Kafka Connect has stored of a connector.
type offset struct {
	LSN       uint64 `json:"lsn"`
	TxID      uint64 `json:"txId"`
	Type      string `json:"messageType"`
	Events    int    `json:"lsn_events_processed"`
	CommitLSN uint64 `json:"lsn_commit"`
}

// stopped waits until the connector has stored an offset like the wanted one, stops it, and
// returns the offset, which is also written to the file offsets.json.
func (r *rig) stopped(wanted func(offset) bool) offset {
	r.t.Helper()
	stored := func() (o offset) {
		var all struct {
			Offsets []struct {
				Offset offset `json:"offset"`
			} `json:"offsets"`
		}
		body := r.worker.Offsets(r.t, r.name)
		require.NoError(r.t, json.Unmarshal(body, &all))
		require.NoError(r.t, os.WriteFile(r.path("offsets.json"), body, 0o600))
		if len(all.Offsets) == 1 {
			o = all.Offsets[0].Offset
		}
		return o
	}
	r.await(func() bool { return wanted(stored()) }, "the connector does not store such an offset")
	r.worker.Stop(r.t, r.name)
	o := stored()
	require.True(r.t, wanted(o), "%+v", o)
	r.await(func() bool { // a task that hangs when it is stopped holds it a little longer
		var active bool
		require.NoError(r.t,
			r.conn.QueryRow(r.t.Context(),
				`SELECT active FROM pg_replication_slots
				WHERE slot_name = $1`, r.name).Scan(&active))
		return !active
	}, "the slot stays in use")
	return o
}

func (r *rig) await(done func() bool, otherwise string) {
	r.t.Helper()
	deadline := time.After(parts.Patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(r.t, otherwise)
		}
	}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// postrider runs a command with a configuration for the same slot, publication and topics.
func (r *rig) postrider(args ...string) (stdout, stderr string, code int) {
	r.t.Helper()
	text := fmt.Sprintf(`
[postgres]
url = %q
[slot]
name = %q
[replication]
publication = %q
tables = ["public.outbox"]
messages = ["outbox"]
[router]
route.topic.replacement = %q
[sink.kafka]
brokers = [%q]
[http]
listen = ""
`, r.db.DSN(), r.name, r.name, r.name+".${routedByValue}", r.broker.Brokers()[0])
	require.NoError(r.t, os.WriteFile(r.path("postrider.toml"), []byte(text), 0o600))
	p, code := parts.RunRelay(r.t, parts.RelayConfig{Dir: r.dir}, args...)
	return p.Stdout.String(), p.Log.String(), code
}

var covers = regexp.MustCompile(`the offset covers (\d+) rows published since \S+; ` +
	`(?:none of them is|the last (\d+) are) published again`)

// advance moves the slot, if Debezium itself has not, and returns how many published rows the
// offset covers, and how many of them come again.
func (r *rig) advance(flags ...string) (covered, again int) {
	r.t.Helper()
	args := []string{"slot", "advance", r.name, "--debezium-offsets", "offsets.json", "--yes"}
	stdout, stderr, code := r.postrider(append(args, flags...)...)
	require.Zero(r.t, code, stdout+stderr)
	if strings.Contains(stdout, "nothing to move") {
		return 0, 0
	}
	match := covers.FindStringSubmatch(stdout)
	require.NotNil(r.t, match, stdout)
	covered, err := strconv.Atoi(match[1])
	require.NoError(r.t, err)
	if match[2] != "" {
		again, err = strconv.Atoi(match[2])
		require.NoError(r.t, err)
	}
	return covered, again
}

var payload = regexp.MustCompile(`p\d+`)

// left is what the slot would send of the outbox now, by payload.
func (r *rig) left() (payloads []string) {
	r.t.Helper()
	rows, err := r.conn.Query(r.t.Context(), `SELECT data
		FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', $2, 'messages', 'true')
		WHERE get_byte(data, 0) IN (ascii('I'), ascii('M'))`, r.name, r.name)
	require.NoError(r.t, err)
	messages, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(r.t, err)
	for _, m := range messages {
		if p := payload.FindString(string(m)); p != "" {
			payloads = append(payloads, p)
		}
	}
	return payloads
}

// setOffset writes an offset into the worker for the stopped connector.
func (r *rig) setOffset(change func(map[string]any)) {
	r.t.Helper()
	var all struct {
		Offsets []struct {
			Partition map[string]any `json:"partition"`
			Offset    map[string]any `json:"offset"`
		} `json:"offsets"`
	}
	decoder := json.NewDecoder(bytes.NewReader(r.worker.Offsets(r.t, r.name)))
	decoder.UseNumber()
	require.NoError(r.t, decoder.Decode(&all))
	require.Len(r.t, all.Offsets, 1)
	change(all.Offsets[0].Offset)
	body, err := json.Marshal(all)
	require.NoError(r.t, err)
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPatch,
		r.worker.URL()+"/connectors/"+r.name+"/offsets", bytes.NewReader(body))
	require.NoError(r.t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(r.t, err)
	require.NoError(r.t, response.Body.Close())
	require.Equal(r.t, http.StatusOK, response.StatusCode)
}
