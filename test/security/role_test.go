package security

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// TestRole_IsEnoughAndNoMore makes the objects of sql/ with a role for that, and relays with the one that sql/role.sql makes.
func TestRole_IsEnoughAndNoMore(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}) // roles belong to the whole server
			dsn := func(role string) string {
				return fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, pg.Port())
			}
			do := func(role string, statements ...string) error {
				conn, err := pgx.Connect(t.Context(), dsn(role))
				require.NoError(t, err)
				defer func() { _ = conn.Close(t.Context()) }() // now: sql/role.sql limits connections
				for _, s := range statements {
					if _, err := conn.PgConn().Exec(t.Context(), s).ReadAll(); err != nil {
						return fmt.Errorf("%s: %w", s, err)
					}
				}
				return nil
			}
			denied := func(role, statement string) {
				t.Helper()
				var pgErr *pgconn.PgError
				err := do(role, statement)
				require.True(t, errors.As(err, &pgErr) && pgErr.Code == "42501", "%s as %s: %v", statement, role, err)
			}
			outbox, err := sql.Outbox(sql.Plain, "public", "outbox")
			require.NoError(t, err)
			require.NoError(t, do("postgres", "CREATE ROLE setup LOGIN", "CREATE ROLE app LOGIN", "GRANT CREATE ON DATABASE postgres TO setup",
				"GRANT CREATE ON SCHEMA public TO setup", sql.Role(), "REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text"+
					map[string]string{"18": ", boolean"}[version]+") FROM PUBLIC"))
			require.NoError(t, do("setup", outbox, sql.Publication(), "GRANT INSERT ON outbox TO app"))

			k, err := embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{"outbox.event.order": 1}})
			require.NoError(t, err)
			t.Cleanup(k.Close)
			b := &box{binary: parts.Binary(t), dir: t.TempDir(), said: map[string]string{}, keys: map[string]string{
				"postgres.url": toml(dsn("postrider")), "sink.kafka.brokers": "[" + toml(k.Brokers()[0]) + "]", "http.listen": toml(""), "log.format": toml("json"),
			}}
			config := b.with(t, nil)
			checked := b.run(t, time.Minute, nil, "check", "--config", config)
			require.NotContains(t, checked, "\nerror ", checked)
			relay := parts.StartRelay(t, parts.RelayConfig{}, "run", "--config", config)
			conn := parts.Connect(t, dsn("postgres"))
			ask := func(query string) (yes bool) {
				require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&yes))
				return yes
			}
			require.Eventually(t, func() bool { return ask(`SELECT EXISTS (SELECT FROM pg_replication_slots WHERE active)`) }, time.Minute, 20*time.Millisecond, "streaming")
			require.NoError(t, do("app", `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '1', 'e', '{}')`))
			var end string
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&end))
			require.Eventually(t, func() bool {
				return ask(`SELECT EXISTS (SELECT FROM pg_replication_slots WHERE confirmed_flush_lsn >= '` + end + `')`) // NULL while the slot is being made
			}, time.Minute, 20*time.Millisecond, "confirmed")
			// The row is behind the confirmed position, so a broker has it; and this is all that the role may do.
			for _, statement := range []string{
				"SELECT * FROM outbox", "DELETE FROM outbox", "INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('a', 'b', 'c')",
				"DROP PUBLICATION postrider", "CREATE PUBLICATION mine", "CREATE ROLE mine", "CREATE DATABASE mine", "ALTER SYSTEM SET wal_level = 'minimal'",
				"SELECT pg_ls_waldir()", "SELECT pg_read_file('PG_VERSION')", "COPY (SELECT 1) TO PROGRAM 'true'", "SELECT pg_logical_emit_message(true, 'outbox', '{}')",
			} {
				denied("postrider", statement)
			}
			denied("app", "SELECT pg_logical_emit_message(true, 'outbox', '{}')")
			denied("app", "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
			denied("setup", "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
			// What recovery and a snapshot need on top.
			require.NoError(t, do("setup", "GRANT SELECT ON outbox TO postrider"))
			require.NoError(t, do("postrider", "SELECT * FROM outbox"))
			// What check and the pages say to grant has its effect.
			require.NoError(t, do("postgres", "GRANT pg_monitor TO postrider"))
			require.NoError(t, do("postrider", "SELECT pg_ls_waldir()"))

			require.NoError(t, relay.Signal(syscall.SIGINT))
			require.Zero(t, relay.Wait(t), relay.Log.String())
			require.NotContains(t, relay.Log.String(), `"level":"error"`)
		})
	}
}
