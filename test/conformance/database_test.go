package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"postrider/config"
	"postrider/postgres"
	"postrider/replication"
	"postrider/router"
	"postrider/secret"
	"postrider/slot"
	"postrider/test/parts"
)

// patience bounds every wait for something that takes milliseconds.
const patience = 60 * time.Second

// markerPrefix is of the logical messages that say how far the statements of a case have been streamed.
const markerPrefix = "conformance"

// databases are open ones, for cases of the same shape to use one after the other.
type databases struct {
	server   string // URL of a superuser
	template sync.Once

	mu    sync.Mutex
	freed *sync.Cond     // of mu
	open  map[string]int // databases, by shape
	cases map[string]int // that there are, by shape
	made  int
	idle  []*database // longest unused first
}

// A database takes longer to make than a few cases take to run one after the other.
const casesPerDatabase = 40

func newDatabases(server string, cases []*golden) *databases {
	d := &databases{server: server, open: map[string]int{}, cases: map[string]int{}}
	d.freed = sync.NewCond(&d.mu)
	for _, g := range cases {
		d.cases[g.shape()]++
	}
	return d
}

// idleDatabases bounds how many slots and connections wait for a next case.
const idleDatabases = 12

// database is one with the tables of a shape, and a stream of what is written to it.
type database struct {
	shape   string
	name    string
	dsn     string
	conn    *pgx.Conn
	side    *pgx.Conn         // for questions about the catalogue while conn may be in a transaction
	asking  sync.Mutex        // guards side
	more    map[int]*pgx.Conn // further sessions, by their number
	events  chan *replication.Batch
	end     context.CancelFunc
	ended   sync.WaitGroup
	markers int

	mu       sync.Mutex
	consumer func(*replication.Event) // of the case under way
	reached  chan string              // markers, as they come
}

// take gives a case a database for itself.
func (d *databases) take(t *testing.T, g *golden) *database {
	t.Helper()
	d.mu.Lock()
	for {
		for i, db := range d.idle {
			if db.shape == g.shape() {
				d.idle = append(d.idle[:i], d.idle[i+1:]...)
				d.mu.Unlock()
				return db
			}
		}
		if d.open[g.shape()] <= d.cases[g.shape()]/casesPerDatabase {
			break
		}
		d.freed.Wait()
	}
	d.open[g.shape()]++
	d.made++
	name := parts.Unique(fmt.Sprintf("conformance_%d", d.made))
	d.mu.Unlock()
	return d.make(t, g, name)
}

// give takes a database back, for the next case if the catalogue is as it was.
func (d *databases) give(db *database, reusable bool) {
	d.mu.Lock()
	remove := db
	if reusable {
		d.idle = append(d.idle, db)
		remove = nil
		if len(d.idle) > idleDatabases {
			remove, d.idle = d.idle[0], d.idle[1:]
		}
	}
	if remove != nil {
		d.open[remove.shape]--
	}
	d.freed.Broadcast()
	d.mu.Unlock()
	if remove != nil {
		d.drop(remove)
	}
}

func (d *databases) close() {
	for _, db := range d.idle {
		d.drop(db)
	}
	d.idle = nil
}

func (d *databases) make(t *testing.T, g *golden, name string) *database {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d.template.Do(func() {
		const template = "conformance_template"
		require.NoError(t, execOn(ctx, d.server, "DROP DATABASE IF EXISTS "+template))
		require.NoError(t, execOn(ctx, d.server, "CREATE DATABASE "+template))
		server, err := pgx.ParseConfig(d.server)
		require.NoError(t, err)
		// What the tables of the recordings take from contrib.
		require.NoError(t, execOn(ctx, at(server, template), "CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE EXTENSION citext"))
	})
	require.NoError(t, execOn(ctx, d.server, "CREATE DATABASE "+name+" TEMPLATE conformance_template"))
	db := &database{shape: g.shape(), name: name, more: map[int]*pgx.Conn{}, reached: make(chan string, 1), consumer: func(*replication.Event) {}}
	pc, err := pgx.ParseConfig(d.server)
	require.NoError(t, err)
	db.dsn = at(pc, name)
	db.conn, err = pgx.Connect(ctx, db.dsn)
	require.NoError(t, err)
	db.side, err = pgx.Connect(ctx, db.dsn)
	require.NoError(t, err)
	for _, sql := range append(append([]string{}, g.DDL...), g.publication()...) {
		_, err := db.conn.PgConn().Exec(ctx, sql).ReadAll()
		require.NoError(t, err, sql)
	}
	db.stream(t)
	return db
}

// at is the DSN of a database of the server.
func at(server *pgx.ConnConfig, database string) string {
	return fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s sslmode=disable", server.Host, server.Port, server.User, server.Password, database)
}

// stream starts to replicate from a slot that ends with the connection.
func (db *database) stream(t *testing.T) {
	t.Helper()
	pg, err := postgres.ReplicationConfig(db.config())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := replication.DefaultConfig()
	cfg.Publication, cfg.Messages = "dbz_publication", []string{markerPrefix}
	s, err := replication.OpenTemporary(ctx, pg, cfg, db.name, zerolog.Nop())
	require.NoError(t, err)
	db.events, db.end = make(chan *replication.Batch, 1), cancel
	db.ended.Go(func() {
		err := s.Run(ctx, context.Background(), db.events, s.SeedLSN)
		if ctx.Err() == nil {
			db.reached <- fmt.Sprintf("the stream ended: %v", err)
		}
		_ = s.Finish(ctx, nil)
	})
	db.ended.Go(func() {
		for b := range db.events {
			db.mu.Lock()
			for i := range b.Events {
				db.event(&b.Events[i])
			}
			db.mu.Unlock()
			b.Release()
		}
	})
}

func (db *database) event(e *replication.Event) {
	if e.Kind == replication.Message && e.Prefix == markerPrefix {
		db.reached <- string(e.Content)
		return
	}
	db.consumer(e)
}

func (db *database) config() postgres.Config {
	c := postgres.DefaultConfig()
	c.URL = secret.Of(db.dsn)
	return c
}

func (d *databases) drop(db *database) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db.end()
	db.ended.Wait()
	for _, c := range db.more {
		_ = c.Close(ctx)
	}
	_ = db.conn.Close(ctx)
	_ = db.side.Close(ctx)
	_ = execOn(ctx, d.server, "DROP DATABASE IF EXISTS "+db.name+" WITH (FORCE)") // what stays ends with the server
}

func execOn(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

const emptyTables = `
DO $$ DECLARE tables text; sequence regclass; BEGIN
	SELECT string_agg(c.oid::regclass::text, ', ') INTO tables FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema';
	IF tables IS NOT NULL THEN EXECUTE 'TRUNCATE ' || tables || ' RESTART IDENTITY CASCADE'; END IF;
	FOR sequence IN SELECT oid FROM pg_class WHERE relkind = 'S' LOOP EXECUTE format('ALTER SEQUENCE %s RESTART', sequence); END LOOP;
END $$`

// empty makes the tables as they were.
func (db *database) empty(t *testing.T) {
	t.Helper()
	db.exec(t, db.conn, emptyTables)
}

// execute runs the statements of a case.
func (db *database) execute(t *testing.T, statements []statement) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range statements {
		conn := db.conn
		if s.Session > 1 {
			if conn = db.more[s.Session]; conn == nil {
				var err error
				conn, err = pgx.Connect(ctx, db.dsn)
				require.NoError(t, err)
				db.more[s.Session] = conn
			}
		}
		switch {
		case s.Copy != "":
			_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader(s.Data), s.Copy)
			require.NoError(t, err, s.Copy)
		case s.SleepMS > 0:
			db.catchUp(t) // the pause let the connector do what it had to
		default:
			db.exec(t, conn, s.SQL)
		}
	}
}

func (db *database) exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	require.NoError(t, err, sql)
}

// catchUp waits until everything that was committed before has been through the stream and the case's consumer.
func (db *database) catchUp(t *testing.T) {
	t.Helper()
	db.markers++
	want := fmt.Sprint(db.markers)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, db.ask(func(ctx context.Context, conn *pgx.Conn) error { // a transaction of the case may be open
		_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(true, $1, $2)", markerPrefix, want)
		return err
	}))
	select {
	case got := <-db.reached:
		require.Equal(t, want, got)
	case <-ctx.Done():
		require.Fail(t, "the stream did not bring what was written")
	}
}

// consume sets who gets the events from now on.
func (db *database) consume(f func(*replication.Event)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.consumer = f
}

// newRouter makes the router as run does, after the same look at the publication and the tables.
func (db *database) newRouter(cfg config.Config) (*router.Router, *slot.Publication, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	publication, err := slot.VerifyPublication(ctx, db.conn, cfg.Replication.Publication, cfg.Replication.Tables)
	if err != nil {
		return nil, nil, err
	}
	oids, err := slot.OIDs(ctx, db.conn, cfg.Replication.Tables)
	if err != nil {
		return nil, nil, err
	}
	r, err := router.New(cfg.Router, cfg.Format, router.Options{
		Tables: cfg.Replication.Tables, OIDs: oids, MessagePrefixes: cfg.Replication.Messages, Describe: db.describe,
		Home: func(rel *replication.Relation) (table string, err error) {
			err = db.ask(func(ctx context.Context, conn *pgx.Conn) error {
				table, err = slot.Home(ctx, conn, publication.Tables, rel)
				return err
			})
			return table, err
		},
	})
	if err != nil {
		return nil, nil, err
	}
	for _, table := range publication.Tables {
		rel, err := table.Relation(ctx, db.conn)
		if err != nil {
			return nil, nil, err
		}
		// Where messages carry the events, their columns are what the options name, and a table may have none of them.
		if err := r.Check(rel); err != nil && len(cfg.Replication.Messages) == 0 {
			return nil, nil, err
		}
	}
	return r, publication, nil
}

func (db *database) describe(oid uint32) (table *router.Table, err error) {
	err = db.ask(func(ctx context.Context, conn *pgx.Conn) error {
		var document []byte
		if err := conn.QueryRow(ctx, router.DescribeSQL, oid).Scan(&document); err != nil {
			return err
		}
		table, err = router.ParseTable(document)
		return err
	})
	return table, err
}

func (db *database) ask(question func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db.asking.Lock()
	defer db.asking.Unlock()
	return question(ctx, db.side)
}

// rows reads what is in the tables, as a snapshot does.
func (db *database) rows(t *testing.T, cfg config.Config, publication *slot.Publication, each func(*replication.Event)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := postgres.ConnectRows(ctx, db.config())
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	for _, table := range publication.Tables {
		_, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		require.NoError(t, err)
		copied, err := slot.DescribeCopied(ctx, conn, table, slot.Roles{ID: cfg.Router[0].FieldID})
		require.NoError(t, err)
		rows, err := copied.Rows(ctx, conn, nil)
		require.NoError(t, err)
		for {
			row, err := rows.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			each(&replication.Event{Kind: replication.Insert, Relation: copied.Relation, Values: row.Values, Time: time.Now()})
		}
		require.NoError(t, rows.Close(ctx))
		_, err = conn.Exec(ctx, "COMMIT")
		require.NoError(t, err)
	}
}
