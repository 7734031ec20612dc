package sql_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// window of the inboxes here, in days: periods begin on 1, 8, 15 and 22 January 2000.
const window = 7

// inbox is a database with an inbox whose day is what the session has set as test.today.
type inbox struct {
	*testing.T
	db   *parts.Database
	conn *pgx.Conn
}

func newInbox(t *testing.T, version string) *inbox {
	t.Helper()
	db := parts.Postgres(t, version)
	i := &inbox{t, db, db.Connect(t)}
	i.day("2000-01-10")
	i.run(i.script(window))
	return i
}

// script is that of the inbox, with a calendar that the test sets.
func (i *inbox) script(window int) string {
	script, err := sql.Inbox("public", "inbox", window)
	require.NoError(i, err)
	today := "(now() AT TIME ZONE 'UTC')::date"
	require.Contains(i, script, today)
	return strings.ReplaceAll(script, today, "current_setting('test.today')::date")
}

func (i *inbox) run(script string, args ...any) {
	i.Helper()
	_, err := i.conn.Exec(i.Context(), script, args...)
	require.NoError(i, err, script)
}

func (i *inbox) day(day string) { i.Helper(); i.run("SELECT set_config('test.today', $1, false)", day) }

// mark reports whether an event is new.
func (i *inbox) mark(id string) (fresh bool) {
	i.Helper()
	require.NoError(i, i.conn.QueryRow(i.Context(), "SELECT inbox_mark('billing', $1, NULL)", id).Scan(&fresh))
	return fresh
}

// markOf is mark for an event of a time, and may be refused.
func (i *inbox) markOf(id, at string) (fresh bool, err error) {
	err = i.conn.QueryRow(i.Context(), "SELECT inbox_mark('billing', $1, $2::timestamptz)", id, at).Scan(&fresh)
	return fresh, err
}

func (i *inbox) partitions() (names []string) {
	i.Helper()
	require.NoError(i, i.conn.QueryRow(i.Context(), `SELECT array_agg(inhrelid::regclass::text ORDER BY inhrelid::regclass::text COLLATE "C")
		FROM pg_inherits WHERE inhparent = 'inbox'::regclass`).Scan(&names))
	return names
}

func TestInbox_RunsTwiceUnderAnyName(t *testing.T) {
	for _, name := range []struct{ schema, table string }{{"public", "inbox"}, {"my shop", "Order Events"}, {"my shop", "100%"}} {
		t.Run(name.table, func(t *testing.T) {
			conn := database(t)
			_, err := conn.Exec(t.Context(), `CREATE SCHEMA "my shop"`)
			require.NoError(t, err)
			script, err := sql.Inbox(name.schema, name.table, 30)
			require.NoError(t, err)
			for range 2 {
				_, err = conn.Exec(t.Context(), script)
				require.NoError(t, err)
			}
			for _, want := range []bool{true, false} {
				var fresh bool
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT "+pgx.Identifier{name.schema, name.table + "_mark"}.Sanitize()+
					"('billing', 'e1', now())").Scan(&fresh))
				require.Equal(t, want, fresh)
			}
			var days int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT "+pgx.Identifier{name.schema, name.table + "_window"}.Sanitize()+"()").Scan(&days))
			require.Equal(t, 30, days)
		})
	}
	_, err := sql.Inbox("public", "inbox", 0)
	require.ErrorContains(t, err, "at least one day")
	_, err = sql.Inbox("public", `in"box`, 7)
	require.ErrorContains(t, err, "cannot be the name of an inbox table")
}

// For every pair of days: what the page says of the window is what happens, maintained daily or never.
func TestInbox_RecognisesEveryDuplicateWithinItsWindow(t *testing.T) {
	for _, maintained := range []bool{true, false} {
		t.Run(fmt.Sprintf("maintained=%t", maintained), func(t *testing.T) {
			i := newInbox(t, "14")
			start := time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC)
			const days = 5 * window
			first := map[string]int{} // when an event was processed last
			for day := range days {
				i.day(start.AddDate(0, 0, day).Format(time.DateOnly))
				if maintained {
					i.run("SELECT inbox_maintain()")
				}
				require.True(t, i.mark(fmt.Sprint("new ", day)))
				require.False(t, i.mark(fmt.Sprint("new ", day)))
				for before := range day {
					// one event for each pair of days, since a duplicate is marked again
					id := fmt.Sprintf("%d and %d", before, day)
					if _, processed := first[id]; processed && i.mark(id) {
						require.Greater(t, day-before, window)
					}
				}
				for after := day + 1; after < days; after++ {
					id := fmt.Sprintf("%d and %d", day, after)
					require.True(t, i.mark(id))
					first[id] = day
				}
			}
			if maintained {
				require.LessOrEqual(t, len(i.partitions()), 6, "the period before, until its last day is two days ago, this one, three to come, and the default")
			}
		})
	}
}

// The clock of the server can go back, by a failover for instance.
func TestInbox_RecognisesADuplicateOfTomorrow(t *testing.T) {
	i := newInbox(t, "14")
	i.day("2000-01-15") // the first of a period
	require.True(t, i.mark("e1"))
	i.day("2000-01-14")
	require.False(t, i.mark("e1"))
}

func TestInbox_RefusesWhatIsOlderThanItsMarks(t *testing.T) {
	i := newInbox(t, "14")
	fresh, err := i.markOf("e1", "2000-01-01 00:00Z")
	require.NoError(t, err)
	require.True(t, fresh, "as old as the oldest mark that counts")
	_, err = i.markOf("e2", "1999-12-31 23:59:59.999Z")
	refused := new(pgconn.PgError)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "PRIOW", refused.Code)
	require.Equal(t, "event e2 of 1999-12-31 23:59:59Z is older than what the inbox has marks of", refused.Message)
	require.Contains(t, refused.Detail, "since 2000-01-01")
	require.True(t, i.mark("e2"), "nothing was marked")
	fresh, err = i.markOf("e2", "1999-12-31 23:59:59.999Z")
	require.NoError(t, err)
	require.False(t, fresh, "a mark that is there is proof enough")
}

func TestInbox_MarksOfConsumersAreTheirOwn(t *testing.T) {
	i := newInbox(t, "14")
	require.True(t, i.mark("e1"))
	var fresh bool
	require.NoError(t, i.conn.QueryRow(t.Context(), "SELECT inbox_mark('shipping', 'e1', NULL)").Scan(&fresh))
	require.True(t, fresh)
	for _, id := range []string{"E1", "e1 ", "é1", strings.Repeat("x", 1024)} {
		require.True(t, i.mark(id), id)
	}
	for _, id := range []string{"", strings.Repeat("x", 1025)} {
		_, err := i.conn.Exec(t.Context(), "SELECT inbox_mark('billing', $1, NULL)", id)
		require.ErrorContains(t, err, "check constraint")
	}
}

// Marks go where the maintenance would have made partitions, and stay there.
func TestInbox_MaintenanceTakesOverFromTheDefaultPartition(t *testing.T) {
	i := newInbox(t, "14")
	i.day("2000-03-01")
	require.True(t, i.mark("e1"))
	i.run("SELECT inbox_maintain()")
	require.False(t, i.mark("e1"))
	i.day("2000-03-22")
	i.run("SELECT inbox_maintain()")
	var rows int
	require.NoError(t, i.conn.QueryRow(t.Context(), "SELECT count(*) FROM inbox_default").Scan(&rows))
	require.Zero(t, rows, "removed as in other partitions")
}

func TestInbox_MaintenanceDropsWhatItMadeAlone(t *testing.T) {
	i := newInbox(t, "14")
	i.run(`CREATE SCHEMA archive;
		CREATE TABLE archive.inbox_19990101 PARTITION OF public.inbox FOR VALUES IN ('1999-01-01');
		CREATE TABLE inbox_19990102 (no_partition text);
		CREATE TABLE else_19990103 PARTITION OF inbox FOR VALUES IN ('1999-01-03');
		CREATE TABLE inbox_19990104 PARTITION OF inbox FOR VALUES IN ('1999-01-04', '3000-01-01');
		CREATE TABLE inbox_19990105 PARTITION OF inbox FOR VALUES IN ('1999-01-06');
		CREATE TABLE inbox_19990107 PARTITION OF inbox FOR VALUES IN ('1999-01-07')`)
	i.day("2000-01-23") // the period of 15 to 21 January ended the day before yesterday
	i.run("SET datestyle = 'SQL, DMY'; SELECT inbox_maintain()")
	require.Equal(t, []string{"archive.inbox_19990101", "else_19990103", "inbox_19990104", "inbox_19990105",
		"inbox_20000122", "inbox_20000129", "inbox_20000205", "inbox_20000212", "inbox_default"}, i.partitions())
}

func TestInbox_AnotherWindowKeepsTheMarks(t *testing.T) {
	for _, days := range []int{1, 2, 5, 14, 30} {
		t.Run(fmt.Sprint(days), func(t *testing.T) {
			i := newInbox(t, "14")
			require.True(t, i.mark("e1"))
			i.run(i.script(days))
			require.False(t, i.mark("e1"))
			i.day("2000-01-11")
			i.run("SELECT inbox_maintain()")
			require.False(t, i.mark("e1"))
		})
	}
}

// What the old window has removed is refused, not processed again, as long as the new one would not refuse it.
func TestInbox_ALongerWindowKnowsWhatTheOldOneHasForgotten(t *testing.T) {
	i := newInbox(t, "14")
	fresh, err := i.markOf("e1", "2000-01-10 00:00Z")
	require.NoError(t, err)
	require.True(t, fresh)
	i.day("2000-02-10") // the old window reaches back to 29 January
	i.run("SELECT inbox_maintain()")
	for _, days := range []int{30, 60, 5, 60} {
		i.run("SET datestyle = 'SQL, DMY'")
		i.run(i.script(days))
		i.run("SET datestyle = 'SQL, MDY'")
		_, err = i.markOf("e1", "2000-01-10 00:00Z")
		refused := new(pgconn.PgError)
		require.ErrorAs(t, err, &refused, "%d days", days)
		require.Equal(t, "PRIOW", refused.Code)
		if days == 30 {
			require.Contains(t, refused.Detail, "since 2000-01-29")
			_, err = i.markOf("e2", "2000-01-28 23:59:59Z")
			require.ErrorAs(t, err, &refused)
			fresh, err = i.markOf("e2", "2000-01-29 00:00Z")
			require.NoError(t, err)
			require.True(t, fresh)
		}
	}
	i.day("2000-06-30")
	i.run(i.script(60))
	fresh, err = i.markOf("e3", "2000-05-01 00:00Z")
	require.NoError(t, err)
	require.True(t, fresh, "the new window has passed")
}

// A consumer that has begun with the old window when it changes would mark what duplicates do not meet.
func TestInbox_AnotherWindowStopsWhoHasTheOldOne(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(level), func(t *testing.T) {
			i := newInbox(t, "14")
			other := i.db.Connect(t)
			_, err := other.Exec(t.Context(), "SET test.today = '2000-01-10'")
			require.NoError(t, err)
			change, err := i.conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = change.Exec(t.Context(), regexp.MustCompile(`(?m)^(BEGIN|COMMIT);$`).ReplaceAllString(i.script(14), ""))
			require.NoError(t, err)
			result := make(chan error, 1)
			go func() {
				_, err := other.Exec(t.Context(), "BEGIN ISOLATION LEVEL "+string(level)+"; SELECT inbox_mark('billing', 'e1', NULL)")
				result <- err
			}()
			parts.Await(t, "the other session to wait", func() (waits bool, err error) {
				err = change.QueryRow(t.Context(), "SELECT cardinality(pg_blocking_pids($1)) > 0", other.PgConn().PID()).Scan(&waits)
				return waits, err
			})
			require.NoError(t, change.Commit(t.Context()))
			refused := new(pgconn.PgError)
			require.ErrorAs(t, <-result, &refused)
			require.Equal(t, "40001", refused.Code, refused.Message)
		})
	}
}

func TestInbox_NamesWhatIsInItsPlace(t *testing.T) {
	script, err := sql.Inbox("public", "inbox", window)
	require.NoError(t, err)
	for _, test := range []struct{ name, before, message, hint string }{
		{"another table", "CREATE TABLE inbox (id bigint PRIMARY KEY, consumer text, event_id text, period date)", "is no inbox of this script", "Rename that table"},
		{"no unique key", "CREATE TABLE inbox (consumer text NOT NULL, event_id text NOT NULL, period date NOT NULL, marked_at timestamptz) PARTITION BY LIST (period)",
			"is no inbox of this script", "Rename that table"},
		{"a key of less", "CREATE TABLE inbox (consumer text NOT NULL, event_id text NOT NULL, period date PRIMARY KEY, marked_at timestamptz) PARTITION BY LIST (period)",
			"is no inbox of this script", "Rename that table"},
		{"a view", "CREATE VIEW inbox AS SELECT 1 AS consumer", "is no inbox of this script", "Rename that table"},
		{"a table of the default", "CREATE TABLE inbox_default (x int)", "inbox_default exists and is no partition", "rename it"},
		{"a detached default", script + "; ALTER TABLE inbox DETACH PARTITION inbox_default", "inbox_default exists and is no partition", "ATTACH PARTITION public.inbox_default DEFAULT"},
		{"an unlogged partition", script + "; ALTER TABLE inbox_default SET UNLOGGED", "public.inbox_default is unlogged", "ALTER TABLE public.inbox_default SET LOGGED;"},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := database(t)
			_, err := conn.Exec(t.Context(), test.before)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), script)
			refused := new(pgconn.PgError)
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Message, test.message)
			require.Contains(t, refused.Hint, test.hint)
		})
	}
}

// With another table in its place and no default partition there is nothing to take its marks.
func TestInbox_MaintenanceNamesThePartitionThatItCannotMake(t *testing.T) {
	i := newInbox(t, "14")
	i.run("DROP TABLE inbox_20000108; CREATE TABLE inbox_20000108 (x int); SELECT inbox_maintain()")
	require.True(t, i.mark("e1"), "the default takes it")
	i.run("ALTER TABLE inbox DETACH PARTITION inbox_default")
	_, err := i.conn.Exec(t.Context(), "SELECT inbox_maintain()")
	require.ErrorContains(t, err, `"inbox_20000108" already exists`)
	_, err = i.conn.Exec(t.Context(), "SELECT inbox_mark('billing', 'e2', NULL)")
	require.ErrorContains(t, err, `no partition of relation "inbox" found`)
}

// Consumers would wait behind a maintenance that waits for one of them.
func TestInbox_MaintenanceDoesNotWaitLong(t *testing.T) {
	i := newInbox(t, "18")
	i.run("DROP TABLE inbox_20000129; BEGIN; SELECT inbox_mark('billing', 'e1', NULL)")
	other := i.db.Connect(t)
	_, err := other.Exec(t.Context(), "SET test.today = '2000-01-10'")
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "SELECT inbox_maintain()")
	require.ErrorContains(t, err, "lock timeout")
	i.run("COMMIT")
	_, err = other.Exec(t.Context(), "SELECT inbox_maintain()")
	require.NoError(t, err)
	i.run("BEGIN; SELECT inbox_mark('billing', 'e2', NULL)")
	_, err = other.Exec(t.Context(), "SELECT inbox_maintain()")
	require.NoError(t, err, "without anything to do it waits for no consumer")
}

func TestInbox_TheScriptDoesNotWaitLong(t *testing.T) {
	i := newInbox(t, "18")
	i.run("BEGIN; SELECT inbox_mark('billing', 'e1', NULL)")
	other := i.db.Connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	_, err := other.Exec(ctx, "SET test.today = '2000-01-10'")
	require.NoError(t, err)
	_, err = other.Exec(ctx, i.script(window))
	require.Equal(t, "55P03", postgres.SQLState(err), err)
	i.run("COMMIT")
	_, err = other.Exec(ctx, "ROLLBACK; "+i.script(window))
	require.NoError(t, err)
}

// The role of a consumer has what the script says, and no more.
func TestInbox_GrantIsEnough(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "18"}) // roles are the whole server's
	super := parts.Connect(t, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", pg.Port()))
	script, err := sql.Inbox("public", "inbox", window)
	require.NoError(t, err)
	_, err = super.Exec(t.Context(), "CREATE ROLE shop LOGIN; "+script)
	require.NoError(t, err)
	conn := parts.Connect(t, fmt.Sprintf("postgres://shop@127.0.0.1:%d/postgres?sslmode=disable", pg.Port()))
	const mark = "SELECT public.inbox_mark('billing'::text, 'e1'::text, now()::timestamptz)"
	_, err = conn.Exec(t.Context(), mark)
	require.ErrorContains(t, err, "permission denied for table inbox")
	grant := regexp.MustCompile(`GRANT .*;`).FindString(script)
	require.NotEmpty(t, grant)
	_, err = super.Exec(t.Context(), grant)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), mark)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "DELETE FROM public.inbox")
	require.ErrorContains(t, err, "permission denied")
}
