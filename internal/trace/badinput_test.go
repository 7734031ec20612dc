package trace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/test/parts"
)

func deleteBefore(t *testing.T, b *parts.Broker, topic string, partition int32, offset int64) {
	t.Helper()
	deleted, err := kadm.NewClient(b.Client(t)).DeleteRecords(parts.Within(t, parts.Patience),
		kadm.OffsetsList{{Topic: topic, Partition: partition, At: offset}}.Offsets())
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
}

func codeOf(t *testing.T, err error) (code int, next string) {
	t.Helper()
	f := new(exit.Error)
	require.True(t, errors.As(err, &f), "%v", err)
	return f.Code, f.Next
}

func TestTrace_RefusesAnIDThatNoColumnCanHave(t *testing.T) {
	w := newWorld(t, outbox+`; CREATE TABLE numbered (id int, aggregate_type text, aggregate_id text,
		payload text); ALTER PUBLICATION postrider ADD TABLE numbered`,
		`[replication]`, `tables = ["public.outbox", "public.numbered"]`)
	w.do(`INSERT INTO numbered VALUES (7, 'order', '17', 'CANARY'), (7, 'order', '18', 'CANARY')`)
	err := w.fails(Request{ID: "it's"})
	code, _ := codeOf(t, err)
	require.Equal(t, exit.Usage, code)
	require.ErrorContains(t, err, `no event has the id "it's"`)
	require.ErrorContains(t, err, `of table public.`)
	code, _ = codeOf(t, w.fails(Request{ID: "99999999999"}))
	require.Equal(t, exit.Usage, code)

	// It fits one table, in which two rows have it.
	r := w.trace(Request{ID: "7"})
	require.Len(t, r.Events, 2)
	require.Contains(t, r.Answer, "event 7 has 2 events")
	require.Contains(t, strings.Join(r.Notes, "\n"), "the id is not unique")
	for _, r := range []Request{{}, {ID: "1", Key: new("1")}, {ID: "1", AggregateType: "order"},
		{ID: strings.Repeat("1", longestID+1)}} {
		code, _ := codeOf(t, r.Validate())
		require.Equal(t, exit.Usage, code)
	}
}

// Two rows with one id in one topic differ by their keys.
func TestTrace_TellsRowsOfOneIDApart(t *testing.T) {
	w := newWorld(t, `CREATE TABLE outbox (id text, aggregate_type text, aggregate_id text, payload text);
		CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`)
	w.createSlot()
	w.start()
	w.do(`INSERT INTO outbox VALUES ('x', 'order', '1', 'CANARY'), ('x', 'order', '2', 'CANARY')`)
	w.deliver()
	r := w.trace(Request{ID: "x"})
	require.Equal(t, Published, r.State)
	for _, e := range r.Events {
		require.Len(t, e.Records, 1)
		require.Equal(t, *e.Route.Key, *e.Records[0].Key)
	}
}

func TestTrace_SaysWhichGrantIsMissing(t *testing.T) {
	w := newWorld(t, outbox)
	w.insert(1, "17")
	role := "Ro\"le " + w.db.Name
	w.do(fmt.Sprintf(`CREATE ROLE "%s" LOGIN`, strings.ReplaceAll(role, `"`, `""`)))
	t.Cleanup(func() {
		quoted := `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
		_, err := w.sql.Exec(context.Background(), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted)
		require.NoError(t, err)
	})
	dsn, err := urlAs(w.db.DSN(), role)
	require.NoError(t, err)
	w.cfg.Postgres.URL = secret.Of(dsn)
	err = w.fails(Request{ID: id(1)})
	code, next := codeOf(t, err)
	require.Equal(t, exit.Permission, code)
	require.ErrorContains(t, err, "table public.outbox cannot be searched: the role lacks SELECT")
	grant, _, _ := strings.Cut(next, " --")
	w.do(grant)
	require.Equal(t, NotPublished, w.byID(1).State, "the slot does not exist")

	// The running relay has the event among those that it published last, and no right is needed.
	sample := func(context.Context) *Relay {
		return &Relay{Recent: []relay.Published{{EventID: id(1), Topic: w.topic("order"),
			LSN: "0/1", CommitTime: time.Now(), At: time.Now()}}}
	}
	w.do("REVOKE SELECT ON outbox FROM PUBLIC, \"" + strings.ReplaceAll(role, `"`, `""`) + `"`)
	seen, err := Run(t.Context(), w.cfg, w.request(Request{ID: id(1)}), sample)
	require.NoError(t, err)
	require.Equal(t, Published, seen.State)
	require.Equal(t, "acknowledged", seen.Events[0].Legs[1].Name)
	require.Contains(t, strings.Join(seen.Notes, "\n"), "cannot be searched")
	w.do(grant)
	// Without consent, as on the page, tables of other roles are not read.
	found, err := Run(t.Context(), w.cfg, Request{ID: id(1), MaxRead: 1}, nil)
	require.Nil(t, found)
	require.ErrorContains(t, err, "the table belongs to another role")
}

func TestTrace_SaysWhichRightOnATopicIsMissing(t *testing.T) {
	w := newWorld(t, outbox)
	w.createSlot()
	w.insert(1, "17")
	broker, _ := parts.FakeKafka(t, embedded.KafkaConfig{Topics: map[string]int32{w.topic("order"): 1},
		Options: []kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(),
			kfake.User("PLAIN", "rider", "s3cret-canary")}})
	w.cfg.Sink.Kafka.Brokers = broker.Brokers()
	w.cfg.Sink.Kafka.SASL.Mechanism, w.cfg.Sink.Kafka.SASL.Username = "PLAIN", "rider"
	w.cfg.Sink.Kafka.SASL.Password = secret.Of("s3cret-canary")
	found, err := Run(t.Context(), w.cfg, w.request(Request{ID: id(1)}), nil)
	code, next := codeOf(t, err)
	require.Equal(t, exit.Permission, code)
	require.Contains(t, next, "--allow-principal User:rider --operation Describe --operation Read "+
		"--topic "+w.topic("order"))
	require.NotContains(t, err.Error(), "canary")
	require.Equal(t, Undecided, found.State, "the row is shown")
	require.Contains(t, found.Why, "whether it is published is not known")
}

// That a topic cannot be read is no word about what it has.
func TestTrace_DoesNotSayNotFoundOfATopicThatItCouldNotRead(t *testing.T) {
	w := newWorld(t, outbox)
	w.createSlot()
	w.cfg.Sink.Kafka.Brokers = []string{"127.0.0.1:1"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	found, err := Run(ctx, w.cfg, w.request(Request{ID: id(1), Topic: w.topic("order")}), nil)
	require.Error(t, err)
	require.Equal(t, Undecided, found.State)
	require.Contains(t, found.Answer, "is not decided")
	require.Contains(t, found.Why, "whether topic "+w.topic("order")+" has it is not known")
}

func TestTrace_ReadsNoLargeTableWithoutAnIndex(t *testing.T) {
	w := newWorld(t, outbox+`; ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`)
	w.do(`INSERT INTO outbox SELECT gen_random_uuid(), 'order', n::text, NULL, repeat('x', 500)
		FROM generate_series(1, 2000) n; ANALYZE outbox`)
	w.insert(1, "17")
	err := w.fails(Request{ID: id(1), MaxScan: 1 << 20})
	code, next := codeOf(t, err)
	require.Equal(t, exit.Config, code)
	require.ErrorContains(t, err, `no index of table public.outbox finds rows by column "id": the server would read 1.1 MiB`)
	require.Contains(t, next, "--scan")
	require.NotEqual(t, NotFound, w.trace(Request{ID: id(1), MaxScan: 2 << 20}).State)
	w.do("CREATE INDEX ON outbox (id)")
	require.NotEqual(t, NotFound, w.trace(Request{ID: id(1), MaxScan: 1}).State)
}

// Without a time of the row, the topic is read from its end; the limit ends it.
func TestTrace_ReadsATopicWithinItsLimit(t *testing.T) {
	w := newWorld(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text,
		payload text); CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`)
	w.createSlot()
	w.start()
	w.do("INSERT INTO outbox VALUES ('" + id(1) + "', 'order', '17', 'CANARY')")
	w.deliver()
	partition := w.byID(1).Events[0].Records[0].Partition
	writer := w.broker.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var later []*kgo.Record
	for range firstWindow + 1000 { // more than one window
		later = append(later, &kgo.Record{Topic: w.topic("order"), Partition: partition,
			Value: make([]byte, 100), Timestamp: time.Now()})
	}
	// A repetition, which is in the window that is read first, and its first record is not.
	later[len(later)-firstWindow] = &kgo.Record{Topic: w.topic("order"), Partition: partition,
		Key: []byte("17"), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id(1))}}}
	require.NoError(t, writer.ProduceSync(t.Context(), later...).FirstErr())
	repeated := w.byID(1).Events[0].Records
	require.Len(t, repeated, 2)
	require.Equal(t, []int64{0, 1001}, []int64{repeated[0].Offset, repeated[1].Offset})
	w.do("INSERT INTO outbox VALUES ('" + id(3) + "', 'order', '17', 'CANARY')")
	r := w.trace(Request{ID: id(3), MaxRead: 5000})
	require.Equal(t, Undecided, r.State)
	require.Equal(t, exit.Runtime, r.Code())
	require.Contains(t, r.Next, "--max-read 40000B")
	require.False(t, r.Searched.Topics[0].Complete)
	require.Less(t, r.Searched.Topics[0].Records, int64(100))
	require.Equal(t, Published, w.byID(1).State)
	r = w.trace(Request{ID: id(1), Topic: w.topic("order"), MaxRead: 10})
	require.Equal(t, Published, r.State)
	r = w.trace(Request{ID: id(2), Topic: w.topic("order"), MaxRead: 5000})
	require.Equal(t, Undecided, r.State)
	require.Contains(t, r.Next, "--max-read 40000B")
	r = w.trace(Request{ID: id(1), Topic: w.topic("order"), Since: time.Now().Add(time.Hour)})
	require.Equal(t, NotFound, r.State)
}

// Names with quotes, partitions, and a partition that is a table of its own.
func TestTrace_FindsRowsOfPartitionsAndQuotedNames(t *testing.T) {
	w := newWorld(t, `CREATE SCHEMA "S.""x";
		CREATE TABLE "Out""box" ("I d" bigint, "aggregate_type" text, "aggregate_id" text, payload text, PRIMARY KEY ("I d")) PARTITION BY RANGE ("I d");
		CREATE TABLE "low'" PARTITION OF "Out""box" FOR VALUES FROM (0) TO (10);
		CREATE TABLE high PARTITION OF "Out""box" FOR VALUES FROM (10) TO (20);
		CREATE PUBLICATION postrider FOR TABLE "Out""box" WITH (publish = 'insert', publish_via_partition_root = true)`,
		`[replication]`, `tables = ["public.Out\"box"]`,
		"[router]\nroute.topic.replacement = \"PREFIX.${routedByValue}\"\ntable.field.event.id = \"I d\"")
	w.createSlot()
	w.start()
	w.do(`INSERT INTO "Out""box" VALUES (1, 'order', 'a', 'CANARY'), (12, 'order', 'a', 'CANARY')`)
	w.deliver()
	r := w.trace(Request{ID: "1"})
	require.Equal(t, Published, r.State)
	require.Equal(t, `public.Out"box`, r.Events[0].Row.Table)
	require.Equal(t, `public.low'`, r.Events[0].Row.Partition)
	r = w.trace(Request{Key: new("a")})
	require.Len(t, r.Events, 2)
	require.Equal(t, Published, r.State)
	r = w.trace(Request{ID: "5"})
	require.Equal(t, NotFound, r.State)
}
