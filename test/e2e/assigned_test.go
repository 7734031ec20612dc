package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

var long = flag.Bool("long", false, "every case of TestAssigned on each version of the server, and TestAudit_JudgesTheOrderOfCommits with 3 million rows")

// assignedSQL has two outboxes of one shape, each with a partition, and their publication.
const assignedSQL = `
CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, day int NOT NULL DEFAULT 1, aggregate_type text NOT NULL, aggregate_id text, event_type text, payload jsonb)
	PARTITION BY LIST (day);
CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1);
CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2) PARTITION BY LIST (id);
CREATE TABLE outbox_2_1 PARTITION OF outbox_2 DEFAULT;
CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY, day int NOT NULL DEFAULT 1, aggregate_type text NOT NULL, aggregate_id text, event_type text, payload jsonb)
	PARTITION BY LIST (day);
CREATE TABLE payments_1 PARTITION OF payments FOR VALUES IN (1);
CREATE TABLE other (id int, note text);
`

// eventIn inserts one event; its number tells it from all others.
func eventIn(table string, day, n int) string {
	if table != "outbox" && table != "payments" { // which have an identity
		return fmt.Sprintf(`INSERT INTO %s (id, day, aggregate_type, aggregate_id, event_type, payload) OVERRIDING SYSTEM VALUE VALUES (%d, %d, 'order', 'k', 'e', '{"n": %d}')`,
			table, n, day, n)
	}
	return fmt.Sprintf(`INSERT INTO %s (day, aggregate_type, aggregate_id, event_type, payload) VALUES (%d, 'order', 'k', 'e', '{"n": %d}')`, table, day, n)
}

const like = " (LIKE outbox)"

// What a relay makes of rows that wait in the WAL while tables change. Every row that was an outbox row when it was committed is published once, to the
// right topic, and no other; or the relay halts in front of it until the operator has decided.
func TestAssigned_ByWhatWasTrueAtTheCommit(t *testing.T) {
	t.Parallel()
	servers := quietServers(t)
	all, one := "FOR ALL TABLES", "FOR TABLE outbox, payments"
	for name, c := range map[string]struct {
		of            string
		while         []string
		orders        []int
		payments      []int
		decide        []string // what the operator answers to each halt; none: it never halts
		perhaps       bool     // it need not halt: PostgreSQL may have moved the slot's catalog_xmin on meanwhile
		withoutSecond bool     // payments is no outbox table
		unsent14      bool     // PostgreSQL 14 itself never sends the rows (docs/OUTBOX-TABLES.md)
	}{
		"as it was":             {of: all, while: []string{eventIn("outbox", 1, 1), eventIn("outbox", 2, 2), eventIn("payments", 1, 3)}, orders: []int{1, 2}, payments: []int{3}},
		"written to partitions": {of: one, while: []string{eventIn("outbox_1", 1, 1), eventIn("outbox_2_1", 2, 2), eventIn("payments_1", 1, 3)}, orders: []int{1, 2}, payments: []int{3}},
		"a partition is dropped": {
			of: one, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), eventIn("outbox", 2, 2), "DROP TABLE outbox_1"}, orders: []int{1, 2},
			decide: []string{"public.outbox"},
		},
		"dropped, then a column is added": {
			of: one, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), eventIn("outbox", 2, 2), "DROP TABLE outbox_1", "ALTER TABLE outbox ADD COLUMN note text"},
			orders: []int{1, 2}, decide: []string{"public.outbox"},
		},
		"dropped, then a column is dropped": {
			of: one, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), eventIn("outbox", 2, 2), "DROP TABLE outbox_1", "ALTER TABLE outbox ADD COLUMN note text, DROP COLUMN event_type"},
			orders: []int{1, 2}, decide: []string{"public.outbox"},
		},
		"detached": {
			of: all, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), eventIn("outbox", 2, 2), "ALTER TABLE outbox DETACH PARTITION outbox_1", eventIn("outbox", 2, 3)},
			orders: []int{1, 2, 3}, decide: []string{"public.outbox"},
		},
		"detached and attached again": {
			of: one, withoutSecond: true, while: []string{
				eventIn("outbox", 1, 1), "ALTER TABLE outbox DETACH PARTITION outbox_1", "ALTER TABLE outbox ATTACH PARTITION outbox_1 FOR VALUES IN (1)", eventIn("outbox", 1, 2),
			}, orders: []int{1, 2}, decide: []string{"public.outbox"},
		},
		"a sub-partitioned one is detached": {
			of: one, withoutSecond: true, while: []string{eventIn("outbox", 2, 1), "ALTER TABLE outbox DETACH PARTITION outbox_2", eventIn("outbox", 1, 2)}, orders: []int{1, 2},
			decide: []string{"public.outbox"},
		},
		"one of two outboxes loses a partition": {
			of: one, while: []string{eventIn("payments", 1, 1), eventIn("outbox", 1, 2), "DROP TABLE payments_1"}, orders: []int{2}, payments: []int{1}, decide: []string{"public.payments"},
		},
		"moved from one outbox to the other": {
			of: one, while: []string{
				eventIn("payments", 1, 1), "ALTER TABLE payments DETACH PARTITION payments_1", "ALTER TABLE outbox DETACH PARTITION outbox_1", "ALTER TABLE outbox ATTACH PARTITION payments_1 FOR VALUES IN (1)",
			}, payments: []int{1}, decide: []string{"public.payments"},
		},
		"new ones": {
			of: all, while: []string{"CREATE TABLE outbox_3 PARTITION OF outbox FOR VALUES IN (3)", eventIn("outbox", 3, 1),
				"BEGIN; CREATE TABLE outbox_4" + like + "; ALTER TABLE outbox ATTACH PARTITION outbox_4 FOR VALUES IN (4); COMMIT", eventIn("outbox", 4, 2),
				"ALTER TABLE outbox ADD COLUMN note text", "GRANT SELECT ON outbox, outbox_4 TO PUBLIC", "GRANT USAGE ON SCHEMA public TO PUBLIC", eventIn("outbox", 4, 3)},
			orders: []int{1, 2, 3},
		},
		"a copy by LIKE": {of: all, while: []string{eventIn("outbox", 1, 1), "CREATE TABLE copy" + like, "INSERT INTO copy SELECT * FROM outbox", "GRANT SELECT ON copy TO PUBLIC",
			"ALTER TABLE copy RENAME TO backup"}, orders: []int{1}},
		"a copy by CREATE TABLE AS": {of: all, while: []string{eventIn("outbox", 1, 1), "CREATE TABLE copy AS SELECT * FROM outbox", "CREATE INDEX ON copy (id)"}, orders: []int{1}},
		"a copy that is dropped": {
			of: all, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), "CREATE TABLE copy" + like, "INSERT INTO copy SELECT * FROM outbox", "DROP TABLE copy", eventIn("outbox", 1, 2)},
			orders: []int{1, 2}, decide: []string{"none"},
		},
		"a copy by CREATE TABLE AS that is dropped": {
			of: all, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), "CREATE TABLE copy AS SELECT * FROM outbox", "DROP TABLE copy", eventIn("outbox", 1, 2)}, orders: []int{1, 2},
			decide: []string{"none"},
		},
		"other tables that are altered and dropped": {
			of: all, while: []string{eventIn("outbox", 1, 1), "INSERT INTO other VALUES (1, 'a')", "ALTER TABLE other ADD PRIMARY KEY (id)", "CREATE TABLE fresh (id int)", "INSERT INTO fresh VALUES (1)",
				"ALTER TABLE fresh ADD PRIMARY KEY (id)", "INSERT INTO fresh VALUES (2)", "ALTER TABLE fresh RENAME COLUMN id TO no", "DROP TABLE other",
				"CREATE TABLE brief (id bigint, day int, aggregate_type text, aggregate_id text, event_type text, payload json)",
				`INSERT INTO brief VALUES (1, 1, 'order', 'k', 'e', '{"n": 9}')`, "DROP TABLE brief", eventIn("outbox", 1, 2)}, orders: []int{1, 2},
		},
		"attached after it was written to": {
			of: all, withoutSecond: true, while: []string{"CREATE TABLE outbox_3" + like, eventIn("outbox_3", 3, 1), "ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES IN (3)", eventIn("outbox", 3, 2)},
			orders: []int{2}, decide: []string{"none<=", "public.outbox"}, perhaps: true,
		},
		"attached after it was written to, not in the publication": {
			of: one, withoutSecond: true, while: []string{"CREATE TABLE outbox_3" + like, eventIn("outbox_3", 3, 1), "ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES IN (3)", eventIn("outbox", 3, 2)},
			orders: []int{2}, decide: []string{"public.outbox"}, perhaps: true, unsent14: true,
		},
		"attached after it was written to, and put into the publication": {
			of: one, withoutSecond: true, while: []string{"CREATE TABLE outbox_3" + like, eventIn("outbox_3", 3, 1),
				"BEGIN; ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES IN (3); ALTER PUBLICATION postrider ADD TABLE outbox_3; COMMIT", eventIn("outbox", 3, 2)},
			orders: []int{2}, decide: []string{"public.outbox"}, perhaps: true,
		},
		"taken out of the publication and attached": {
			of: one + ", spare", withoutSecond: true, while: []string{eventIn("spare", 3, 1), "ALTER PUBLICATION postrider DROP TABLE spare", "ALTER TABLE outbox ATTACH PARTITION spare FOR VALUES IN (3)"},
			decide: []string{"none"},
		},
		"the option is turned on later": {
			of: all, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), "ALTER PUBLICATION postrider SET (publish_via_partition_root = true)", "DROP TABLE outbox_1"}, orders: []int{1},
			decide: []string{"public.outbox"},
		},
		"the option is on": {
			of: all + " WITH (publish_via_partition_root = true)", while: []string{eventIn("outbox", 1, 1), eventIn("payments", 1, 2), "DROP TABLE outbox_1, payments_1", "CREATE TABLE copy" + like,
				"INSERT INTO copy (id, day, aggregate_type, payload) VALUES (1, 1, 'order', '{}')", "DROP TABLE copy"}, orders: []int{1}, payments: []int{2},
		},
		"the partitioned table is replaced": {
			of: all, withoutSecond: true, while: []string{eventIn("outbox", 1, 1), "ALTER TABLE outbox RENAME TO outbox_before", "CREATE TABLE outbox (LIKE outbox_before INCLUDING IDENTITY) PARTITION BY LIST (day)",
				"CREATE TABLE outbox_new PARTITION OF outbox DEFAULT", eventIn("outbox", 1, 2)}, orders: []int{1, 2}, decide: []string{"public.outbox"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range oneOf(servers, name, c.unsent14) {
				t.Run(version.name, func(t *testing.T) {
					a := newAssigned(t, version, assignedSQL+"CREATE TABLE spare"+like+"; CREATE PUBLICATION postrider "+c.of)
					if !c.withoutSecond {
						a.tables = append(a.tables, "public.payments")
					}
					a.begin(t)
					a.do(t, c.while...)
					left := a.relayed(t, c.decide)
					require.True(t, c.perhaps || len(left) == 0, "it should have halted for %v", left)
					if c.unsent14 && version.name == "14" {
						require.Empty(t, a.numbers(t, a.orders), "it sends them: docs/OUTBOX-TABLES.md need not warn of it any more")
						return
					}
					require.Equal(t, c.orders, a.numbers(t, a.orders), "orders")
					require.Equal(t, c.payments, a.numbers(t, a.payments), "payments")
				})
			}
		})
	}
}

// The same for tables that are not partitioned: rows wait of a table whose name another one has by now.
func TestAssigned_ATableIsWhatHadTheNameAtTheCommit(t *testing.T) {
	t.Parallel()
	servers := quietServers(t)
	const plain = `
CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, day int NOT NULL DEFAULT 1, aggregate_type text NOT NULL, aggregate_id text, event_type text, payload jsonb);
`
	swap := []string{"ALTER TABLE outbox RENAME TO outbox_before", "CREATE TABLE outbox (LIKE outbox_before INCLUDING IDENTITY)"}
	for name, c := range map[string]struct {
		of     string
		while  []string
		tables string
		orders []int
		decide []string
	}{
		"dropped and created": {of: "FOR ALL TABLES", while: append([]string{eventIn("outbox", 1, 1), "DROP TABLE outbox"}, strings.TrimSpace(plain), eventIn("outbox", 1, 2)), orders: []int{1, 2}},
		"dropped and created, in a publication of the table": {
			of: "FOR TABLE outbox", while: append([]string{eventIn("outbox", 1, 1), "DROP TABLE outbox"}, strings.TrimSpace(plain), "ALTER PUBLICATION postrider ADD TABLE outbox", eventIn("outbox", 1, 2)),
			orders: []int{1, 2},
		},
		"replaced":                          {of: "FOR ALL TABLES", while: append(append([]string{eventIn("outbox", 1, 1)}, swap...), eventIn("outbox", 1, 2), eventIn("outbox_before", 1, 9)), orders: []int{1, 2}},
		"replaced, and the old one dropped": {of: "FOR ALL TABLES", while: append(append([]string{eventIn("outbox", 1, 1)}, swap...), "DROP TABLE outbox_before", eventIn("outbox", 1, 2)), orders: []int{1, 2}},
		"replaced by one that is filled": {
			of: "FOR ALL TABLES", while: []string{eventIn("outbox", 1, 1), "CREATE TABLE filled (LIKE outbox INCLUDING IDENTITY)", eventIn("filled", 1, 9),
				"BEGIN; ALTER TABLE outbox RENAME TO outbox_before; ALTER TABLE filled RENAME TO outbox; COMMIT", eventIn("outbox", 1, 2)},
			orders: []int{1, 2}, decide: []string{"none<="},
		},
		"renamed": {
			of: "FOR TABLE outbox", tables: "public.events", while: []string{eventIn("outbox", 1, 1), "ALTER TABLE outbox RENAME TO events"}, orders: []int{1},
		},
		"its schema renamed": {
			of: "FOR TABLE outbox", tables: "shop.outbox", while: []string{eventIn("outbox", 1, 1), "CREATE SCHEMA store", "ALTER TABLE outbox SET SCHEMA store", "ALTER SCHEMA store RENAME TO shop"}, orders: []int{1},
		},
		"replaced by a partitioned one, of which it is a partition": {
			of: "FOR ALL TABLES", while: []string{eventIn("outbox", 1, 1), "BEGIN; ALTER TABLE outbox RENAME TO outbox_before; ALTER TABLE outbox_before ALTER id DROP IDENTITY; " +
				"CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, day int NOT NULL DEFAULT 1, aggregate_type text NOT NULL, aggregate_id text, event_type text, payload jsonb) PARTITION BY LIST (day); " +
				"ALTER TABLE outbox ATTACH PARTITION outbox_before FOR VALUES IN (1); COMMIT"}, orders: []int{1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range oneOf(servers, name, false) {
				t.Run(version.name, func(t *testing.T) {
					a := newAssigned(t, version, plain+"CREATE PUBLICATION postrider "+c.of)
					a.begin(t)
					a.do(t, c.while...)
					if c.tables != "" {
						a.tables = []string{c.tables}
					}
					require.Empty(t, a.relayed(t, c.decide), "it should have halted")
					require.Equal(t, c.orders, a.numbers(t, a.orders))
				})
			}
		})
	}
}

// assigned is a shop whose operator decides where the relay asks him.
type assigned struct {
	*shop
	orders, payments string
	tables           []string
	decisions        []string
}

// quietServer is one on which nothing else runs: transactions of other databases keep a new slot's catalog_xmin behind tables that are older.
type quietServer struct{ name, dsn string }

func quietServers(t *testing.T) (servers []quietServer) {
	for _, version := range []string{"14", "18"} {
		pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
		servers = append(servers, quietServer{version, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", pg.Port())})
	}
	return servers
}

// oneOf takes one of the servers for a case, always the same, unless all are asked for.
func oneOf(servers []quietServer, name string, all bool) []quietServer {
	if all || *long {
		return servers
	}
	i := len(name) % len(servers)
	return servers[i : i+1]
}

func newShopOn(t *testing.T, server quietServer, c cluster, sql string) *shop {
	t.Helper()
	s := &shop{Database: parts.NewDatabase(t, server.dsn), cluster: c, slot: parts.Unique("e2e"), file: filepath.Join(t.TempDir(), "postrider.toml")}
	s.Exec(t, sql)
	s.sql = s.Connect(t)
	return s
}

func newAssigned(t *testing.T, server quietServer, sql string) *assigned {
	c := newCluster(t)
	s := newShopOn(t, server, c, sql)
	return &assigned{shop: s, orders: c.Topic(t, 1), payments: c.Topic(t, 1), tables: []string{"public.outbox"}}
}

// begin makes the slot: rows wait in the WAL from now on.
func (a *assigned) begin(t *testing.T) {
	t.Helper()
	a.do(t, "SELECT pg_create_logical_replication_slot('"+a.slot+"', 'pgoutput')")
}

func (a *assigned) write(t *testing.T) {
	t.Helper()
	config := "[replication]\ntables = " + list(a.tables) + "\npartitions = " + list(a.decisions) + "\n"
	for i, table := range a.tables {
		config += fmt.Sprintf("[[router]]\ntables = [%q]\nroute.topic.regex = \".*\"\nroute.topic.replacement = %q\n", table, []string{a.orders, a.payments}[i])
	}
	a.configure(t, config)
}

func list(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = fmt.Sprintf("%q", item)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

var (
	offered = regexp.MustCompile(`partitions = \["([^"]*)"\]`)
	bounded = regexp.MustCompile(`"([^" ]*@[0-9]+<=[0-9A-F]+/[0-9A-F]+) = \.\.\."`)
)

// relayed runs the relay until the slot is confirmed, and decides as often as it halts. It returns the decisions that were not needed.
func (a *assigned) relayed(t *testing.T, decisions []string) (left []string) {
	t.Helper()
	target := a.lsn(t, "SELECT pg_current_wal_flush_lsn()")
	for {
		a.write(t)
		r := a.launch(t)
		parts.Await(t, "a relay that is through, or has halted", func() (bool, error) { return !r.Running() || a.confirmed(t) >= target, nil })
		if r.Running() {
			r.Stop(t)
			return decisions
		}
		require.Equal(t, 78, r.Wait(t), "exit code")
		said := r.Log.String()
		said = said[strings.LastIndex(said, "postrider: "):]
		require.NotEmpty(t, decisions, "%s", said)
		for _, part := range []string{"(OID ", "row ", "of transaction ", "which commits at ", "is not known", "WAL:", "next:", "publish_via_partition_root"} {
			require.Contains(t, said, part)
		}
		decision := ""
		if strings.HasSuffix(decisions[0], "<=") {
			found := bounded.FindStringSubmatch(said)
			require.NotNil(t, found, "%s", said)
			decision = found[1] + " = " + strings.TrimSuffix(decisions[0], "<=")
		}
		for _, line := range offered.FindAllStringSubmatch(said, -1) {
			if strings.HasSuffix(line[1], " = "+decisions[0]) {
				decision = line[1]
			}
		}
		require.NotEmpty(t, decision, "%s", said)
		a.decisions, decisions = append(a.decisions, decision), decisions[1:]
	}
}

var number = regexp.MustCompile(`"n": ([0-9]+)`)

// numbers are those of the rows in a topic, in order.
func (a *assigned) numbers(t *testing.T, topic string) (out []int) {
	t.Helper()
	for _, r := range a.All(t, topic) {
		var n int
		_, err := fmt.Sscan(string(number.FindSubmatch(r.Value)[1]), &n)
		require.NoError(t, err)
		out = append(out, n)
	}
	return out
}
