package examples

import (
	"context"
	"database/sql"
	"os"
	"strconv"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/postrider/postrider/outbox"
)

// database is a database with the table orders of TestMain and the outbox table of sql/outbox.sql. test/examples provides it, and reads the events from Kafka.
func database(t *testing.T) string {
	t.Helper()
	dsn := os.Getenv("EXAMPLES_POSTGRES")
	require.NotEmpty(t, dsn, "EXAMPLES_POSTGRES: run go test ./test/examples in the repository")
	return dsn
}

func open(t *testing.T, driver string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, database(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func openGORM(t *testing.T, cfg *gorm.Config) *gorm.DB {
	t.Helper()
	cfg.Logger = logger.Discard
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: open(t, "pgx")}), cfg)
	require.NoError(t, err)
	return db
}

// Each way places an order of its own number. The number is unique at the commit only: placing it again writes an event and fails, and the event must
// not be there.
func TestExamples_WriteTheOrderAndItsEventOrNeither(t *testing.T) {
	for i, way := range []struct {
		name  string
		place func(*testing.T, Order) error
	}{
		{"pgx", func(t *testing.T, o Order) error { return PlaceWithPgx(t.Context(), connect(t), o) }},
		{"pgx batch", func(t *testing.T, o Order) error { return PlaceWithPgxBatch(t.Context(), connect(t), o) }},
		{"database/sql, pgx", func(t *testing.T, o Order) error { return PlaceWithDatabaseSQL(t.Context(), open(t, "pgx"), o) }},
		{"database/sql, lib/pq", func(t *testing.T, o Order) error { return PlaceWithDatabaseSQL(t.Context(), open(t, "postgres"), o) }},
		{"sqlx", func(t *testing.T, o Order) error {
			return PlaceWithSqlx(t.Context(), sqlx.NewDb(open(t, "postgres"), "postgres"), o)
		}},
		{"GORM", func(t *testing.T, o Order) error { return PlaceWithGORM(t.Context(), openGORM(t, &gorm.Config{}), o) }},
		{"GORM, prepared", func(t *testing.T, o Order) error {
			return PlaceWithGORM(t.Context(), openGORM(t, &gorm.Config{PrepareStmt: true}), o)
		}},
		{"Bun", func(t *testing.T, o Order) error {
			return PlaceWithBun(t.Context(), bun.NewDB(open(t, "pgx"), pgdialect.New()), o)
		}},
		{"ent", func(t *testing.T, o Order) error {
			return PlaceWithEnt(t.Context(), entsql.OpenDB(dialect.Postgres, open(t, "pgx")), o)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			o := Order{ID: int64(i + 1), Total: 1250}
			require.NoError(t, way.place(t, o))
			require.ErrorContains(t, way.place(t, o), "orders_id_key")
			var orders, events int
			require.NoError(t, connect(t).QueryRow(t.Context(), `SELECT (SELECT count(*) FROM orders WHERE id = $1),
				(SELECT count(*) FROM outbox WHERE aggregate_id = $2)`, o.ID, strconv.FormatInt(o.ID, 10)).Scan(&orders, &events))
			require.Equal(t, 1, orders)
			require.Equal(t, 1, events)
		})
	}
}

// What cannot work names what does.
func TestExamples_TheWrongHandleIsRefused(t *testing.T) {
	event := Order{ID: 100}.created()
	db := openGORM(t, &gorm.Config{})
	require.ErrorContains(t, outbox.Emit(t.Context(), db, event), "GORM: tx.Statement.ConnPool")
	require.ErrorContains(t, outbox.Emit(t.Context(), db.Statement.ConnPool, event), "is a pool of connections", "outside of a transaction")
	ofBun := bun.NewDB(open(t, "pgx"), pgdialect.New())
	err := ofBun.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error { return outbox.Emit(ctx, tx, event) })
	require.ErrorContains(t, err, "pass its *sql.Tx (Bun: tx.Tx)")
	require.ErrorContains(t, outbox.Emit(t.Context(), ofBun, event), "is a pool of connections")
	require.ErrorContains(t, outbox.Emit(t.Context(), sqlx.NewDb(open(t, "pgx"), "pgx"), event), "is a pool of connections")
	require.ErrorContains(t, outbox.Emit(t.Context(), openGORM(t, &gorm.Config{PrepareStmt: true}).Statement.ConnPool, event), "is a pool of connections")

	pool, err := pgxpool.New(t.Context(), database(t))
	require.NoError(t, err)
	defer pool.Close()
	require.ErrorContains(t, outbox.Emit(t.Context(), pool, event), "is a pool of connections")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.ErrorContains(t, outbox.Emit(t.Context(), conn, event), "is in no transaction")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, outbox.Emit(t.Context(), tx, event))
	require.NoError(t, tx.Rollback(t.Context()))
}
