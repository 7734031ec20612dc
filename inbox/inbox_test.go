package inbox_test

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// newDatabase is one with an inbox and a table of what handlers write.
func newDatabase(t testing.TB, version string) *parts.Database {
	t.Helper()
	db := parts.Postgres(t, version)
	script, err := sql.Inbox("public", "inbox", 8)
	require.NoError(t, err)
	db.Exec(t, script)
	db.Exec(t, "CREATE TABLE effects (id text)")
	return db
}

func newPool(t testing.TB, db *parts.Database) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), db.DSN())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func effects(t testing.TB, pool *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM effects").Scan(&n))
	return n
}

// driver does with a transaction of one type what the tests need.
type driver struct {
	begin  func() (any, error)
	exec   func(tx any, statement string) error
	commit func(tx any) error
}

func drivers(t *testing.T, db *parts.Database) map[string]driver {
	pool := newPool(t, db)
	plain := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	execPgx := func(tx any, s string) error { _, err := tx.(pgx.Tx).Exec(t.Context(), s); return err }
	commitPgx := func(tx any) error { return tx.(pgx.Tx).Commit(t.Context()) }
	return map[string]driver{
		"pgx":  {func() (any, error) { return pool.Begin(t.Context()) }, execPgx, commitPgx},
		"conn": {func() (any, error) { return db.Connect(t).Begin(t.Context()) }, execPgx, commitPgx},
		"database/sql": {func() (any, error) { return plain.BeginTx(t.Context(), nil) },
			func(tx any, s string) error { _, err := tx.(*stdsql.Tx).ExecContext(t.Context(), s); return err },
			func(tx any) error { return tx.(*stdsql.Tx).Commit() }},
	}
}

func TestOnce_MarkAndWritesAreOneTransaction(t *testing.T) {
	db := newDatabase(t, "14")
	pool := newPool(t, db)
	for name, d := range drivers(t, db) {
		t.Run(name, func(t *testing.T) {
			before := effects(t, pool)
			once := func(id string, then error) (bool, error) {
				tx, err := d.begin()
				require.NoError(t, err)
				done, err := inbox.Once(t.Context(), tx, "billing", name+id, func(context.Context) error {
					require.NoError(t, d.exec(tx, "INSERT INTO effects VALUES ('"+id+"')"))
					return then
				})
				if err != nil {
					require.Error(t, d.commit(tx), "a mark without effects could be committed")
					return done, err
				}
				return done, d.commit(tx)
			}
			failed := errors.New("failed")
			done, err := once("e1", failed)
			require.Equal(t, failed, err, "as it is")
			require.False(t, done)
			require.Equal(t, before, effects(t, pool))
			for _, want := range []bool{true, false, false} {
				done, err = once("e1", nil)
				require.NoError(t, err)
				require.Equal(t, want, done)
			}
			done, err = once("e2", nil)
			require.NoError(t, err)
			require.True(t, done)
			require.Equal(t, before+2, effects(t, pool))
		})
	}
}

// Within a transaction of the caller a nested one is rolled back alone.
func TestOnce_ANestedTransactionIsRolledBackAlone(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	outer, err := pool.Begin(t.Context())
	require.NoError(t, err)
	for _, then := range []error{errors.New("failed"), nil} {
		nested, err := outer.Begin(t.Context())
		require.NoError(t, err)
		done, err := inbox.Once(t.Context(), nested, "billing", "e1", func(ctx context.Context) error {
			_, err := nested.Exec(ctx, "INSERT INTO effects VALUES ('e1')")
			return errors.Join(err, then)
		})
		require.Equal(t, then == nil, done)
		if err == nil {
			require.NoError(t, nested.Commit(t.Context()))
		}
	}
	require.NoError(t, outer.Commit(t.Context()))
	require.Equal(t, 1, effects(t, pool))
}

func TestOnce_APanicLeavesNoMark(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.PanicsWithValue(t, "oh", func() {
		_, _ = inbox.Once(t.Context(), tx, "billing", "e1", func(context.Context) error { panic("oh") })
	})
	require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxClosed)
}

func TestOnce_RefusesWhatIsNoTransaction(t *testing.T) {
	db := newDatabase(t, "14")
	pool := newPool(t, db)
	plain := stdlib.OpenDBFromPool(pool)
	defer func() { require.NoError(t, plain.Close()) }()
	conn, err := plain.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	for _, tx := range []any{nil, pool, db.Connect(t), plain, conn, "tx"} {
		_, err := inbox.Once(t.Context(), tx, "billing", "e1", func(context.Context) error { panic("called") })
		require.ErrorContains(t, err, fmt.Sprintf("%T is no transaction: pass a pgx.Tx or a *sql.Tx", tx))
	}
}

func TestOnce_RefusesIDsThatTheTableCannotHold(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	for _, test := range []struct{ consumer, id, message string }{
		{"", "e1", "the name of a consumer is empty"},
		{"billing", "", "the id of an event is empty"},
		{strings.Repeat("x", 256), "e1", "256 bytes, and at most 255"},
		{"billing", strings.Repeat("x", 1025), "1025 bytes, and at most 1024"},
		{"billing", "e\x00", "without NUL"},
		{"billing", "\xff", "without NUL"},
	} {
		_, err := inbox.Once(t.Context(), tx, test.consumer, test.id, func(context.Context) error { panic("called") })
		require.ErrorContains(t, err, test.message)
	}
	// As long as the table holds, and whatever characters.
	for _, id := range []string{strings.Repeat("x", 1024), `e'1"; DROP TABLE inbox`, "ünï€", " "} {
		done, err := inbox.Once(t.Context(), tx, strings.Repeat("x", 255), id, func(context.Context) error { return nil })
		require.NoError(t, err)
		require.True(t, done, id)
	}
	require.NoError(t, tx.Commit(t.Context()))
}

// The second of two transactions with an event waits, and then sees a duplicate or takes the
// event over.
func TestOnce_WaitsForAnotherTransactionAtEveryIsolationLevel(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		db := newDatabase(t, version)
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
			for _, commit := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s commit=%t", version, level, commit), func(t *testing.T) {
					pool := newPool(t, db)
					id := t.Name()
					begin := func() (pgx.Tx, error) {
						tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
						if err == nil {
							_, err = tx.Exec(t.Context(), "SELECT count(*) FROM effects") // takes its snapshot
						}
						return tx, err
					}
					write := func(tx pgx.Tx) func(context.Context) error {
						return func(ctx context.Context) error {
							_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", id)
							return err
						}
					}
					first, err := begin()
					require.NoError(t, err)
					second, err := begin()
					require.NoError(t, err)
					done, err := inbox.Once(t.Context(), first, "billing", id, write(first))
					require.NoError(t, err)
					require.True(t, done)
					type result struct {
						done bool
						err  error
					}
					ended := make(chan result, 1)
					go func() {
						done, err := inbox.Once(t.Context(), second, "billing", id, write(second))
						if err == nil {
							err = second.Commit(t.Context())
						}
						ended <- result{done, err}
					}()
					parts.Await(t, "the second to wait", func() (waits bool, err error) {
						err = pool.QueryRow(t.Context(), "SELECT cardinality(pg_blocking_pids($1)) > 0", second.Conn().PgConn().PID()).Scan(&waits)
						return waits, err
					})
					if commit {
						require.NoError(t, first.Commit(t.Context()))
					} else {
						require.NoError(t, first.Rollback(t.Context()))
					}
					got := <-ended
					if commit && level != pgx.ReadCommitted {
						server := new(pgconn.PgError)
						require.ErrorAs(t, got.err, &server)
						require.Equal(t, "40001", server.Code)
					} else {
						require.NoError(t, got.err)
						require.Equal(t, !commit, got.done)
					}
					var n int
					require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM effects WHERE id = $1", id).Scan(&n))
					require.Equal(t, 1, n)
				})
			}
		}
	}
}

func TestOnce_RefusesAnEventWhoseMarkMayBeRemoved(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	once := func(event inbox.Event) (bool, error) {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		done, err := inbox.Table{}.Once(t.Context(), tx, "billing", event, func(context.Context) error { return nil })
		if err != nil {
			return done, err
		}
		return done, tx.Commit(t.Context())
	}
	done, err := once(inbox.Event{ID: "young", Time: time.Now().Add(-8 * 24 * time.Hour)})
	require.NoError(t, err)
	require.True(t, done)
	_, err = once(inbox.Event{ID: "old", Time: time.Now().Add(-17 * 24 * time.Hour)})
	require.ErrorIs(t, err, inbox.ErrOutsideWindow)
	require.ErrorContains(t, err, `mark event "old" of consumer "billing" in public.inbox: the event is older`)
	done, err = once(inbox.Event{ID: "old"})
	require.NoError(t, err)
	require.True(t, done, "of any age")
	done, err = once(inbox.Event{ID: "old", Time: time.Now().Add(-17 * 24 * time.Hour)})
	require.NoError(t, err)
	require.False(t, done, "it has a mark")
}

func TestOnce_NamesWhatIsWrongWithTheInbox(t *testing.T) {
	for _, test := range []struct{ name, change, message string }{
		{"no inbox", "DROP TABLE inbox; DROP FUNCTION inbox_mark", "run sql/inbox.sql in it"},
		{"no table", "DROP TABLE inbox", "run sql/inbox.sql in it"},
		{"another table", "DROP TABLE inbox; CREATE TABLE inbox (id text)", "this is not the table of sql/inbox.sql: rename it"},
		{"no unique key", "ALTER TABLE inbox DROP CONSTRAINT inbox_pkey", "this is not the table of sql/inbox.sql: rename it"},
		{"no partition", "DROP TABLE inbox_default; SELECT format('DROP TABLE %s', inhrelid::regclass) FROM pg_inherits WHERE inhparent = 'inbox'::regclass",
			"the default partition is missing: run sql/inbox.sql again"},
		{"a standby", "ALTER DATABASE %s SET default_transaction_read_only = on", "use the primary"},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := newDatabase(t, "14")
			change := strings.ReplaceAll(test.change, "%s SET", db.Name+" SET")
			if before, drops, found := strings.Cut(change, "SELECT "); found {
				change = before + "DO $$ DECLARE s text; BEGIN FOR s IN SELECT " + drops + " LOOP EXECUTE s; END LOOP; END $$"
			}
			db.Exec(t, change)
			tx, err := newPool(t, db).Begin(t.Context())
			require.NoError(t, err)
			_, err = inbox.Once(t.Context(), tx, "billing", "e1", func(context.Context) error { panic("called") })
			require.ErrorContains(t, err, `mark event "e1" of consumer "billing" in public.inbox: `)
			require.ErrorContains(t, err, test.message)
		})
	}
}

func TestOnce_NamesTheGrantAndIsNotMisledByOthers(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "18"}) // roles are the whole server's
	connect := func(role string) *pgx.Conn {
		return parts.Connect(t, fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, pg.Port()))
	}
	super := connect("postgres")
	script, err := sql.Inbox("my shop", "Order Inbox", 8)
	require.NoError(t, err)
	do := func(script string) {
		t.Helper()
		_, err := super.Exec(t.Context(), script)
		require.NoError(t, err)
	}
	do(`CREATE ROLE shop LOGIN; CREATE ROLE mallory LOGIN; CREATE SCHEMA "my shop"; GRANT USAGE, CREATE ON SCHEMA "my shop" TO mallory;
		GRANT CREATE ON SCHEMA public TO mallory; ` + script)
	table := inbox.Table{Schema: "my shop", Name: "Order Inbox"}
	once := func() error {
		tx, err := connect("shop").Begin(t.Context())
		require.NoError(t, err)
		_, err = table.Once(t.Context(), tx, "billing", inbox.Event{ID: "e1", Time: time.Now()}, func(context.Context) error { return nil })
		if err != nil {
			return err
		}
		return tx.Commit(t.Context())
	}
	for _, grant := range []string{`GRANT USAGE ON SCHEMA "my shop" TO shop`, `GRANT SELECT, INSERT ON "my shop"."Order Inbox" TO shop`} {
		require.ErrorContains(t, once(), "the role needs GRANT USAGE ON SCHEMA my shop and GRANT SELECT, INSERT ON my shop.Order Inbox")
		do(grant)
	}
	require.NoError(t, once())

	// A better match for careless arguments, and types of the same names, in front of those of
	// PostgreSQL.
	mallory := connect("mallory")
	for _, s := range []string{
		`CREATE DOMAIN public.text AS pg_catalog.text CHECK (false)`,
		`CREATE DOMAIN public.timestamptz AS pg_catalog.timestamptz CHECK (false)`,
		`CREATE FUNCTION "my shop"."Order Inbox_mark"(varchar, varchar, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE FUNCTION "my shop"."Order Inbox_mark"(unknown_a public.text, unknown_b public.text, unknown_c public.timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE FUNCTION public.now() RETURNS pg_catalog.timestamptz LANGUAGE sql AS $$ SELECT '2000-01-01'::pg_catalog.timestamptz $$`,
	} {
		_, err := mallory.Exec(t.Context(), s)
		require.NoError(t, err, s)
	}
	do(`ALTER ROLE shop SET search_path = "my shop", public, pg_catalog`)
	called := false
	tx, err := connect("shop").Begin(t.Context())
	require.NoError(t, err)
	done, err := table.Once(t.Context(), tx, "billing", inbox.Event{ID: "e1", Time: time.Now()}, func(context.Context) error { called = true; return nil })
	require.NoError(t, err)
	require.False(t, done)
	require.False(t, called, "the duplicate is one still")
}
