package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/test/parts"
)

// audited is what audit --json prints.
type audited struct {
	Result  string   `json:"result"`
	Tables  []string `json:"written_to"`
	Topics  []string `json:"topics"`
	OrderBy string   `json:"order_by"`
	Seconds float64  `json:"seconds"`

	NotFound int64    `json:"not_found"`
	Removed  []string `json:"records_removed_from"`

	TransactionsJudged bool `json:"torn_transactions_judged"`
	audit.Report
}

func (s *shop) audit(t testing.TB, args ...string) (audited, int) {
	t.Helper()
	p := start(t, s.environment(), append([]string{"audit", "--json", "--config", s.file}, args...)...)
	code := p.Wait(t)
	var r audited
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &r), "%s\n%s", p.Stdout.String(), p.Log.String())
	return r, code
}

const auditedSQL = `
CREATE TABLE outbox (
	id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	number         bigint GENERATED ALWAYS AS IDENTITY,
	aggregate_type text NOT NULL DEFAULT 'order',
	aggregate_id   text,
	payload        jsonb,
	created_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`

const (
	auditedRows = 240
	auditedKeys = 8
	rowsAtOnce  = 6 // in a transaction
)

// good is a relay's delivery of some rows, and the shop that they came from.
type good struct {
	*shop
	topic   string
	records [][]*kgo.Record // by partition
}

// deliver runs the relay until some rows are delivered.
func deliver(t *testing.T) *good {
	t.Helper()
	c := newCluster(t)
	g := &good{topic: c.Topic(t, partitions)}
	g.shop = newShop(t, parts.AnyVersion, auditedSQL, fmt.Sprintf(`
[relay]
dedup = "tail"

[router]
position_headers = true
route.topic.regex = ".*"
route.topic.replacement = %q
`, g.topic))
	r := g.run(t)
	for from := 0; from < auditedRows; from += rowsAtOnce {
		g.do(t, fmt.Sprintf(`INSERT INTO outbox (aggregate_id, payload) SELECT 'key ' || n * 5 %% %d, jsonb_build_object('n', n) FROM generate_series(%d, %d) n`,
			auditedKeys, from, from+rowsAtOnce-1))
	}
	g.awaitConfirmed(t, r)
	r.Stop(t)
	g.records = make([][]*kgo.Record, partitions)
	for _, record := range g.All(t, g.topic) {
		g.records[record.Partition] = append(g.records[record.Partition], record)
	}
	return g
}

// publish makes a topic with the records as they are given, by partition.
func (g *good) publish(t *testing.T, records [][]*kgo.Record) (topic string) {
	t.Helper()
	topic = g.Topic(t, partitions)
	client := g.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for partition, of := range records {
		for _, r := range of {
			copied := &kgo.Record{Topic: topic, Partition: int32(partition), Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
			client.Produce(t.Context(), copied, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	require.NoError(t, client.Flush(t.Context()))
	return topic
}

// longest is the partition with most records.
func longest(records [][]*kgo.Record) int {
	most := 0
	for i := range records {
		if len(records[i]) > len(records[most]) {
			most = i
		}
	}
	return most
}

func idOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "id" {
			return string(h.Value)
		}
	}
	return ""
}

func TestAudit_FindsEachKindOfFault(t *testing.T) {
	t.Parallel()
	g := deliver(t)
	p := longest(g.records)
	clean := audit.Report{Written: auditedRows, Records: auditedRows, Delivered: auditedRows, Passes: 1}
	require.Greater(t, len(g.records[p]), 30)

	for name, c := range map[string]struct {
		spoil func(records [][]*kgo.Record) [][]*kgo.Record
		want  func(v *audit.Report)
	}{
		"a good run": {func(r [][]*kgo.Record) [][]*kgo.Record { return r }, func(*audit.Report) {}},
		"a record dropped": {
			func(r [][]*kgo.Record) [][]*kgo.Record { r[p] = slices.Delete(r[p], 10, 11); return r },
			func(v *audit.Report) { v.Lost, v.PartialTransactions = 1, 1 },
		},
		"half a transaction dropped": {
			func(r [][]*kgo.Record) [][]*kgo.Record {
				numbers := []string{`{"n": 60}`, `{"n": 61}`, `{"n": 62}`}
				for i := range r {
					r[i] = slices.DeleteFunc(r[i], func(one *kgo.Record) bool { return slices.Contains(numbers, string(one.Value)) })
				}
				return r
			},
			func(v *audit.Report) { v.Lost, v.PartialTransactions = 3, 1 },
		},
		"a run repeated": {
			func(r [][]*kgo.Record) [][]*kgo.Record { r[p] = slices.Insert(r[p], 20, r[p][8:20]...); return r },
			func(v *audit.Report) { v.Duplicated, v.LongestRepeat = 12, 12 },
		},
		"two of a key swapped": {
			func(r [][]*kgo.Record) [][]*kgo.Record {
				next := slices.IndexFunc(r[p][11:], func(one *kgo.Record) bool { return string(one.Key) == string(r[p][10].Key) }) + 11
				r[p][10], r[p][next] = r[p][next], r[p][10]
				return r
			},
			func(v *audit.Report) { v.OutOfOrder = 1 },
		},
		"an unexpected record": {
			func(r [][]*kgo.Record) [][]*kgo.Record {
				unexpected := *r[p][5]
				unexpected.Headers = []kgo.RecordHeader{{Key: "id", Value: []byte("c0ffee00-0000-4000-8000-000000000000")}}
				r[p] = slices.Insert(r[p], 12, &unexpected)
				return r
			},
			func(v *audit.Report) { v.Phantom = 1 },
		},
		"a record in another partition": {
			func(r [][]*kgo.Record) [][]*kgo.Record {
				other := (p + 1) % partitions
				r[other] = append(r[other], r[p][10])
				r[p] = slices.Delete(r[p], 10, 11)
				return r
			},
			func(v *audit.Report) { v.PartitionChanges = 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := make([][]*kgo.Record, partitions)
			for i := range records {
				records[i] = slices.Clone(g.records[i])
			}
			topic := g.publish(t, c.spoil(records))
			want := clean
			c.want(&want)
			want.Records += want.Duplicated + want.Phantom - want.Lost
			want.Delivered -= want.Lost

			want.OrderJudged = want.Delivered
			v, _ := g.audit(t, "--topic", topic, "--order-by", "number")
			require.Equal(t, "number", v.OrderBy)
			byColumn := v.Report
			byColumn.Examples = nil
			require.Equal(t, want, byColumn)

			v, code := g.audit(t, "--topic", topic)
			require.Equal(t, []string{"public.outbox"}, v.Tables)
			require.Equal(t, []string{topic}, v.Topics)
			require.Equal(t, "positions", v.OrderBy)
			examples := v.Examples
			v.Examples = nil
			require.Equal(t, want, v.Report)
			if want.Clean() {
				require.Zero(t, code)
				require.Equal(t, "clean", v.Result)
				require.Empty(t, examples)
				return
			}
			require.Equal(t, 1, code)
			require.Equal(t, "faults", v.Result)
			require.NotEmpty(t, examples)
			for _, e := range examples {
				if e.Kind != audit.PartialTransaction {
					require.NotEmpty(t, e.ID)
					require.Len(t, e.KeyHash, 12)
				}
			}
		})
	}
}

func TestAudit_TakesTheTopicsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	g := deliver(t)
	v, code := g.audit(t)
	require.Zero(t, code)
	require.Equal(t, []string{g.topic}, v.Topics)
	require.Equal(t, "positions", v.OrderBy)
	require.EqualValues(t, auditedRows, v.Delivered)

	// What a person reads.
	p := start(t, g.environment(), "audit", "--config", g.file)
	require.Zero(t, p.Wait(t))
	require.Contains(t, p.Stdout.String(), "clean: every row arrived exactly once, in order")

	// A row that is not published yet is lost, unless the newest are left out.
	var until time.Time
	require.NoError(t, g.sql.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&until))
	g.do(t, `INSERT INTO outbox (aggregate_id) VALUES ('key 1')`)
	v, code = g.audit(t)
	require.Equal(t, 1, code)
	require.EqualValues(t, 1, v.Lost)
	require.Zero(t, v.PartialTransactions)
	v, code = g.audit(t, "--until", until.Format(time.RFC3339Nano))
	require.Zero(t, code)
	require.EqualValues(t, 1, v.NotJudged)
	v, code = g.audit(t, "--since", until.Format(time.RFC3339Nano), "--topic", g.topic)
	require.Equal(t, 1, code)
	require.EqualValues(t, 1, v.Written)
	require.EqualValues(t, 1, v.Lost)
	require.Zero(t, v.Phantom)
}

// The id may be anywhere, and what was written may stand in a file.
func TestAudit_WorksOnWhateverARelayWrites(t *testing.T) {
	t.Parallel()
	g := deliver(t)
	left := g.records[longest(g.records)][3]
	rest, byValue, byKey := make([][]*kgo.Record, partitions), make([][]*kgo.Record, partitions), make([][]*kgo.Record, partitions)
	for i, of := range g.records {
		for _, r := range of {
			if r == left {
				continue
			}
			rest[i] = append(rest[i], r)
			value := fmt.Appendf(nil, `{"schema": null, "payload": {"event": [{"id": %q, "data": %s}]}}`, idOf(r), r.Value)
			byValue[i] = append(byValue[i], &kgo.Record{Key: fmt.Appendf(nil, "%q", r.Key), Value: value})
			byKey[i] = append(byKey[i], &kgo.Record{Key: fmt.Appendf(nil, "%q", idOf(r)), Value: r.Value})
		}
	}
	for i := range byValue { // tombstones, as some relays send them behind an event
		byValue[i] = append(byValue[i], &kgo.Record{Key: []byte(`"key 1"`)})
	}
	topicByValue, topicByKey, file := g.publish(t, byValue), g.publish(t, byKey), g.writeLog(t)
	for name, args := range map[string][]string{
		"value":         {"--topic", topicByValue, "--id", "value:/payload/event/0/id"},
		"key":           {"--topic", topicByKey, "--id", "key"},
		"table by name": {"--topic", topicByKey, "--id", "key", "--table", "outbox"},
		"log":           {"--topic", topicByKey, "--id", "key", "--log", file},
		"log, since":    {"--topics", topicByKey, "--id", "key", "--log", file, "--since", "1h"},
	} {
		v, code := g.audit(t, args...)
		require.Equal(t, 1, code, name)
		require.EqualValues(t, []int64{auditedRows, auditedRows - 1, 1, 1}, []int64{v.Written, v.Delivered, v.Lost, v.PartialTransactions}, name)
		require.Zero(t, v.Phantom+v.OutOfOrder+v.Duplicated+v.PartitionChanges+v.PartialReplays, name)
		require.Equal(t, idOf(left), v.Examples[0].ID, name)
	}
	dead := g.publish(t, [][]*kgo.Record{{left, {Key: left.Key, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("of another table")}}}}})
	v, code := g.audit(t, "--topic", g.publish(t, rest), "--dead-letters", dead)
	require.Zero(t, code)
	require.EqualValues(t, 1, v.DeadLettered)
	require.Zero(t, v.Lost)
}

// writeLog makes a file of what is in the table.
func (g *good) writeLog(t *testing.T) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "written.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	rows, err := g.sql.Query(t.Context(), "SELECT jsonb_build_object('id', id, 'key', aggregate_id, 'transaction', xmin::text::bigint, 'time', created_at) FROM outbox ORDER BY number")
	require.NoError(t, err)
	var line string
	_, err = pgx.ForEachRow(rows, []any{&line}, func() error {
		_, err := fmt.Fprintln(file, line)
		return err
	})
	require.NoError(t, err)
	return file.Name()
}

// Numbers are sorted as numbers, though they are compared with the records as text, which sorts 10 before 9 and 103 before 12.
func TestAudit_SortsNumbersAsNumbers(t *testing.T) {
	t.Parallel()
	const rows, keys = 120, 3
	g := &good{topic: newCluster(t).Topic(t, partitions)}
	g.shop = newShop(t, parts.AnyVersion, `
CREATE TABLE outbox (
	id             bigint PRIMARY KEY,
	aggregate_type text NOT NULL DEFAULT 'order',
	aggregate_id   bigint NOT NULL,
	written        bigint NOT NULL,
	payload        jsonb
);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`, fmt.Sprintf(`
[router]
route.topic.regex = ".*"
route.topic.replacement = %q
`, g.topic))
	r := g.run(t)
	g.do(t, fmt.Sprintf(`INSERT INTO outbox (id, aggregate_id, written, payload) SELECT n, n %% %d, n, '{}' FROM generate_series(1, %d) n`, keys, rows))
	g.awaitConfirmed(t, r)
	r.Stop(t)
	records := make([][]*kgo.Record, partitions)
	for _, record := range g.All(t, g.topic) {
		records[record.Partition] = append(records[record.Partition], record)
	}
	for _, order := range [][]string{{"--order-by", "id"}, {"--order-by", "written", "--transaction-column", "written"}} {
		v, code := g.audit(t, append([]string{"--topic", g.topic}, order...)...)
		require.Zero(t, code, "%q: %+v", order, v)
		require.EqualValues(t, rows, v.Delivered)
	}
	// 12 before 9, which is the order of their texts, and a fault.
	of := records[slices.IndexFunc(records, func(of []*kgo.Record) bool {
		return slices.ContainsFunc(of, func(r *kgo.Record) bool { return idOf(r) == "9" })
	})]
	at := func(id string) int { return slices.IndexFunc(of, func(r *kgo.Record) bool { return idOf(r) == id }) }
	of[at("9")], of[at("12")] = of[at("12")], of[at("9")]
	v, code := g.audit(t, "--topic", g.publish(t, records), "--order-by", "id")
	require.Equal(t, 1, code)
	require.EqualValues(t, 1, v.OutOfOrder)
}

// A consumer of committed records sees what the audit sees.
func TestAudit_LeavesOutWhatTransactionsTookBack(t *testing.T) {
	t.Parallel()
	g := deliver(t)
	topic := g.publish(t, g.records)
	p := longest(g.records)
	writer := g.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(parts.Unique("writer")))
	require.NoError(t, writer.BeginTransaction())
	r := g.records[p][4]
	require.NoError(t, writer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: int32(p), Key: r.Key, Value: r.Value, Headers: r.Headers}).FirstErr())
	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryAbort))

	v, code := g.audit(t, "--topic", topic)
	require.Zero(t, code, "%+v", v)
	v, code = g.audit(t, "--topic", topic, "--isolation", "read_uncommitted")
	require.Equal(t, 1, code)
	require.EqualValues(t, 1, v.Duplicated)
}

func TestAudit_ReadsPartitionedTablesAsTheRoleThatMay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, `
CREATE TABLE outbox (id uuid NOT NULL DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text, payload jsonb,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
CREATE TABLE outbox_new PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true);`, routeTo(topic, "[replication]\ntables = [\"public.outbox\"]"))
	s.do(t, `INSERT INTO outbox (aggregate_type, aggregate_id, created_at)
		SELECT 'order', 'a', CASE WHEN n < 5 THEN '2019-01-01'::timestamptz ELSE now() END + n * interval '1 s' FROM generate_series(1, 10) n`)
	v, code := s.audit(t, "--topic", topic)
	require.Equal(t, 1, code)
	require.EqualValues(t, []int64{10, 10, 0}, []int64{v.Written, v.Lost, v.PartialTransactions})

	role := parts.Unique("reader")
	s.do(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), s.DSN()) // the test's own has ended
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), "DROP ROLE "+role)
		require.NoError(t, err)
	})
	u, err := url.Parse(s.DSN())
	require.NoError(t, err)
	u.User = url.UserPassword(role, "x")
	env := s.environment()
	env["POSTRIDER_POSTGRES_URL"] = u.String()
	p := start(t, env, "audit", "--topic", topic, "--config", s.file)
	require.Equal(t, 77, p.Wait(t), p.Log.String())
	require.Contains(t, p.Log.String(), `GRANT SELECT ON "public"."outbox" TO "`+role+`"`)
}
