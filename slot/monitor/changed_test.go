package monitor

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

const namedBack = "the table was renamed, and renamed back"

var supported = []string{"14", "15", "16", "17", "18"}

// looks is a monitor that looks when the test says so, beside a slot and a connection that changes things.
type looks struct {
	*Monitor
	t    *testing.T
	dsn  string
	conn *pgx.Conn // of the monitor
	sql  *pgx.Conn
	log  bytes.Buffer
}

const plainOutbox = `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, day int NOT NULL DEFAULT 1, payload text);
	CREATE TABLE other (id int PRIMARY KEY); CREATE SCHEMA elsewhere`

const partitionedOutbox = `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, day int NOT NULL DEFAULT 1, payload text) PARTITION BY LIST (day);
	CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE other (id int PRIMARY KEY);
	CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2, 3) PARTITION BY LIST (day); CREATE TABLE outbox_2_2 PARTITION OF outbox_2 FOR VALUES IN (2)`

// newLooks makes tables, publication and slot, and looks for the first time.
func newLooks(t *testing.T, dsn string, setup ...string) *looks {
	t.Helper()
	l := &looks{t: t, dsn: dsn, sql: parts.Connect(t, dsn)}
	l.do(setup...)
	l.do("SELECT pg_create_logical_replication_slot('" + l.slot() + "', 'pgoutput')")
	l.begin()
	require.NoError(t, l.look())
	return l
}

// begin is a process that begins, with a log of its own.
func (l *looks) begin() {
	l.log.Reset()
	pg := postgres.DefaultConfig()
	pg.URL = secret.Of(l.dsn)
	need := slot.Requirements{Slot: slot.DefaultConfig(), Publication: "postrider", Tables: []string{"public.outbox"}}
	need.Slot.Name = l.slot()
	l.Monitor = New(pg, need, DefaultConfig(), nil, zerolog.New(&l.log))
	l.Hint = func(hint string) string { return hint + " --config p.toml" }
	var err error
	l.conn, err = l.connect(l.t.Context())
	require.NoError(l.t, err)
	conn := l.conn
	l.t.Cleanup(func() { postgres.Close(conn) })
	require.NoError(l.t, l.Begin(l.t.Context(), l.conn))
}

func (l *looks) slot() string { return l.sql.Config().Database }

func (l *looks) look() error {
	l.t.Helper()
	problem, err := l.Monitor.look(l.t.Context(), l.conn)
	require.NoError(l.t, err)
	return problem
}

func (l *looks) do(statements ...string) {
	l.t.Helper()
	for _, sql := range statements {
		_, err := l.sql.Exec(l.t.Context(), sql)
		require.NoError(l.t, err, sql)
	}
}

func (l *looks) ask(sql string) (answer string) {
	l.t.Helper()
	require.NoError(l.t, l.sql.QueryRow(l.t.Context(), sql).Scan(&answer), sql)
	return answer
}

func (l *looks) position() pglogrepl.LSN {
	l.t.Helper()
	lsn, err := pglogrepl.ParseLSN(l.ask("SELECT pg_current_wal_insert_lsn()::text"))
	require.NoError(l.t, err)
	return lsn
}

// insert inserts a row, and says between which positions.
func (l *looks) insert() (from, to pglogrepl.LSN, xmin uint32) {
	l.t.Helper()
	from = l.position()
	table := l.ask("SELECT coalesce(to_regclass('outbox'), to_regclass('elsewhere.outbox'))::text")
	xid, err := strconv.ParseUint(l.ask("INSERT INTO "+table+" (payload) VALUES ('x') RETURNING pg_current_xact_id()::text"), 10, 64)
	require.NoError(l.t, err)
	return from, l.position(), uint32(xid)
}

// warnings are the lines of the log that an operator would look at.
func (l *looks) warnings() []string {
	var found []string
	for line := range strings.Lines(l.log.String()) {
		if strings.Contains(line, `"level":"warn"`) || strings.Contains(line, `"level":"error"`) {
			found = append(found, line)
		}
	}
	return found
}

// putBack are changes that are undone before anybody looks. A row that is inserted in between is not in the stream.
var putBack = []struct {
	name, setup, publication string
	away, back               string
	since                    string // version
	text                     string
}{
	{"publish", plainOutbox, "FOR TABLE outbox WITH (publish = 'insert')",
		"ALTER PUBLICATION postrider SET (publish = 'update')", "ALTER PUBLICATION postrider SET (publish = 'insert')", "14", "publication was altered"},
	{"table", plainOutbox, "FOR TABLE outbox",
		"ALTER PUBLICATION postrider DROP TABLE outbox", "ALTER PUBLICATION postrider ADD TABLE outbox", "14", "taken out of the publication and added again"},
	{"set table", plainOutbox, "FOR TABLE outbox",
		"ALTER PUBLICATION postrider SET TABLE other", "ALTER PUBLICATION postrider SET TABLE outbox, other", "14", "taken out of the publication and added again"},
	{"publication dropped", plainOutbox, "FOR TABLE outbox",
		"DROP PUBLICATION postrider", "CREATE PUBLICATION postrider FOR TABLE outbox", "14", "publication was dropped and recreated"},
	{"publication of all tables dropped", plainOutbox, "FOR ALL TABLES",
		"DROP PUBLICATION postrider", "CREATE PUBLICATION postrider FOR ALL TABLES", "14", "publication was dropped and recreated"},
	{"publication renamed", plainOutbox, "FOR TABLE outbox",
		"ALTER PUBLICATION postrider RENAME TO another", "ALTER PUBLICATION another RENAME TO postrider", "14", "publication was altered"},
	{"another table under its name", plainOutbox, "FOR TABLE outbox",
		"ALTER TABLE outbox RENAME TO outbox_before; CREATE TABLE outbox (LIKE outbox_before INCLUDING ALL)",
		"ALTER TABLE outbox RENAME TO outbox_failed; ALTER TABLE outbox_before RENAME TO outbox; DROP TABLE outbox_failed", "14", namedBack},
	{"schema", plainOutbox, "FOR TABLES IN SCHEMA public",
		"ALTER PUBLICATION postrider DROP TABLES IN SCHEMA public", "ALTER PUBLICATION postrider ADD TABLES IN SCHEMA public", "15", "schema public was taken out"},
	{"table moved", plainOutbox, "FOR TABLES IN SCHEMA public",
		"ALTER TABLE outbox SET SCHEMA elsewhere", "ALTER TABLE elsewhere.outbox SET SCHEMA public", "15", "moved to another schema and back"},
	{"row filter", plainOutbox, "FOR TABLE outbox WITH (publish = 'insert')",
		"ALTER PUBLICATION postrider SET TABLE outbox WHERE (id < 0)", "ALTER PUBLICATION postrider SET TABLE outbox", "15", "taken out of the publication and added again"},
	{"another row filter", plainOutbox, "FOR TABLE outbox WHERE (id > 0) WITH (publish = 'insert')",
		"ALTER PUBLICATION postrider SET TABLE outbox WHERE (id < 0)", "ALTER PUBLICATION postrider SET TABLE outbox WHERE (id > 0)", "15", "row filter or column list was changed"},
	{"column list", plainOutbox, "FOR TABLE outbox WITH (publish = 'insert')",
		"ALTER PUBLICATION postrider SET TABLE outbox (id)", "ALTER PUBLICATION postrider SET TABLE outbox", "15", "taken out of the publication and added again"},
	{"unlogged", plainOutbox, "FOR ALL TABLES",
		"ALTER TABLE outbox SET UNLOGGED", "ALTER TABLE outbox SET LOGGED", "14", "the storage of public.outbox was replaced"},
	{"unlogged partition", partitionedOutbox, "FOR TABLE outbox WITH (publish_via_partition_root = true)",
		"ALTER TABLE outbox_1 SET UNLOGGED", "ALTER TABLE outbox_1 SET LOGGED", "14", "the storage of public.outbox_1 was replaced"},
	{"partition made unlogged", partitionedOutbox, "FOR TABLE outbox WITH (publish_via_partition_root = true)",
		"DROP TABLE IF EXISTS outbox_1, outbox_1b; CREATE UNLOGGED TABLE outbox_1b PARTITION OF outbox FOR VALUES IN (1)", "ALTER TABLE outbox_1b SET LOGGED", "14", "the storage of public.outbox_1b was replaced"},
	{"partition's row filter", partitionedOutbox, "FOR TABLE outbox, outbox_1 WHERE (id > 0) WITH (publish = 'insert')",
		"ALTER PUBLICATION postrider SET TABLE outbox, outbox_1 WHERE (id < 0)", "ALTER PUBLICATION postrider SET TABLE outbox, outbox_1 WHERE (id > 0)", "15", "filter or column list of a partition"},
}

func TestMonitor_NoticesAChangeThatWasPutBackBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	for _, version := range supported {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			for _, c := range putBack {
				if c.since > version {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					l := newLooks(t, parts.Postgres(t, version).DSN(), c.setup, "CREATE PUBLICATION postrider "+c.publication)
					require.NoError(t, l.look(), "it stays as it was")
					l.do(c.away)
					from, to, xmin := l.insert()
					l.do(c.back)
					l.noticed(c.text, from, to, xmin)
					l.noticed(c.text, from, to, xmin) // for as long as the process lives

					// A process that begins now has not seen it.
					l.begin()
					require.NoError(t, l.look())
					require.Contains(t, l.log.String(), "postrider recover --from-xmin "+l.ask("SELECT catalog_xmin::text FROM pg_replication_slots WHERE slot_name = '"+l.slot()+"'"))

					if c.name == "partition made unlogged" {
						return // in the transaction that creates it, nothing tells SET LOGGED from the creation
					}
					l.do("BEGIN", c.away)
					from, to, xmin = l.insert()
					l.do(c.back, "COMMIT")
					l.noticed(c.text, from, to, xmin)
				})
			}
		})
	}
}

// Other changes in the same transaction, or of the tree, do not hide that a table was unlogged.
func TestMonitor_NoticesAnUnloggedTableBesideOtherChanges(t *testing.T) {
	t.Parallel()
	for _, version := range supported {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct{ setup, away, back, text string }{
				{partitionedOutbox, "ALTER TABLE outbox_1 SET UNLOGGED",
					"ALTER TABLE outbox DETACH PARTITION outbox_1; ALTER TABLE outbox_1 SET LOGGED; ALTER TABLE outbox ATTACH PARTITION outbox_1 FOR VALUES IN (1)", "public.outbox_1"},
				{plainOutbox, "ALTER TABLE outbox SET UNLOGGED", "ALTER TABLE outbox SET LOGGED, ALTER COLUMN payload SET STATISTICS 500", "public.outbox"},
				{plainOutbox, "ALTER TABLE outbox SET UNLOGGED", "ALTER TABLE outbox SET LOGGED; ALTER TABLE outbox ALTER COLUMN payload SET DEFAULT ''", "public.outbox"},
			} {
				l := newLooks(t, parts.Postgres(t, version).DSN(), c.setup, "CREATE PUBLICATION postrider FOR ALL TABLES WITH (publish_via_partition_root = true)")
				require.NoError(t, l.look())
				l.do("BEGIN", c.away)
				from, to, xmin := l.insert()
				l.do(c.back, "COMMIT")
				l.noticed("the storage of "+c.text+" was replaced", from, to, xmin)
			}
		})
	}
}

// noticed looks, and expects to learn what happened around a row.
func (l *looks) noticed(text string, from, to pglogrepl.LSN, xmin uint32) {
	l.t.Helper()
	var problem *slot.PublicationError
	require.ErrorAs(l.t, l.look(), &problem)
	require.Contains(l.t, problem.Problem, text)
	require.Equal(l.t, "public.outbox", problem.Table)
	require.LessOrEqual(l.t, problem.From, from)
	require.GreaterOrEqual(l.t, problem.To, to)
	require.ErrorContains(l.t, problem, fmt.Sprintf("between %s and %s", problem.From, problem.To))
	require.NotZero(l.t, problem.FromXmin)
	require.LessOrEqual(l.t, problem.FromXmin, xmin)
	_, fix := problem.Advice()
	require.Equal(l.t, text == namedBack, problem.Elsewhere)
	if problem.Elsewhere {
		require.Contains(l.t, fix, `INSERT INTO "public"."outbox" SELECT * FROM`)
		require.NotContains(l.t, fix, "postrider recover", "which reads the outbox alone")
	} else {
		require.Contains(l.t, fix, fmt.Sprintf("postrider recover --from-xmin %d", problem.FromXmin))
	}
	require.False(l.t, *l.Status().PublicationOK)
}

// innocent lose no row, and are done while relays run. VACUUM cannot be in a transaction, so each is a call of its own.
var innocent = map[string][]string{
	plainOutbox: {
		"INSERT INTO outbox (payload) VALUES ('x')", "VACUUM outbox", "VACUUM (FREEZE) outbox", "ANALYZE outbox", "VACUUM FULL outbox", "CLUSTER outbox USING outbox_pkey", "REINDEX TABLE outbox",
		"TRUNCATE outbox", "GRANT SELECT, INSERT ON outbox TO public", "GRANT SELECT (id) ON outbox TO public", "CREATE INDEX ON outbox (day)", "ALTER TABLE outbox SET (fillfactor = 50)",
		"ALTER TABLE outbox ADD COLUMN a text", "ALTER TABLE outbox ADD COLUMN b int DEFAULT 5", "ALTER TABLE outbox ADD COLUMN c float DEFAULT random()",
		"VACUUM FULL outbox", "ALTER TABLE outbox DROP COLUMN a", "ALTER TABLE outbox ALTER day TYPE bigint",
		"BEGIN; ALTER TABLE outbox ADD COLUMN trace uuid DEFAULT gen_random_uuid(); ALTER TABLE outbox ALTER COLUMN trace SET NOT NULL; COMMIT",
		"BEGIN; ALTER TABLE outbox ALTER day TYPE int; ALTER TABLE outbox ALTER day SET DEFAULT 0; COMMIT",
		"ALTER TABLE outbox ADD COLUMN e int DEFAULT 1", "ALTER TABLE outbox ALTER e TYPE bigint; ALTER TABLE outbox DROP COLUMN e",
		"ALTER TABLE outbox RENAME COLUMN b TO d", "ALTER TABLE outbox REPLICA IDENTITY FULL", "ALTER TABLE outbox REPLICA IDENTITY DEFAULT", "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY",
		"CREATE ROLE first", "ALTER TABLE outbox OWNER TO first", "CREATE ROLE second", "ALTER TABLE outbox OWNER TO second",
		"GRANT USAGE ON TYPE outbox TO first", "REVOKE USAGE ON TYPE outbox FROM first", "GRANT CREATE ON SCHEMA public TO first", "REVOKE CREATE ON SCHEMA public FROM first",
		"ALTER TABLE outbox OWNER TO first; ALTER TABLE outbox OWNER TO postgres", "ALTER TABLE outbox OWNER TO first; ALTER TABLE outbox OWNER TO second", "ALTER TABLE outbox OWNER TO postgres", "CREATE TRIGGER t BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"ALTER PUBLICATION postrider ADD TABLE other", "ALTER PUBLICATION postrider DROP TABLE other", "CREATE PUBLICATION others FOR TABLE outbox, other", "ALTER PUBLICATION others SET (publish = 'delete')",
		"DROP PUBLICATION others", "CREATE UNLOGGED TABLE quick (a text)", "ALTER TABLE quick SET LOGGED", "VACUUM FULL pg_publication", "VACUUM FULL pg_class", "VACUUM FULL pg_depend", "VACUUM FULL pg_publication_rel",
	},
	partitionedOutbox: {
		"INSERT INTO outbox (payload) VALUES ('x')", "CREATE TABLE outbox_4 PARTITION OF outbox FOR VALUES IN (4)", "CREATE TABLE outbox_3 PARTITION OF outbox_2 FOR VALUES IN (3)",
		"CREATE TABLE outbox_5 (LIKE outbox)", "INSERT INTO outbox_5 (id, day) VALUES (1, 5)", "ALTER TABLE outbox ATTACH PARTITION outbox_5 FOR VALUES IN (5)",
		"CREATE ROLE third", "ALTER TABLE outbox OWNER TO third", "ALTER TABLE outbox OWNER TO postgres", "ALTER TABLE outbox OWNER TO third",
		"CREATE UNLOGGED TABLE outbox_6 (LIKE outbox)", "BEGIN; ALTER TABLE outbox_6 SET LOGGED; ALTER TABLE outbox ATTACH PARTITION outbox_6 FOR VALUES IN (6); COMMIT",
		"VACUUM FULL outbox_1", "VACUUM FULL outbox", "TRUNCATE outbox_1", "ANALYZE outbox", "ALTER TABLE outbox ALTER payload TYPE varchar", "ALTER TABLE outbox ADD COLUMN c float DEFAULT random()",
		"ALTER TABLE outbox DETACH PARTITION outbox_5", "ALTER TABLE outbox_5 SET UNLOGGED", "ALTER TABLE outbox DETACH PARTITION outbox_1 CONCURRENTLY", "DROP TABLE outbox_1",
	},
}

func TestMonitor_LetsInnocentChangesBe(t *testing.T) {
	t.Parallel()
	for _, version := range supported {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
			for setup, statements := range innocent {
				l := newLooks(t, parts.NewDatabase(t, server.DSN()).DSN(), setup, "CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)")
				for _, sql := range statements {
					l.do(sql)
					require.NoError(t, l.look(), sql)
				}
				l.begin()
				require.NoError(t, l.look())
				require.NotContains(t, l.log.String(), "may have changed", "not for a process that begins, either")
				require.Empty(t, l.warnings())
				l.do("SELECT pg_drop_replication_slot('" + l.slot() + "')") // the next would begin with its horizon
			}
		})
	}
}

// Two entries bring the table, and one of them is always there.
func TestMonitor_LetsAnEntryGoWhileAnotherBringsTheTable(t *testing.T) {
	l := newLooks(t, parts.Postgres(t, "17").DSN(), plainOutbox, "CREATE PUBLICATION postrider FOR TABLE outbox, TABLES IN SCHEMA public")
	l.do("ALTER PUBLICATION postrider DROP TABLE outbox")
	require.NoError(t, l.look())
	l.do("ALTER PUBLICATION postrider ADD TABLE outbox")
	require.NoError(t, l.look())
	l.do("ALTER PUBLICATION postrider DROP TABLES IN SCHEMA public")
	require.NoError(t, l.look())
	l.do("ALTER PUBLICATION postrider DROP TABLE outbox", "ALTER PUBLICATION postrider ADD TABLES IN SCHEMA public")
	require.ErrorContains(t, l.look(), "taken out of the publication")
}

// What has no TOAST table leaves nothing by which SET UNLOGGED and SET LOGGED differ from VACUUM FULL.
func TestMonitor_TellsOfNewFilesOfATableWithoutTOAST(t *testing.T) {
	l := newLooks(t, parts.Postgres(t, "17").DSN(), "CREATE TABLE outbox (id int)", "CREATE PUBLICATION postrider FOR ALL TABLES")
	l.do("ALTER TABLE outbox SET UNLOGGED", "ALTER TABLE outbox SET LOGGED")
	require.NoError(t, l.look())
	require.Contains(t, l.log.String(), "if it was unlogged for a moment")
	l.log.Reset()
	l.do("ALTER TABLE outbox REPLICA IDENTITY FULL")
	require.NoError(t, l.look())
	require.Contains(t, l.log.String(), "replica identity changed")
	require.Empty(t, l.warnings())
}

// A commit that waits for a synchronous standby is decoded long before anybody else sees it.
func TestMonitor_WindowBeginsBeforeACommitThatNobodySees(t *testing.T) {
	t.Parallel()
	// From the start: after a reload, commits wait from when the checkpointer has read the file on.
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17",
		Params: map[string]string{"synchronous_standby_names": "absent", "synchronous_commit": "local"}})
	l := newLooks(t, pg.DSN(), plainOutbox, "CREATE PUBLICATION postrider FOR TABLE outbox")
	waiting := parts.Connect(t, pg.DSN())
	_, err := waiting.Exec(t.Context(), "SET synchronous_commit = on")
	require.NoError(t, err)
	var pid string
	require.NoError(t, waiting.QueryRow(t.Context(), "SELECT pg_backend_pid()::text").Scan(&pid))
	done := make(chan error, 1)
	go func() {
		_, err := waiting.Exec(t.Context(), "ALTER PUBLICATION postrider DROP TABLE outbox")
		done <- err
	}()
	require.Eventually(t, func() bool {
		return l.ask("SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = "+pid) == "SyncRep"
	}, time.Minute, 10*time.Millisecond)

	from, to, xmin := l.insert() // is not sent
	for range 3 {
		require.NoError(t, l.look(), "nobody sees it yet")
		l.insert()
	}
	l.do("SELECT pg_cancel_backend(" + pid + ")") // waits no longer; it is committed
	require.NoError(t, <-done)
	l.do("ALTER PUBLICATION postrider ADD TABLE outbox")
	l.noticed("added again", from, to, xmin)
}

// A transaction that was open at the first look has a lower xid than all that begins behind it, and inserts its row in the window.
func TestMonitor_WindowHasTheRowsOfATransactionThatHadBegun(t *testing.T) {
	t.Parallel()
	l := newLooks(t, parts.Postgres(t, "17").DSN(), plainOutbox, "CREATE PUBLICATION postrider FOR TABLE outbox")
	early, err := parts.Connect(t, l.dsn).Begin(t.Context())
	require.NoError(t, err)
	var xmin uint32
	require.NoError(t, early.QueryRow(t.Context(), "SELECT pg_current_xact_id()::xid::text::bigint").Scan(&xmin))
	l.do("SELECT pg_current_xact_id()") // a later one that ends: snapshots reach beyond the early one
	l.begin()
	require.NoError(t, l.look())
	l.do("ALTER PUBLICATION postrider DROP TABLE outbox")
	from := l.position()
	_, err = early.Exec(t.Context(), "INSERT INTO outbox (payload) VALUES ('x')")
	require.NoError(t, err)
	require.NoError(t, early.Commit(t.Context()))
	to := l.position()
	l.do("ALTER PUBLICATION postrider ADD TABLE outbox")
	l.noticed("added again", from, to, xmin)
}

func TestBoundaries_AreBehindWhatTheLookDidNotSee(t *testing.T) {
	var b boundaries
	at := func(lsn pglogrepl.LSN, xmin, xmax uint64) pglogrepl.LSN {
		b.add(lsn, xmin, xmax)
		return b.settled.lsn
	}
	require.EqualValues(t, 10, at(10, 5, 5))
	require.EqualValues(t, 20, at(20, 5, 5), "nothing is under way")
	require.EqualValues(t, 20, at(30, 5, 7), "5 is under way")
	require.EqualValues(t, 20, at(40, 5, 9))
	require.EqualValues(t, 20, at(50, 6, 9), "6 is, and it had not begun at 20")
	require.EqualValues(t, 30, at(60, 7, 9), "all that had begun at 30 have ended")
	require.EqualValues(t, 70, at(70, 9, 9))
}

func TestPublication_NamesAPartitionThatNeverReachesTheWAL(t *testing.T) {
	t.Parallel()
	for _, version := range supported {
		t.Run(version, func(t *testing.T) {
			l := newLooks(t, parts.Postgres(t, version).DSN(), partitionedOutbox, "CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish_via_partition_root = true)")
			finds := func(text, sql string) {
				t.Helper()
				var problem *slot.PublicationError
				require.ErrorAs(t, l.look(), &problem)
				require.ErrorContains(t, problem, text)
				require.Equal(t, sql, problem.SQL)
				_, fix := problem.Advice()
				require.Contains(t, fix, "postrider recover")
				_, err := slot.VerifyPublication(t.Context(), l.sql, "postrider", []string{"public.outbox"})
				require.ErrorContains(t, err, text)
				l.do(problem.SQL)
				_, err = slot.VerifyPublication(t.Context(), l.sql, "postrider", []string{"public.outbox"})
				require.NoError(t, err)
			}
			l.do("CREATE UNLOGGED TABLE outbox_3 PARTITION OF outbox_2 FOR VALUES IN (3)")
			finds("public.outbox_3 is unlogged", `ALTER TABLE "public"."outbox_3" SET LOGGED;`)

			l.begin()
			require.NoError(t, l.look())
			l.do(`ALTER TABLE outbox_2_2 SET UNLOGGED`)
			finds("public.outbox_2_2 is unlogged", `ALTER TABLE "public"."outbox_2_2" SET LOGGED;`)

			l.begin()
			require.NoError(t, l.look())
			l.do("CREATE FOREIGN DATA WRAPPER w", "CREATE SERVER s FOREIGN DATA WRAPPER w", `CREATE FOREIGN TABLE "Far" PARTITION OF outbox FOR VALUES IN (9) SERVER s`)
			finds("public.Far is a foreign table", `ALTER TABLE public.outbox DETACH PARTITION "public"."Far";`)
		})
	}
}

// What changed while no relay ran is known from the slot's horizon: until the slot is beyond, and not from another slot's.
func TestMonitor_BeginWarnsOfWhatIsYoungerThanTheSlot(t *testing.T) {
	for _, version := range supported {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newLooks(t, parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}).DSN(), plainOutbox, "CREATE PUBLICATION postrider FOR TABLE outbox")
			require.NotContains(t, l.log.String(), "may have changed", "of a fresh slot")
			l.do("ALTER PUBLICATION postrider SET (publish = 'update')", "INSERT INTO outbox (payload) VALUES ('lost')", "ALTER PUBLICATION postrider SET (publish = 'insert')")
			l.begin()
			require.Len(t, l.warnings(), 1)
			find := "postrider recover --from-xmin " + l.ask("SELECT catalog_xmin::text FROM pg_replication_slots")
			require.Contains(t, l.warnings()[0], find+" --config p.toml")
			require.Contains(t, l.warnings()[0], "publication postrider")
			require.NoError(t, l.Begin(t.Context(), l.conn))
			require.Len(t, l.warnings(), 1, "once for a process")

			// A slot that is made beside one that lags is not older than its publication.
			l.do("SELECT pg_copy_logical_replication_slot('postgres', 'lags')", "SELECT pg_drop_replication_slot('postgres')", "SELECT pg_create_logical_replication_slot('postgres', 'pgoutput')")
			l.begin()
			require.Empty(t, l.warnings())
			require.Contains(t, l.log.String(), "may have changed")
		})
	}
}

// GRANT and REVOKE write a schema too, so that this is no proof.
func TestMonitor_TellsOfASchemaThatWasRenamedAndNamedBack(t *testing.T) {
	t.Parallel()
	for _, version := range supported {
		t.Run(version, func(t *testing.T) {
			l := newLooks(t, parts.Postgres(t, version).DSN(), plainOutbox, "CREATE PUBLICATION postrider FOR TABLE outbox")
			l.do("ALTER SCHEMA public RENAME TO before", "CREATE SCHEMA public", "CREATE TABLE public.outbox (LIKE before.outbox)", "DROP SCHEMA public CASCADE",
				"ALTER SCHEMA before RENAME TO public")
			require.NoError(t, l.look())
			require.Contains(t, l.log.String(), "if it was renamed for a moment")
			require.Contains(t, l.log.String(), `"to_lsn"`)
			l.log.Reset()
			require.NoError(t, l.look())
			require.Empty(t, l.log.String(), "once")
		})
	}
}

// A new owner does not hide a new name.
func TestMonitor_NoticesATableThatWasRenamedBesideANewOwner(t *testing.T) {
	t.Parallel()
	for _, version := range supported {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newLooks(t, parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}).DSN(), plainOutbox, "CREATE PUBLICATION postrider FOR TABLE outbox")
			l.do("CREATE ROLE other", "ALTER TABLE outbox OWNER TO other", "ALTER TABLE outbox RENAME TO away", "ALTER TABLE away RENAME TO outbox")
			require.ErrorContains(t, l.look(), namedBack)
		})
	}
}
