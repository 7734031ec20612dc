package sql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// The role of an application may insert, and do no more.
func TestEmit_WritesARowForEveryTable(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}) // roles are the whole server's
		connect := func(role string) *pgx.Conn {
			return parts.Connect(t, fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, pg.Port()))
		}
		super := connect("postgres")
		_, err := super.Exec(t.Context(), `CREATE SCHEMA "my shop"; CREATE ROLE app LOGIN`)
		require.NoError(t, err)
		app := connect("app")
		for _, preset := range []string{sql.Plain, sql.Partitioned} {
			for _, name := range []struct{ schema, table string }{{"public", "outbox"}, {"my shop", "Order Events"}, {"my shop", "100%"}} {
				t.Run(version+" "+preset+" "+name.table, func(t *testing.T) {
					table := pgx.Identifier{name.schema, name.table}.Sanitize()
					function := pgx.Identifier{name.schema, name.table + "_emit"}.Sanitize()
					script, err := sql.Outbox(preset, name.schema, name.table)
					require.NoError(t, err)
					emit, err := sql.Emit(name.schema, name.table)
					require.NoError(t, err)
					_, err = super.Exec(t.Context(), script+emit+emit+"GRANT USAGE ON SCHEMA "+
						pgx.Identifier{name.schema}.Sanitize()+" TO app; GRANT INSERT ON "+table+" TO app")
					require.NoError(t, err)
					defer func() {
						_, err := super.Exec(t.Context(), "DROP TABLE "+table+" CASCADE")
						require.NoError(t, err)
					}()

					// Text literals, as an application writes them; a null payload is no JSON null.
					tx, err := app.Begin(t.Context())
					require.NoError(t, err)
					var made, given uuid.UUID
					require.NoError(t, tx.QueryRow(t.Context(), "SELECT "+function+"('order', '17', 'OrderCreated')").Scan(&made))
					require.NoError(t, tx.QueryRow(t.Context(), "SELECT "+function+`('order', '17', 'OrderPaid', '{"total": 12.50}', '{"tenant": "acme"}',
						'5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01', '2026-01-15 10:30:00.123456+01')`).Scan(&given))
					require.NoError(t, tx.Commit(t.Context()))
					require.Equal(t, "5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01", given.String())
					require.Equal(t, map[string]uuid.Version{"14": 4, "18": 7}[version], made.Version())

					var row string
					require.NoError(t, super.QueryRow(t.Context(), "SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, payload, headers, created_at AT TIME ZONE 'UTC') FROM "+
						table+" WHERE id = $1", given).Scan(&row))
					require.Equal(t, `order|17|OrderPaid|{"total": 12.50}|{"tenant": "acme"}|2026-01-15 09:30:00.123456`, row)
					var empty bool
					var at time.Time
					require.NoError(t, super.QueryRow(t.Context(), "SELECT payload IS NULL AND headers IS NULL, created_at FROM "+table+" WHERE id = $1", made).Scan(&empty, &at))
					require.True(t, empty)
					require.WithinDuration(t, time.Now(), at, time.Minute)

					for call, refusal := range map[string]string{
						"(NULL, '17', 'OrderCreated')":                   `"aggregate_type"`,
						"('order', NULL, 'OrderCreated')":                `"aggregate_id"`,
						"('order', '17', NULL)":                          `"event_type"`,
						"('order', '17', 'OrderCreated', '{total: 12}')": "invalid input syntax for type json",
						"('order', '17', 'OrderCreated', id => '17')":    "invalid input syntax for type uuid",
						"('order', '17', 'OrderPaid', id => '5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01', created_at => '2026-01-15 10:30:00.123456+01')": "duplicate key",
					} {
						_, err = app.Exec(t.Context(), "SELECT "+function+call)
						require.ErrorContains(t, err, refusal, call)
					}
					_, err = super.Exec(t.Context(), "REVOKE INSERT ON "+table+" FROM app")
					require.NoError(t, err)
					_, err = app.Exec(t.Context(), "SELECT "+function+"('order', '17', 'OrderCreated')")
					require.ErrorContains(t, err, "permission denied for table", "the function has the rights of who calls it")
				})
			}
		}
	}
}

func TestEmit_ATableThatItCannotWriteIsRefused(t *testing.T) {
	conn := database(t)
	emit, err := sql.Emit("public", "outbox")
	require.NoError(t, err)
	refused := func() *pgconn.PgError {
		t.Helper()
		_, err := conn.Exec(t.Context(), emit)
		refusal := new(pgconn.PgError)
		require.ErrorAs(t, err, &refusal)
		_, err = conn.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		return refusal
	}
	refusal := refused()
	require.Equal(t, "table public.outbox does not exist", refusal.Message)
	require.Contains(t, refusal.Hint, "sql/outbox.sql")

	script, err := sql.Outbox(sql.Debezium, "public", "outbox")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script)
	require.NoError(t, err)
	refusal = refused()
	require.Equal(t, "public.outbox has no column for: aggregate_type text, aggregate_id text, event_type text, headers jsonb, created_at timestamptz", refusal.Message)
	require.Contains(t, refusal.Hint, "INSERT")
}

// What somebody has made in public is not called by the function, and does not stand in its place.
func TestEmit_RunsNobodyElsesCode(t *testing.T) {
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
			for signature, result := range map[string]string{
				"gen_random_uuid()":     "uuid",
				"uuidv7()":              "uuid",
				"now()":                 "timestamptz",
				"current_setting(text)": "text",
				"to_regclass(text)":     "regclass",
				"parse_ident(text)":     "text[]",
				"differs(oid, oid)":     "boolean",
				"same(text, text)":      "boolean",
				"least_of(int, int)":    "boolean",
			} {
				do(mallory, fmt.Sprintf(`CREATE FUNCTION public.%s RETURNS %s LANGUAGE plpgsql AS
					$f$ BEGIN PERFORM pg_catalog.nextval('public.calls'); RETURN NULL; END $f$`, signature, result))
			}
			do(mallory, `CREATE OPERATOR public.<> (LEFTARG = oid, RIGHTARG = oid, FUNCTION = public.differs);
				CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.same);
				CREATE OPERATOR public.>= (LEFTARG = int, RIGHTARG = int, FUNCTION = public.least_of)`)
			do(super, "SET search_path = public, pg_catalog")
			script, err := sql.Outbox(sql.Plain, "public", "outbox")
			require.NoError(t, err)
			emit, err := sql.Emit("public", "outbox")
			require.NoError(t, err)
			do(super, script+emit)
			do(super, "SELECT outbox_emit('order', '17', 'OrderCreated', '{}')")
			var called bool
			require.NoError(t, super.QueryRow(t.Context(), "SELECT is_called FROM public.calls").Scan(&called))
			require.False(t, called)
			_, err = super.Exec(t.Context(), "SELECT now()")
			require.NoError(t, err)
			require.NoError(t, super.QueryRow(t.Context(), "SELECT is_called FROM public.calls").Scan(&called))
			require.True(t, called, "the trap is set")

			do(mallory, "CREATE FUNCTION public.outbox_emit(text, text, text, text) RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'")
			_, err = super.Exec(t.Context(), emit)
			require.ErrorContains(t, err, "belongs to another role: public.outbox_emit(text,text,text,text)")
			do(super, "ROLLBACK; DROP FUNCTION public.outbox_emit(text, text, text, text), public.outbox_emit(text, text, text, jsonb, jsonb, uuid, timestamptz)")
			do(mallory, "CREATE FUNCTION public.outbox_emit(text, text, text, jsonb, jsonb, uuid, timestamptz) RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'")
			_, err = super.Exec(t.Context(), emit)
			require.ErrorContains(t, err, "belongs to another role: public.outbox_emit(text,text,text,jsonb,jsonb,uuid,timestamp with time zone)")
		})
	}
}
