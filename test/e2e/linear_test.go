package e2e

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// times makes the shapes larger than a test run has time for.
var times = flag.Int("linear.times", 1, "how many times larger than by default the shapes of TestLinear are")

// extreme is an outbox of an unusual shape, and what n of that is.
type extreme struct {
	name string
	n    int
	// setup makes what there has to be for up to n of it, beside the outbox.
	setup func(n int) string
	// write is statements, divided by ;; that insert the rows with the numbers from first to first+n-1, in ascending order.
	write  func(first, n int) string
	keys   int                  // row i has the key i % keys; zero: 100
	topics func(n int) []string // beside "order", which every row has that does not say otherwise
	config func(n int) string   // beyond [router]
	// again is how many times of all of it, at most, a client has looked at beside: franz-go asks for every topic when some are new.
	again int
}

// everyone is the rows of generate_series, with more columns and members of the payload as the shape has them.
func everyone(table, first, n, keys any, topic, columns, values, members string) string {
	return fmt.Sprintf(`INSERT INTO %[1]v (aggregate_type, aggregate_id, payload%[6]s)
		SELECT %[5]s, 'key-' || i %% %[4]v, jsonb_build_object('key', 'key-' || i %% %[4]v, 'number', i / %[4]v + 1%[8]s)%[7]s
		FROM generate_series(%[2]v, %[2]v + %[3]v - 1) i;`, table, first, n, keys, topic, columns, values, members)
}

func simply(first, n int) string { return everyone("outbox", first, n, 100, "'order'", "", "", "") }

func repeated(n int, sep string, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return strings.Join(items, sep)
}

const columnsOfWide = 95

var extremes = []extreme{
	{
		name: "a hundred columns", n: 500,
		setup: func(int) string {
			return "ALTER TABLE outbox " + repeated(columnsOfWide, ",", func(i int) string { return fmt.Sprintf("ADD COLUMN c%d text", i) })
		},
		write: func(first, n int) string {
			return everyone("outbox", first, n, 100, "'order'", repeated(columnsOfWide, "", func(i int) string { return fmt.Sprintf(", c%d", i) }),
				repeated(columnsOfWide, "", func(i int) string { return fmt.Sprintf(", 'some text %d'", i) }), "")
		},
	},
	{
		name: "payloads of a megabyte", n: 5,
		write: func(first, n int) string {
			return everyone("outbox", first, n, 100, "'order'", "", "", ", 'pad', repeat('x', 1000000)")
		},
	},
	{
		name: "headers of a megabyte", n: 5,
		write: func(first, n int) string {
			return everyone("outbox", first, n, 100, "'order'", ", event_type", ", repeat('x', 1000000)", "")
		},
	},
	{
		name: "a megabyte that is not published", n: 5,
		setup: func(int) string { return "ALTER TABLE outbox ADD COLUMN internal text" },
		write: func(first, n int) string {
			return everyone("outbox", first, n, 100, "'order'", ", internal", ", repeat('x', 1000000)", "")
		},
	},
	{
		name: "deep JSON, expanded", n: 50, config: func(int) string { return "table.expand.json.payload = true\n[format]\nvalue = \"json\"" },
		write: func(first, n int) string {
			deep := `, 'deep', (repeat('{"member":[', 450) || '1' || repeat(']}', 450))::jsonb`
			return everyone("outbox", first, n, 100, "'order'", "", "", deep)
		},
	},
	{
		name: "many members in JSON, expanded", n: 5, config: func(int) string { return "table.expand.json.payload = true\n[format]\nvalue = \"json\"" },
		write: func(first, n int) string {
			return everyone("outbox", first, n, 100, "'order'", "", "", ", 'wide', (SELECT jsonb_object_agg('member' || m, m) FROM generate_series(1, 5000) m)")
		},
	},
	{
		name: "many keys", n: 2500, keys: 1 << 30,
		write: func(first, n int) string { return everyone("outbox", first, n, 1<<30, "'order'", "", "", "") },
	},
	{
		name: "many topics", n: 500, keys: 1 << 30, again: 12,
		topics: func(n int) []string {
			topics := make([]string, n)
			for i := range topics {
				topics[i] = fmt.Sprintf("type-%d", i)
			}
			return topics
		},
		write: func(first, n int) string {
			return everyone("outbox", first, n, 1<<30, fmt.Sprintf("'type-' || i - %d", first), "", "", "")
		},
	},
	{
		name: "many tables of others in the publication", n: 50,
		setup: func(n int) string {
			return `DROP PUBLICATION postrider; DROP TABLE outbox;` + strings.TrimSuffix(partitionedSQL, "\n") + `
				CREATE PUBLICATION postrider FOR ALL TABLES;
				DO $$ BEGIN FOR i IN 1..` + strconv.Itoa(n) + ` LOOP EXECUTE format('CREATE TABLE other_%s (id int, note text)', i); END LOOP; END $$;`
		},
		write: func(first, n int) string {
			return `DO $$ BEGIN FOR i IN 1..` + strconv.Itoa(n) + ` LOOP EXECUTE format('INSERT INTO other_%s VALUES (1, repeat(''x'', 1000))', i); COMMIT; END LOOP; END $$;;` +
				simply(first, n)
		},
	},
	{
		name: "many outboxes", n: 25, keys: 1 << 30,
		setup: func(n int) string {
			return `DROP PUBLICATION postrider; ` + repeated(n, "", func(i int) string { return fmt.Sprintf("CREATE TABLE outbox_%d (LIKE outbox INCLUDING ALL);", i) }) +
				"CREATE PUBLICATION postrider FOR TABLE " + repeated(n, ",", func(i int) string { return fmt.Sprintf("outbox_%d", i) })
		},
		config: func(n int) string {
			return "[replication]\ntables = [" + repeated(n, ",", func(i int) string { return fmt.Sprintf(`"public.outbox_%d"`, i) }) + "]"
		},
		write: func(first, n int) string {
			return repeated(n, ";;", func(i int) string {
				return everyone(fmt.Sprintf("outbox_%d", i), first+i, 1, 1<<30, "'order'", "", "", "")
			})
		},
	},
	{
		name: "many savepoints, each second one rolled back", n: 500,
		write: func(first, n int) string {
			return fmt.Sprintf(`DO $$ BEGIN FOR n IN %[1]d..%[1]d+2*%[2]d-1 LOOP BEGIN
					INSERT INTO outbox (aggregate_type, aggregate_id, payload) SELECT 'order', 'key-' || i %% 100, jsonb_build_object('key', 'key-' || i %% 100, 'number', i / 100 + 1)
						FROM (SELECT (n - %[1]d) / 2 + %[1]d AS i) rows;
					IF (n - %[1]d) %% 2 = 0 THEN RAISE division_by_zero; END IF;
				EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$`, first, n)
		},
	},
	{
		name: "many tiny transactions of others", n: 1000,
		setup: func(int) string {
			return `CREATE TABLE unrelated (id int); CREATE TABLE published (id int); ALTER PUBLICATION postrider ADD TABLE published`
		},
		write: func(first, n int) string {
			return `DO $$ BEGIN FOR i IN 1..` + strconv.Itoa(n) + ` LOOP INSERT INTO unrelated VALUES (i); COMMIT; INSERT INTO published VALUES (i); COMMIT; END LOOP; END $$;;` +
				simply(first, n)
		},
	},
}

// spent is what the relay and its broker did for a shape.
type spent struct {
	mallocs, bytes float64 // of the relay's heap
	cpu            float64 // seconds
	requests       map[kmsg.Key]float64
}

// What grows with the square of a shape's size shows at four times the size: sixteen times of something is done. Nothing is lost meanwhile.
func TestLinear_NothingCostsMoreThanItsBytes(t *testing.T) {
	for _, x := range extremes {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.n *= *times
			grow(t, x)
		})
	}
}

func grow(t *testing.T, x extreme) {
	if x.keys == 0 {
		x.keys = 100
	}
	broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{})
	var requests [kmsg.MaxKey + 1]atomic.Int64
	fake.Cluster.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		requests[r.Key()].Add(1)
		return nil, nil, false
	})
	topics := []string{"order"}
	if x.topics != nil {
		topics = x.topics(4 * x.n)
	}
	for _, topic := range topics {
		require.NoError(t, fake.CreateTopic(topic, partitions))
	}
	sql := outboxSQL
	if x.setup != nil {
		sql += x.setup(4 * x.n)
	}
	config := ""
	if x.config != nil {
		config = x.config(4 * x.n)
	}
	s := newShop(t, parts.AnyVersion, sql, `
[router]
route.topic.replacement = "${routedByValue}"
table.fields.additional.placement = "event_type:header:eventType"
`+config)
	s.cluster = cluster{broker}
	r := s.run(t)
	look := func() spent {
		m := r.metrics(t)
		now := spent{mallocs: m.Value("go_memstats_mallocs_total"), bytes: m.Value("go_memstats_alloc_bytes_total"), cpu: m.Value("process_cpu_seconds_total"), requests: map[kmsg.Key]float64{}}
		for key := range requests {
			now.requests[kmsg.Key(key)] = float64(requests[key].Load())
		}
		return now
	}
	ledger := newLedger()
	written := 0
	run := func(n int) spent {
		before := look()
		s.do(t, strings.Split(x.write(written, n), ";;")...)
		s.awaitConfirmed(t, r)
		for i := written; i < written+n; i++ {
			ledger.tally.Wrote(fmt.Sprintf("key-%d", i%x.keys), uint64(i/x.keys+1)) //nolint:gosec // small
		}
		written += n
		return look().minus(before)
	}
	run(min(100, x.n)) // what is done once
	once, fourTimes := run(x.n), run(4*x.n)
	sessions := s.sessions(t)
	r.Stop(t)
	ledger.received(t, s.ConsumeUntil(t, topics, func(records []*kgo.Record) bool { return len(records) >= written }))
	ledger.requireExact(t, written)

	t.Logf("%d: %s", x.n, once)
	t.Logf("%d: %s; connections to the database: %d; at most %.0f MiB", 4*x.n, fourTimes, sessions, r.peak/(1<<20))
	const growth = 4 * 1.5
	const mallocsOfOne, bytesOfOne = 20, 4 << 10
	looked := float64(x.again * 4 * x.n)
	require.Less(t, fourTimes.mallocs, growth*once.mallocs+100_000+looked*mallocsOfOne, "allocations")
	require.Less(t, fourTimes.bytes, growth*once.bytes+64<<20+looked*bytesOfOne, "bytes allocated")
	require.LessOrEqual(t, fourTimes.requests[kmsg.Produce], float64(4*x.n), "produce requests")
	require.Less(t, fourTimes.requests[kmsg.Metadata], float64(max(100, x.n/5)), "metadata requests")
	require.Less(t, sessions, 40, "connections to the database")
}

func (s spent) minus(o spent) spent {
	d := spent{mallocs: s.mallocs - o.mallocs, bytes: s.bytes - o.bytes, cpu: s.cpu - o.cpu, requests: map[kmsg.Key]float64{}}
	for key, n := range s.requests {
		if n > o.requests[key] {
			d.requests[key] = n - o.requests[key]
		}
	}
	return d
}

func (s spent) String() string {
	var requests []string
	for key, n := range s.requests {
		requests = append(requests, fmt.Sprintf("%s %.0f", key.Name(), n))
	}
	slices.Sort(requests)
	return fmt.Sprintf("%.0f allocations, %.1f MB, %.2f s, requests: %s", s.mallocs, s.bytes/1e6, s.cpu, strings.Join(requests, ", "))
}

// metrics reads them, and keeps the highest memory.
func (r *relay) metrics(t testing.TB) parts.Metrics {
	t.Helper()
	response, err := http.Get(r.url + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	series := parts.ParseMetrics(t, page)
	r.peak = max(r.peak, series.Value("process_resident_memory_bytes"))
	return series
}

// sessions is how many connections to the database there ever were, but for those that are open.
func (s *shop) sessions(t testing.TB) (n int) {
	t.Helper()
	require.NoError(t, s.sql.QueryRow(t.Context(), "SELECT sessions FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
	return n
}

// Of a row that is in flight, all that was read with it stays in memory: columns that are not published, and rows of other tables in between. A broker
// that does not answer shows what that may be.
func TestLinear_WhatIsNotPublishedTakesRoomToo(t *testing.T) {
	for name, write := range map[string]string{
		"columns": `INSERT INTO outbox (aggregate_type, aggregate_id, payload, internal) SELECT 'order', 'key-0',
			jsonb_build_object('key', 'key-0', 'number', i), repeat('x', 300000) FROM generate_series(1, 200) i`,
		"rows of other tables": `DO $$ BEGIN FOR i IN 1..200 LOOP INSERT INTO published SELECT repeat('x', 10000) FROM generate_series(1, 30);
			INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'key-0', jsonb_build_object('key', 'key-0', 'number', i)); END LOOP; END $$`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{Topics: map[string]int32{"order": partitions}})
			answers := make(chan struct{})
			fake.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				fake.Cluster.KeepControl()
				fake.Cluster.SleepControl(func() { <-answers })
				return nil, nil, false
			})
			s := newShop(t, parts.AnyVersion, outboxSQL+`ALTER TABLE outbox ADD COLUMN internal text; CREATE TABLE published (note text);
				ALTER PUBLICATION postrider ADD TABLE published`, `
[router]
route.topic.replacement = "${routedByValue}"
[relay]
in_flight_bytes = "6MiB"
stalled_bytes = 0`)
			s.cluster = cluster{broker}
			r := s.run(t)
			inFlight := func() float64 { return r.metrics(t).Value("postrider_relay_in_flight_messages", "slot", s.slot) }
			s.do(t, write)
			before, same := -1.0, 0
			parts.Await(t, "messages in flight, as many as there may be", func() (bool, error) {
				now := inFlight() // is brought up to date once a second
				if now > 0 && now == before {
					same++
				} else {
					same = 0
				}
				before = now
				return same > 60, nil
			})
			require.Less(t, before, 40.0, "messages in flight, each with 300 kB around it")
			close(answers)

			s.awaitConfirmed(t, r)
			r.Stop(t)
			ledger := newLedger()
			for n := range 200 {
				ledger.tally.Wrote("key-0", uint64(n+1)) //nolint:gosec // small
			}
			ledger.received(t, s.All(t, "order"))
			ledger.requireExact(t, 200)
		})
	}
}

// One transaction that holds all of it, on the way to a real broker.
func TestLinear_EverythingInOneTransaction(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL+"ALTER TABLE outbox ADD COLUMN internal text, "+
		repeated(columnsOfWide, ",", func(i int) string { return fmt.Sprintf("ADD COLUMN c%d text", i) })+
		`; CREATE TABLE published (note text); ALTER PUBLICATION postrider ADD TABLE published;`+
		repeated(100, "", func(i int) string {
			return fmt.Sprintf("CREATE TABLE other_%d (note text); ALTER PUBLICATION postrider ADD TABLE other_%[1]d;", i)
		}),
		routeTo(topic, "table.expand.json.payload = true\n[format]\nvalue = \"json\""))
	r := s.run(t)

	tx, written := s.begin(t), 0
	const keys = 1000
	insert := func(n int, columns, values, members string) {
		_, err := tx.Exec(t.Context(), everyone("outbox", written, n, keys, "'order'", columns, values, members))
		require.NoError(t, err)
		written += n
	}
	others := func() {
		for i := range 100 {
			_, err := tx.Exec(t.Context(), fmt.Sprintf("INSERT INTO other_%d VALUES (repeat('x', 1000))", i))
			require.NoError(t, err)
		}
	}
	insert(1000, repeated(columnsOfWide, "", func(i int) string { return fmt.Sprintf(", c%d", i) }), repeated(columnsOfWide, "", func(i int) string { return ", 'text'" }), "")
	others()
	insert(3, "", "", ", 'pad', repeat('x', 900000)")
	insert(3, ", event_type", ", repeat('x', 900000)", "")
	insert(3, ", internal", ", repeat('x', 900000)", "")
	insert(20, "", "", `, 'deep', (repeat('{"member":[', 450) || '1' || repeat(']}', 450))::jsonb`)
	insert(3, "", "", ", 'wide', (SELECT jsonb_object_agg('member' || m, m) FROM generate_series(1, 5000) m)")
	for n := range 500 {
		savepoint, err := tx.Begin(t.Context())
		require.NoError(t, err)
		_, err = savepoint.Exec(t.Context(), everyone("outbox", written, 1, keys, "'order'", "", "", ""))
		require.NoError(t, err)
		if n%2 == 0 {
			require.NoError(t, savepoint.Rollback(t.Context()))
			continue
		}
		require.NoError(t, savepoint.Commit(t.Context()))
		written++
	}
	others()
	insert(20_000, "", "", "")
	require.NoError(t, tx.Commit(t.Context()))

	s.awaitConfirmed(t, r)
	r.Stop(t)
	ledger := newLedger()
	for i := range written {
		ledger.tally.Wrote(fmt.Sprintf("key-%d", i%keys), uint64(i/keys+1)) //nolint:gosec // small
	}
	ledger.received(t, s.All(t, topic))
	ledger.requireExact(t, written)
}
