package security

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// TestStatements_CallNobodyElsesCode runs every statement of the product where somebody owns look-alikes of all that it could mean: a better match for each
// operator and each function, tables, views and types of the same names. Whoever adds a statement is told by the tests of its package.
func TestStatements_CallNobodyElsesCode(t *testing.T) {
	statements, err := parts.Statements()
	require.NoError(t, err)
	require.NotEmpty(t, statements)
	planned := map[string]bool{}
	versions, tried := []string{"14", "15", "16", "17", "18"}, 0
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			tried++
			h := newHostile(t, version)
			usable := h.usable(statements)
			for _, s := range usable {
				planned[s] = true
			}
			parts.SetTraps(t, h.super, "mallory", "victim")
			// So whatever a statement would call of them is refused when it is made ready to run, whether there are rows or not.
			h.do("GRANT USAGE ON SCHEMA victim TO victim; REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA victim FROM PUBLIC")

			// As a script or a pooler's session has it: pg_catalog comes first, and a better match elsewhere wins.
			plain := parts.Connect(t, h.dsn("victim"))
			h.bites(plain)
			for _, s := range usable {
				h.try(plain.PgConn(), s)
			}
			// As the product has it, in a database whose owner puts public first.
			h.do(`ALTER DATABASE postgres SET search_path = "$user", public, pg_catalog`)
			cfg := postgres.DefaultConfig()
			cfg.URL = secret.Of(h.dsn("victim"))
			conn, err := postgres.ConnectRows(t.Context(), cfg)
			require.NoError(t, err)
			defer func() { _ = conn.Close(context.Background()) }()
			for _, s := range usable {
				h.try(conn.PgConn(), s)
			}
			replication, err := postgres.ConnectReplication(t.Context(), cfg)
			require.NoError(t, err)
			require.NoError(t, replication.Close(t.Context()))
			require.False(t, parts.Sprung(t, h.super))
			unpinned := parts.Connect(t, h.dsn("victim"))
			_, err = unpinned.Exec(t.Context(), "SELECT now()")
			require.ErrorContains(t, err, "permission denied for function now", "the trap is set for functions without arguments, too")
		})
	}
	if tried < len(versions) {
		return // a part was asked for
	}
	for _, s := range statements {
		s = cursor.ReplaceAllString(s, "")
		require.True(t, planned[s] || command.MatchString(s), "no version can plan this one: write it in %s for a table that newHostile makes\n%s", parts.StatementsFile(), s)
	}
}

// command is what is no query: it names objects by their schema, and what scripts do is tried by the tests of package sql.
var command = regexp.MustCompile(`(?i)^\s*(--|BEGIN|SET|CREATE|ALTER|DROP|TRUNCATE|DO|LOCK|COMMENT)\b?`)

// hostile is a server on which mallory owns what is in public and in "$user".
type hostile struct {
	t     *testing.T
	pg    *embedded.Postgres
	super *pgx.Conn
}

func newHostile(t *testing.T, version string) *hostile {
	h := &hostile{t: t, pg: parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})} // roles are the whole server's
	h.super = parts.Connect(t, h.dsn("postgres"))
	h.do(`CREATE ROLE mallory LOGIN; CREATE ROLE victim LOGIN REPLICATION; GRANT pg_monitor TO victim; CREATE SCHEMA victim AUTHORIZATION mallory;
		GRANT EXECUTE ON FUNCTION pg_control_checkpoint(), pg_control_system() TO victim`)
	outbox, err := sql.Outbox(sql.Plain, "public", "outbox")
	require.NoError(t, err)
	h.do(outbox + sql.Publication())
	h.do("CREATE ROLE postrider")
	h.do(sql.Prune())
	h.do("GRANT ALL ON public.postrider_prune TO victim; GRANT DELETE, UPDATE ON public.outbox TO victim; GRANT EXECUTE ON FUNCTION pg_stat_reset_replication_slot(text) TO victim")
	h.do("ALTER TABLE public.outbox ADD aggregatetype varchar(255), ADD aggregateid varchar(255), ADD type varchar(255), ADD number bigint, ADD day int, ADD published_at timestamptz, ADD status text, ADD \"Sta\"\"tus\" text, ADD attempts int, ADD last_error text; CREATE TABLE public.outbox_day () INHERITS (public.outbox)")
	h.do("CREATE SCHEMA postrider_bench; CREATE TABLE postrider_bench.outbox (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb); " +
		"CREATE TABLE postrider_bench.unrelated (id bigserial PRIMARY KEY, body text)")
	h.do("CREATE SCHEMA postrider_demo; CREATE TABLE postrider_demo.orders (id text PRIMARY KEY, changes bigint, changed_at timestamptz DEFAULT pg_catalog.now()); " +
		"CREATE TABLE postrider_demo.outbox (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb)")
	h.do("GRANT USAGE ON SCHEMA postrider_bench, postrider_demo TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA postrider_bench, postrider_demo TO PUBLIC")
	h.do("CREATE TABLE public.part_config (parent_table text, retention text)") // of pg_partman
	// those of docs/OUTBOX-TABLES.md that a poller reads
	h.do(`CREATE TABLE public.outbox_messages (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers jsonb, status text,
			retry_count int, next_retry_at timestamptz, created_at timestamptz, published_at timestamptz, last_error text);
		CREATE TABLE public."OutboxEvent" (id text PRIMARY KEY, "aggregateType" text, "aggregateId" text, "eventType" text, payload jsonb, status text, "createdAt" timestamp);
		CREATE TABLE public.tasks (id uuid PRIMARY KEY, state text, retry_count int, error_message text, updated_at timestamptz, created_at timestamptz);
		CREATE TABLE public.outbox_2026_01 (id bigint, created_at timestamptz, published_at timestamptz, attempts int, PRIMARY KEY (id, created_at));
		GRANT ALL ON public.outbox_messages, public."OutboxEvent", public.tasks, public.outbox_2026_01 TO victim`)
	h.do("CREATE TABLE public.numbered (id int PRIMARY KEY, a text, n int, at timestamptz, bits bit(4))")
	h.do("GRANT SELECT ON ALL TABLES IN SCHEMA public TO victim; GRANT INSERT ON public.outbox TO victim")
	return h
}

func (h *hostile) dsn(role string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, h.pg.Port())
}

func (h *hostile) do(script string) {
	h.t.Helper()
	_, err := h.super.Exec(h.t.Context(), script)
	require.NoError(h.t, err, script)
}

// explain has the server understand a statement, plan it, and make it ready to run, whatever the values of its parameters: what is chosen depends on
// their types. What cannot be planned, as CREATE and SET, is an error.
func explain(ctx context.Context, conn *pgconn.PgConn, statement string) error {
	prepared, err := conn.Prepare(ctx, "", statement, nil)
	if err != nil {
		return err
	}
	execute := "EXECUTE s"
	if n := len(prepared.ParamOIDs); n > 0 {
		execute += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	_, err = conn.Exec(ctx, "DEALLOCATE ALL; SET plan_cache_mode = force_generic_plan; PREPARE s AS "+statement+"; EXPLAIN "+execute).ReadAll()
	return err
}

var cursor = regexp.MustCompile(`^DECLARE \w+ NO SCROLL CURSOR FOR |^EXPLAIN \(FORMAT JSON\) `)

// usable are the statements that this version can plan, before anything hostile is there.
func (h *hostile) usable(statements []string) []string {
	var usable []string
	for _, s := range statements {
		s = cursor.ReplaceAllString(s, "")
		if err := explain(h.t.Context(), h.super.PgConn(), s); err != nil {
			continue // a command, or for another version
		}
		usable = append(usable, s)
	}
	return usable
}

// try fails the test if a statement calls anything of mallory's, or means something else where that is.
func (h *hostile) try(conn *pgconn.PgConn, statement string) {
	h.t.Helper()
	var refused *pgconn.PgError
	switch err := explain(h.t.Context(), conn, statement); {
	case errors.As(err, &refused):
		h.t.Errorf("%s\n%s", refused.Message, statement)
	case err != nil:
		require.NoError(h.t, err)
	}
}

// bites proves that the traps are set: what a careless statement means is mallory's.
func (h *hostile) bites(conn *pgx.Conn) {
	h.t.Helper()
	for _, careless := range []string{
		"SELECT relname || '.' FROM pg_catalog.pg_class", "SELECT 1::bigint + 1::numeric", "SELECT FROM pg_catalog.pg_class WHERE oid = 'pg_class'::regclass",
		"SELECT right(relname, 8) FROM pg_catalog.pg_class", "SELECT to_char(current_date, 'YYYY')", "SELECT FROM pg_catalog.pg_class WHERE relname NOT LIKE 'pg%'",
		"SELECT ARRAY['a'::text] || relname FROM pg_catalog.pg_class",
	} {
		require.ErrorContains(h.t, explain(h.t.Context(), conn.PgConn(), careless), "permission denied for function", careless)
	}
}
