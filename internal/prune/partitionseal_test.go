package prune

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

var versions = []string{"14", "15", "16", "17", "18"}

// TestPartition_SealKeepsRowsFromADetachmentThatIsPending: a transaction whose snapshot is older than the
// detachment inserts through the parent while it is pending. Without the seal the row is committed and decoded by
// no publication; with it the insert fails.
func TestPartition_SealKeepsRowsFromADetachmentThatIsPending(t *testing.T) {
	for _, version := range versions {
		for _, sealed := range []bool{false, true} {
			t.Run(map[bool]string{false: version + "/without", true: version + "/with"}[sealed], func(t *testing.T) {
				t.Parallel()
				r := newPartitionRig(t, version, false)
				if sealed {
					run, _ := r.run(t)
					require.NoError(t, run.seal(t.Context(), r.partition(t, "outbox_1")))
				}
				writer, detacher := connect(t, r.cfg), connect(t, r.cfg)
				ctx := t.Context()
				_, err := writer.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ")
				require.NoError(t, err)
				_, err = writer.Exec(ctx, "SELECT count(*) FROM outbox")
				require.NoError(t, err)
				done := make(chan error, 1)
				go func() { // ends with the writer's transaction
					_, err := detacher.Exec(ctx, "ALTER TABLE outbox DETACH PARTITION outbox_1 CONCURRENTLY")
					done <- err
				}()
				parts.Await(t, "a pending detachment", func() (pending bool, err error) {
					err = r.conn.QueryRow(ctx, "SELECT bool_or(inhdetachpending) FROM pg_inherits WHERE inhparent = 'outbox'::regclass").Scan(&pending)
					return pending, err
				})
				_, err = writer.Exec(ctx, "INSERT INTO outbox (created_at, payload) VALUES ('2026-01-01 12:00+00', '\"late\"')")
				if sealed {
					require.Equal(t, "23514", postgres.SQLState(err), "%v", err)
				} else {
					require.NoError(t, err)
				}
				_, err = writer.Exec(ctx, "COMMIT")
				require.NoError(t, err)
				require.NoError(t, <-done)

				_, err = r.conn.Exec(ctx, "INSERT INTO outbox (created_at, payload) VALUES ('2026-01-02 12:00+00', '\"published\"')")
				require.NoError(t, err)
				inTable := count(t, r.conn, "SELECT count(*) FROM outbox_1 WHERE payload = '\"late\"'")
				require.Equal(t, map[bool]int{false: 1, true: 0}[sealed], inTable)
				published := query[string](t, r.conn, "SELECT id::text FROM outbox WHERE payload = '\"published\"'")
				parts.Await(t, "the last row", func() (bool, error) { return r.relay.rows()[published], nil })
				require.Len(t, r.relay.rows(), 1, "the other row is lost, or does not exist")
			})
		}
	}
}

// The planner, and the constraint that DETACH CONCURRENTLY adds, must not take the seal for true of the rows that are there.
func TestPartition_SealHidesNoRow(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, version, false)
			r.insert(t, "2026-01-01 12:00", 10)
			run, _ := r.run(t)
			require.NoError(t, run.seal(t.Context(), r.partition(t, "outbox_1")))
			ctx := t.Context()
			for _, exclusion := range []string{"partition", "on"} {
				_, err := r.conn.Exec(ctx, "SET constraint_exclusion = "+exclusion)
				require.NoError(t, err)
				require.Equal(t, 10, count(t, r.conn, "SELECT count(*) FROM outbox"))
				require.Equal(t, 10, count(t, r.conn, "SELECT count(*) FROM outbox_1 WHERE created_at < '2026-01-02'"))
			}
			for _, write := range []string{
				"INSERT INTO outbox (created_at, payload) VALUES ('2026-01-01 12:00+00', '{}')",
				"INSERT INTO outbox_1 (created_at, payload) VALUES ('2026-01-01 12:00+00', '{}')",
				"UPDATE outbox SET payload = '{}'",
			} {
				_, err := r.conn.Exec(ctx, write)
				require.Equal(t, "23514", postgres.SQLState(err), "%s: %v", write, err)
			}
			_, err := r.conn.Exec(ctx, "ALTER TABLE outbox DETACH PARTITION outbox_1 CONCURRENTLY")
			require.NoError(t, err)
			require.Equal(t, 10, count(t, r.conn, "SELECT count(*) FROM outbox_1 WHERE created_at < '2026-01-02'"))
			_, err = r.conn.Exec(ctx, "INSERT INTO outbox_1 (created_at, payload) VALUES ('2026-01-01 12:00+00', '{}')")
			require.Equal(t, "23514", postgres.SQLState(err))
			mark := query[string](t, r.conn, "SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conname = 'postrider_pruned'")
			require.Contains(t, mark, `"proven":false`)
		})
	}
}

func TestPartition_SealWaitsForOpenWritersAtMostLockTimeout(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	writer := connect(t, r.cfg)
	_, err := writer.Exec(t.Context(), "BEGIN; INSERT INTO outbox (created_at, payload) VALUES ('2026-01-01 12:00+00', '{}')")
	require.NoError(t, err)
	run, _ := r.run(t)
	require.Equal(t, "55P03", postgres.SQLState(run.seal(t.Context(), r.partition(t, "outbox_1"))))
	_, err = writer.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.NoError(t, run.seal(t.Context(), r.partition(t, "outbox_1")))
	require.NoError(t, run.unseal(t.Context(), r.partition(t, "outbox_1")))
	r.insert(t, "2026-01-01 12:00", 1)
}

func connect(t *testing.T, cfg postgres.Config) *pgx.Conn {
	t.Helper()
	return parts.Connect(t, dsn(t, cfg))
}

func dsn(t *testing.T, cfg postgres.Config) string {
	t.Helper()
	url, err := cfg.URL.Reveal()
	require.NoError(t, err)
	return url
}

func count(t *testing.T, conn *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	return query[int](t, conn, sql, args...)
}

func query[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (value T) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&value), sql)
	return value
}
