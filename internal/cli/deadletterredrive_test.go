package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink"
)

// To look at what would be redriven ends no redrive that is under way.
func TestDeadLetter_DryRunOfRedriveShutsOutNobody(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 1, "postrider.dead_letters": 1})
	i.put(k.Brokers()[0], refused("0102030405060708090a0b0c"))
	other, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...),
		kgo.TransactionalID("postrider.deadletter.postrider.dead_letters"))
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.BeginTransaction())
	require.NoError(t,
		other.ProduceSync(t.Context(),
			&kgo.Record{Topic: "outbox.event.order", Value: []byte("x")}).FirstErr())
	for _, command := range []string{"redrive", "discard"} {
		r := i.ok("deadletter", command, "--all", "--dry-run")
		require.Contains(t, r.stdout, "0102030405060708090a0b0c")
	}
	require.NoError(t, other.EndTransaction(t.Context(), kgo.TryCommit))
}

// refused is a dead letter of a message that the broker has refused.
func refused(id string) *sink.Message {
	return &sink.Message{
		Topic: "postrider.dead_letters", Partition: sink.ByKey, Key: []byte("2"),
		Value: []byte(`{"n": 2}`), Timestamp: time.Now(),
		Headers: []sink.Header{
			headerOf(deadletter.HeaderForm, string(deadletter.FormMessage)),
			headerOf(deadletter.HeaderID, id),
			headerOf(deadletter.HeaderCause, "refused"),
			headerOf(deadletter.HeaderPosition, "0/1/0"),
			headerOf(deadletter.HeaderParks, "false"),
			headerOf(deadletter.HeaderTopic, "outbox.event.order"),
		},
	}
}

// typist answers a question, after something else has happened.
type typist struct {
	before func()
	answer io.Reader
}

func (t *typist) Read(b []byte) (int, error) {
	if t.before != nil {
		t.before()
		t.before = nil
	}
	return t.answer.Read(b)
}

// A dead letter is either redriven or discarded: of two commands at once the one that began last goes on, and the other says so.
func TestDeadLetter_ARedriveOrDiscardEndsTheOneThatIsUnderWay(t *testing.T) {
	for command, other := range map[string]string{"redrive": "discard", "discard": "redrive"} {
		t.Run(command, func(t *testing.T) {
			i, k := installWithKafka(t, "17", topics{"outbox.event.order": 1, "postrider.dead_letters": 1})
			i.exec(recoverOutbox)
			i.put(k.Brokers()[0], refused("0102030405060708090a0b0c"), refused("1102030405060708090a0b0c"))
			r := executeWith(t, &typist{answer: strings.NewReader(command + "\n"), before: func() {
				i.ok("deadletter", other, "01", "--yes")
			}}, i.env, "deadletter", command, "--all")
			require.NotZero(t, r.code, r.stdout)
			require.Contains(t, r.stderr, "another process has begun with the transactional id")
			require.Contains(t, i.ok("deadletter", "list").stdout, "1102030405060708090a0b0c", "it stays open")
			require.Len(t, i.published(k.Brokers()[0]), map[string]int{"redrive": 0, "discard": 1}[command])
		})
	}
}

// A row is routed again, with the schemas of the registry.
func TestDeadLetterRedrive_ValidatesTheRegistry(t *testing.T) {
	i, _ := installWithKafka(t, "17", topics{"postrider.dead_letters": 1})
	r := i.run("deadletter", "redrive", "--all", "--yes", "--set", "format.value=avro")
	require.Equal(t, exit.Config, r.code, r.stdout)
	require.Contains(t, r.stderr, "registry.urls: is empty")
}

// claimOf is a dead letter of a row that is too large, without a hash, as of rows over
// replication.max_row_bytes: it says where the row is, and nothing of what is in it.
func (i *install) claimOf(system, table string, oid uint32, id int) *sink.Message {
	document := fmt.Sprintf(`{"kind": "insert", "relation": %q, "schema": "public", "table": %q,
		"oid": %d, "event_id": "%d", "size": 99999999, "columns": [
		{"name": "id", "type": 20, "type_modifier": -1, "key": true, "value": "%[4]d"}]}`,
		"public."+table, table, oid, id)
	return &sink.Message{
		Topic: "postrider.dead_letters", Partition: sink.ByKey, Value: []byte(document),
		Timestamp: time.Now(),
		Headers: []sink.Header{
			headerOf(deadletter.HeaderForm, string(deadletter.FormClaim)),
			headerOf(deadletter.HeaderID, fmt.Sprintf("%024x", id)),
			headerOf(deadletter.HeaderCause, "too_large"),
			headerOf(deadletter.HeaderPosition, "0/1/0"),
			headerOf(deadletter.HeaderParks, "false"),
			headerOf(deadletter.HeaderSource, system+"/1/"+i.db.Name+"/postrider"),
			headerOf(deadletter.HeaderRelation, "public."+table),
			headerOf(deadletter.HeaderEventID, fmt.Sprint(id)),
		},
	}
}

// system is the identifier of the server.
func (i *install) system() (id string) {
	i.t.Helper()
	require.NoError(i.t, i.conn.QueryRow(i.t.Context(),
		"SELECT system_identifier::text FROM pg_control_system()").Scan(&id))
	return id
}

func (i *install) oid(table string) (oid uint32) {
	i.t.Helper()
	require.NoError(i.t, i.conn.QueryRow(i.t.Context(), "SELECT $1::text::regclass::oid",
		table).Scan(&oid))
	return oid
}

// published are the keys and values that have come to the topic of orders.
func (i *install) published(broker string) map[string]string {
	i.t.Helper()
	i.put(broker, &sink.Message{Topic: "outbox.event.order", Key: []byte("last"),
		Partition: 0, Timestamp: time.Now()})
	client, err := kgo.NewClient(kgo.SeedBrokers(broker),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			"outbox.event.order": {0: kgo.NewOffset().AtStart()}}))
	require.NoError(i.t, err)
	defer client.Close()
	found := map[string]string{}
	for {
		fetches := client.PollFetches(i.t.Context())
		require.NoError(i.t, fetches.Err())
		for _, r := range fetches.Records() {
			if string(r.Key) == "last" {
				return found
			}
			found[string(r.Key)] = string(r.Value)
		}
	}
}

// newOutbox has another table of the name outbox, with other rows of the same ids.
const newOutbox = `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	aggregate_type text NOT NULL DEFAULT 'order', aggregate_id text NOT NULL, payload jsonb, created_at timestamptz);
	ALTER PUBLICATION postrider ADD TABLE outbox;
	INSERT INTO outbox (aggregate_id, payload) SELECT 'new', '{"another": "event"}' FROM generate_series(1, 3)`

// A name may be that of another table by the time of the redrive, with another row of the id; and the table of the claim may have another name.
func TestDeadLetter_AClaimIsReadFromTheTableOfItsRow(t *testing.T) {
	row := map[string]string{"2": `{"n": 2}`}
	for name, c := range map[string]struct {
		since     string // SQL
		configure string
		elsewhere bool // the claim is of another server, where OIDs are others
		want      map[string]string
		problem   string
	}{
		"another table has the name": {since: "ALTER TABLE outbox RENAME TO outbox_old;" + newOutbox,
			want: row},
		"another table has the name, and both are published": {
			since:     "ALTER TABLE outbox RENAME TO outbox_old;" + newOutbox,
			configure: "public.outbox,public.outbox_old", want: row},
		"renamed": {since: "ALTER TABLE outbox RENAME TO events", configure: "public.events",
			want: row},
		"renamed, in a publication of all tables": {since: `ALTER TABLE outbox RENAME TO events;
			DROP PUBLICATION postrider; CREATE PUBLICATION postrider FOR ALL TABLES WITH (publish = 'insert')`,
			configure: "public.events", want: row},
		"in another schema": {since: "CREATE SCHEMA sales; ALTER TABLE outbox SET SCHEMA sales",
			configure: "sales.outbox", want: row},
		"dropped, and another table has the name": {since: "DROP TABLE outbox;" + newOutbox,
			problem: "was dropped, and one that has the name now is another"},
		"of another server": {since: "ALTER TABLE outbox RENAME TO outbox_old;" + newOutbox,
			elsewhere: true, want: map[string]string{"new": `{"another": "event"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			i, k := installWithKafka(t, "17", topics{"outbox.event.order": 1, "postrider.dead_letters": 1})
			broker := k.Brokers()[0]
			i.env = append(i.env, "POSTRIDER_DEADLETTER_TOO_LARGE=dead_letter")
			i.exec(recoverOutbox)
			i.insertOld(3)
			system := i.system()
			if c.elsewhere {
				system = "7300000000000000000"
			}
			i.put(broker, i.claimOf(system, "outbox", i.oid("outbox"), 2))
			i.exec(c.since)
			args := []string{"deadletter", "redrive", "--all", "--yes"}
			if c.configure != "" {
				args = append(args, "--set", "replication.tables="+c.configure)
			}
			r := i.run(args...)
			if c.problem != "" {
				require.NotZero(t, r.code, r.stdout)
				require.Contains(t, r.stderr, c.problem)
				require.Empty(t, i.published(broker))
				require.Contains(t, i.ok("deadletter", "list").stdout, "public.outbox",
					"it stays open")
				return
			}
			require.Zero(t, r.code, r.stderr)
			require.Equal(t, c.want, i.published(broker))
		})
	}
}

// Without publish_via_partition_root a claim has the name and the OID of a partition.
func TestDeadLetter_AClaimIsReadFromItsPartition(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 1, "postrider.dead_letters": 1})
	i.env = append(i.env, "POSTRIDER_DEADLETTER_TOO_LARGE=dead_letter")
	i.exec(`CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_type text NOT NULL DEFAULT 'order',
		aggregate_id text NOT NULL, payload jsonb) PARTITION BY RANGE (id);
		CREATE TABLE outbox_new PARTITION OF outbox FOR VALUES FROM (0) TO (1000);
		CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');
		INSERT INTO outbox (id, aggregate_id, payload) SELECT n, n, jsonb_build_object('n', n) FROM generate_series(1, 3) n`)
	i.exec("SELECT pg_create_logical_replication_slot('" + i.db.Name + "', 'pgoutput')")
	broker := k.Brokers()[0]
	i.put(broker, i.claimOf(i.system(), "outbox_new", i.oid("outbox_new"), 2))
	i.exec(`ALTER TABLE outbox_new RENAME TO outbox_1;
		CREATE TABLE outbox_new PARTITION OF outbox FOR VALUES FROM (1000) TO (2000)`)
	i.ok("deadletter", "redrive", "--all", "--yes")
	require.Equal(t, map[string]string{"2": `{"n": 2}`}, i.published(broker))
}

// With REPLICA IDENTITY FULL a claim has every short column, and not every type has an operator =.
func TestDeadLetter_AClaimIsFoundByColumnsOfAnyType(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 1, "postrider.dead_letters": 1})
	broker := k.Brokers()[0]
	i.env = append(i.env, "POSTRIDER_DEADLETTER_TOO_LARGE=dead_letter")
	i.exec(recoverOutbox)
	i.exec(`CREATE TYPE mood AS ENUM ('sad', 'ok')`)
	i.exec(`ALTER TABLE outbox REPLICA IDENTITY FULL, ADD flag boolean, ADD code char(4), ADD raw bytea, ADD number numeric,
		ADD took interval, ADD document json, ADD page xml, ADD place point, ADD documents json[], ADD tags text[],
		ADD ratio real, ADD path jsonpath, ADD span int4range, ADD mood mood`)
	i.exec(`INSERT INTO outbox (aggregate_id, payload, created_at, flag, code, raw, number, took, document, page, place,
			documents, tags, ratio, path, span, mood)
		SELECT n, jsonb_build_object('n', n), now(), true, 'ab', '\x00ff', 1.50, '1 day 2 hours', '{"a" : 1}',
			'<?xml version="1.0" encoding="UTF-8"?><a/>', '(0.1,2)', ARRAY['{"b":2}'::json], '{a,"b c"}', 0.1, '$.a',
			'[1,5)', 'ok' FROM generate_series(1, 3) n`)
	row := i.conn.PgConn().ExecParams(t.Context(), "SELECT * FROM outbox WHERE id = 2", nil, nil, nil, nil).Read()
	require.NoError(t, row.Err)
	d := deadletter.Document{Kind: "insert", Relation: "public.outbox", Schema: "public", Table: "outbox", OID: i.oid("outbox")}
	for n, f := range row.FieldDescriptions {
		value := deadletter.Text(row.Rows[0][n])
		d.Columns = append(d.Columns, deadletter.Column{Name: f.Name, Type: f.DataTypeOID, Key: true, Value: &value})
	}
	claim := i.claimOf(i.system(), "outbox", d.OID, 2)
	var err error
	claim.Value, err = json.Marshal(d)
	require.NoError(t, err)
	i.put(broker, claim)
	i.ok("deadletter", "redrive", "--all", "--yes")
	require.Equal(t, map[string]string{"2": `{"n": 2}`}, i.published(broker))
}
