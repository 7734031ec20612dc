package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/test/parts"
)

// markerPrefix is of the logical messages that say how far the statements of a case have been streamed.
const markerPrefix = "conformance"

// database is one with a stream of everything that is written to it. It serves one case after the other: what a case leaves is wiped
// away, since a database, a slot and their connections take longer to make than most cases take to run.
type database struct {
	dsn   string
	slot  string
	conn  *pgx.Conn         // the first session of a case
	more  map[int]*pgx.Conn // further ones, by their number
	side  *pgx.Conn         // for questions about the catalogue: conn may be in a transaction
	shape string            // of the tables that are there; empty: not known

	end     context.CancelFunc
	ended   sync.WaitGroup
	markers int
	reached chan string // markers, as they come

	mu       sync.Mutex
	consumer func(*replication.Event) // of the case under way
}

// newDatabase makes one that is dropped at the end of the test.
func newDatabase(t *testing.T) *database {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	made := parts.Postgres(t, "17")
	// What the tables of the recordings take from contrib.
	made.Exec(t, "CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE EXTENSION citext")
	db := &database{dsn: made.DSN(), slot: made.Name, more: map[int]*pgx.Conn{}, reached: make(chan string, 1)}
	db.consume(nil)
	var err error
	db.conn, err = pgx.Connect(ctx, db.dsn)
	require.NoError(t, err)
	db.side, err = pgx.Connect(ctx, db.dsn)
	require.NoError(t, err)
	db.stream(ctx, t)
	t.Cleanup(db.close)
	return db
}

func (db *database) close() {
	ctx, cancel := context.WithTimeout(context.Background(), parts.Patience)
	defer cancel()
	db.end()
	db.ended.Wait()
	db.closeSessions(ctx)
	_ = db.conn.Close(ctx)
	_ = db.side.Close(ctx)
}

func (db *database) config() postgres.Config {
	c := postgres.DefaultConfig()
	c.URL = secret.Of(db.dsn)
	return c
}

// stream starts to replicate from a slot that ends with the connection.
func (db *database) stream(ctx context.Context, t *testing.T) {
	t.Helper()
	pg, err := postgres.ReplicationConfig(db.config())
	require.NoError(t, err)
	cfg := replication.DefaultConfig()
	cfg.Publication, cfg.Messages = "dbz_publication", []string{markerPrefix} // any makes the server send all
	s, err := replication.OpenTemporary(ctx, pg, cfg, db.slot, zerolog.Nop())
	require.NoError(t, err)
	running, end := context.WithCancel(context.Background())
	db.end = end
	batches := make(chan *replication.Batch, 1)
	db.ended.Go(func() {
		err := s.Run(running, context.Background(), batches, s.ReceivedLSN)
		if running.Err() == nil {
			db.reached <- fmt.Sprintf("the end of the stream: %v", err)
		}
		_ = s.Finish(running, nil)
	})
	db.ended.Go(func() {
		for b := range batches {
			for i := range b.Events {
				db.event(&b.Events[i])
			}
			b.Release()
		}
	})
}

func (db *database) event(e *replication.Event) {
	if e.Kind == replication.Message && e.Prefix == markerPrefix {
		db.reached <- string(e.Content)
		return
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.consumer != nil {
		db.consumer(e)
	}
}

// consume sets who gets the events from now on; nil: nobody.
func (db *database) consume(f func(*replication.Event)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.consumer = f
}

// wipe drops all that belongs to no extension. The publication goes with it: pgoutput misses it only if rows are written before there is
// one again.
const wipe = `
DO $$ DECLARE command text; BEGIN
	FOREACH command IN ARRAY ARRAY(
		SELECT format('PUBLICATION %I', pubname) FROM pg_publication
		UNION ALL SELECT format('SCHEMA %I CASCADE', nspname) FROM pg_namespace
			WHERE nspname NOT LIKE 'pg\_%' AND nspname NOT IN ('information_schema', 'public')
		UNION ALL SELECT format('%s IF EXISTS %s CASCADE', CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END,
			oid::regclass) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S', 'v', 'c')
			AND (relkind <> 'S' OR NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = pg_class.oid AND d.deptype IN ('a', 'i')))
		UNION ALL SELECT format('TYPE IF EXISTS %s CASCADE', oid::regtype) FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype IN ('e', 'd', 'r')
		UNION ALL SELECT format('ROUTINE IF EXISTS %s CASCADE', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
			AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = pg_proc.oid AND d.deptype IN ('e', 'i'))
	) LOOP
		EXECUTE 'DROP ' || command;
	END LOOP;
END $$`

// truncate is enough where the next case has the same tables.
const truncate = `
DO $$ DECLARE tables text; sequence regclass; BEGIN
	SELECT string_agg(c.oid::regclass::text, ', ') INTO tables FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema';
	IF tables IS NOT NULL THEN EXECUTE 'TRUNCATE ' || tables || ' RESTART IDENTITY CASCADE'; END IF;
	FOR sequence IN SELECT oid FROM pg_class WHERE relkind = 'S' LOOP EXECUTE format('ALTER SEQUENCE %s RESTART', sequence); END LOOP;
END $$`

// prepare makes the tables and the publication of a case, empty.
func (db *database) prepare(ctx context.Context, g *golden) error {
	db.consume(nil)
	db.closeSessions(ctx)
	if db.conn.PgConn().TxStatus() != 'I' {
		if err := exec(ctx, db.conn, "ROLLBACK"); err != nil {
			return err
		}
	}
	shape := g.shape()
	if db.shape == shape {
		return exec(ctx, db.conn, truncate)
	}
	db.shape = ""
	for _, sql := range append([]string{"DISCARD ALL", wipe}, append(g.DDL, g.publication()...)...) {
		if err := exec(ctx, db.conn, sql); err != nil {
			return err
		}
	}
	db.shape = shape
	return nil
}

// spoilt tells that the tables are not what they were.
func (db *database) spoilt() { db.shape = "" }

func (db *database) closeSessions(ctx context.Context) {
	for _, c := range db.more {
		_ = c.Close(ctx)
	}
	clear(db.more)
}

func exec(ctx context.Context, conn *pgx.Conn, sql string) error {
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// execute runs the statements of a case. pause is called where the recording waited a while.
func (db *database) execute(ctx context.Context, statements []statement, pause func() error) error {
	for _, s := range statements {
		conn := db.conn
		if s.Session > 1 {
			if conn = db.more[s.Session]; conn == nil {
				var err error
				if conn, err = pgx.Connect(ctx, db.dsn); err != nil {
					return err
				}
				db.more[s.Session] = conn
			}
		}
		var err error
		switch {
		case s.Copy != "":
			_, err = conn.PgConn().CopyFrom(ctx, strings.NewReader(s.Data), s.Copy)
		case s.SleepMS > 0:
			err = pause()
		case s.SQL != "":
			err = exec(ctx, conn, s.SQL)
		default:
			err = errors.New("a statement of an unknown kind")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// catchUp waits until everything that was committed before has been through the stream and the case's consumer.
func (db *database) catchUp(ctx context.Context) error {
	db.markers++
	marker := fmt.Sprint(db.markers)
	conn := db.conn
	if conn.PgConn().TxStatus() != 'I' { // a case's own transaction is open
		var err error
		if conn, err = pgx.Connect(ctx, db.dsn); err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
	}
	if err := exec(ctx, conn, fmt.Sprintf("SELECT pg_logical_emit_message(true, '%s', '%s')", markerPrefix, marker)); err != nil {
		return err
	}
	for {
		select {
		case got := <-db.reached:
			if got == marker {
				return nil
			}
			if strings.HasPrefix(got, "the end") {
				return errors.New(got)
			}
		case <-ctx.Done():
			return fmt.Errorf("the stream did not bring what was written: %w", ctx.Err())
		}
	}
}
