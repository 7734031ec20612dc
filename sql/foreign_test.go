package sql_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// What somebody has made in public is not called when a superuser runs a script, whatever the session's search_path, which stays as it was.
func TestScripts_RunNobodyElsesCode(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}) // roles are the whole server's
			connect := func(role string) *pgx.Conn {
				return parts.Connect(t, fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, pg.Port()))
			}
			super := connect("postgres")
			do := func(conn *pgx.Conn, script string) {
				t.Helper()
				_, err := conn.Exec(t.Context(), script)
				require.NoError(t, err, script)
			}
			do(super, "CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory; CREATE SEQUENCE calls; GRANT ALL ON calls TO PUBLIC")
			mallory := connect("mallory")
			for signature, result := range map[string][2]string{
				"gen_random_uuid()":                         {"uuid", "NULL::uuid"},
				"now()":                                     {"timestamptz", "pg_catalog.now()"},
				"format(text, name)":                        {"text", "'SELECT 1'"},
				"to_char(date, text)":                       {"text", "'_20000101'"},
				"right(name, int)":                          {"text", "'20000101'"},
				"like_name(name, text)":                     {"boolean", "true"},
				"glue(name, text)":                          {"text", "$1::text"},
				"same(oid, regclass)":                       {"boolean", "true"},
				"days(date, date)":                          {"integer", "0"},
				"octet_length(text)":                        {"integer", "1"},
				"inbox_mark(varchar, varchar, timestamptz)": {"boolean", "true"},
				"outbox_maintain()":                         {"void", "NULL::void"},
				"outbox_maintain(int)":                      {"void", "NULL::void"},
			} {
				do(mallory, fmt.Sprintf(`CREATE FUNCTION public.%s RETURNS %s LANGUAGE plpgsql AS
					$f$ BEGIN PERFORM pg_catalog.nextval('public.calls'); %s; END $f$`,
					signature, result[0], map[bool]string{true: "RETURN", false: "RETURN " + result[1]}[result[0] == "void"]))
			}
			do(mallory, `CREATE OPERATOR public.~ (LEFTARG = name, RIGHTARG = text, FUNCTION = public.like_name);
				CREATE OPERATOR public.|| (LEFTARG = name, RIGHTARG = text, FUNCTION = public.glue);
				CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same);
				CREATE OPERATOR public.- (LEFTARG = date, RIGHTARG = date, FUNCTION = public.days)`)

			for i, path := range []string{`"$user", public`, "public, pg_catalog"} {
				do(super, "SET search_path = "+path)
				for _, preset := range sql.Presets() {
					script, err := sql.Outbox(preset, "public", preset)
					require.NoError(t, err)
					do(super, script)
				}
				if i == 0 {
					do(super, "CREATE TABLE public.outbox ()")
					do(super, sql.Publication())
				}
				do(super, sql.Role())
				do(super, "SELECT public.partitioned_maintain(7, interval '7 days')")
				for _, window := range []int{7, 14} {
					script, err := sql.Inbox("public", "inbox", window)
					require.NoError(t, err)
					do(super, script)
				}
				do(super, "SELECT public.inbox_maintain(), public.inbox_mark('billing'::pg_catalog.text, 'e1'::pg_catalog.text, NULL::pg_catalog.timestamptz)")
				var now string
				require.NoError(t, super.QueryRow(t.Context(), "SHOW search_path").Scan(&now))
				require.Equal(t, path, now)
			}
			var called bool
			require.NoError(t, super.QueryRow(t.Context(), "SELECT is_called FROM public.calls").Scan(&called))
			require.False(t, called)

			do(super, "SET search_path = public, pg_catalog")
			_, err := super.Exec(t.Context(), "SELECT now()")
			require.NoError(t, err)
			require.NoError(t, super.QueryRow(t.Context(), "SELECT is_called FROM public.calls").Scan(&called))
			require.True(t, called, "the trap is set")
		})
	}
}

// A superuser who makes partitions of a table would build its indexes, with expressions that its owner wrote.
func TestOutbox_PartitionsOfAnothersTableAreRefused(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "14"})
	connect := func(role string) *pgx.Conn {
		return parts.Connect(t, fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, pg.Port()))
	}
	super := connect("postgres")
	_, err := super.Exec(t.Context(), "CREATE ROLE mallory LOGIN")
	require.NoError(t, err)
	_, err = connect("mallory").Exec(t.Context(), `CREATE TABLE public.outbox (created_at timestamptz) PARTITION BY RANGE (created_at);
		CREATE FUNCTION public.other_maintain(integer, interval) RETURNS void LANGUAGE sql AS 'SELECT'`)
	require.NoError(t, err)
	for _, table := range []string{"outbox", "other"} {
		script, err := sql.Outbox(sql.Partitioned, "public", table)
		require.NoError(t, err)
		_, err = super.Exec(t.Context(), script)
		require.ErrorContains(t, err, "belongs to another role", table)
		_, _ = super.Exec(t.Context(), "ROLLBACK")
	}
}

// What a superuser replaces keeps its owner, who could then replace what consumers call.
func TestInbox_IsNotMixedWithWhatBelongsToAnotherRole(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "14"})
	connect := func(role string) *pgx.Conn {
		return parts.Connect(t, fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, pg.Port()))
	}
	super := connect("postgres")
	_, err := super.Exec(t.Context(), "CREATE ROLE mallory LOGIN")
	require.NoError(t, err)
	mallory := connect("mallory")
	script, err := sql.Inbox("public", "inbox", 7)
	require.NoError(t, err)
	for _, object := range [][2]string{
		{"TABLE public.inbox", " (period date) PARTITION BY LIST (period)"},
		{"FUNCTION public.inbox_window()", " RETURNS integer LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END'"},
		{"FUNCTION public.inbox_maintain()", " RETURNS void LANGUAGE sql AS 'SELECT'"},
		{"FUNCTION public.inbox_mark(text, text, timestamptz)", " RETURNS boolean LANGUAGE sql AS 'SELECT true'"},
	} {
		_, err = mallory.Exec(t.Context(), "CREATE "+object[0]+object[1])
		require.NoError(t, err)
		_, err = super.Exec(t.Context(), script)
		require.ErrorContains(t, err, "belongs to another role", object[0])
		_, _ = super.Exec(t.Context(), "ROLLBACK")
		_, err = mallory.Exec(t.Context(), "DROP "+object[0])
		require.NoError(t, err)
	}
}

// A script waits for a transaction that makes a table of a name that it makes too. Functions that come meanwhile are replaced, and keep their owner.
func TestScripts_RefuseFunctionsThatAnotherRoleMakesMeanwhile(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "14"})
	connect := func(role string) *pgx.Conn {
		return parts.Connect(t, fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, pg.Port()))
	}
	super := connect("postgres")
	_, err := super.Exec(t.Context(), "CREATE ROLE mallory LOGIN")
	require.NoError(t, err)
	watcher, blocker, mallory := connect("postgres"), connect("mallory"), connect("mallory")
	inbox, err := sql.Inbox("public", "inbox", 7)
	require.NoError(t, err)
	outbox, err := sql.Outbox(sql.Partitioned, "public", "outbox")
	require.NoError(t, err)
	for function, script := range map[string]string{
		"public.inbox_window() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 7'":                                                   inbox,
		"public.inbox_maintain() RETURNS void LANGUAGE sql AS 'SELECT'":                                                                inbox,
		"public.inbox_mark(consumer text, event_id text, event_time timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT true'":        inbox,
		"public.outbox_maintain(ahead integer DEFAULT 7, keep interval DEFAULT NULL) RETURNS void LANGUAGE sql AS 'SELECT NULL::text'": outbox,
	} {
		table := "public.inbox_default"
		if script == outbox {
			table = "public.outbox_default"
		}
		_, err = blocker.Exec(t.Context(), "BEGIN; CREATE TABLE "+table+" ()")
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			_, err := super.Exec(t.Context(), script)
			ended <- err
		}()
		parts.Await(t, "the script waits", func() (waits bool, err error) {
			err = watcher.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock')",
				super.PgConn().PID()).Scan(&waits)
			return waits, err
		})
		_, err = mallory.Exec(t.Context(), "CREATE FUNCTION "+function)
		require.NoError(t, err)
		_, err = blocker.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		require.ErrorContains(t, <-ended, "belongs to another role", function)
		_, err = super.Exec(t.Context(), "ROLLBACK; DROP OWNED BY mallory")
		require.NoError(t, err)
	}
}
