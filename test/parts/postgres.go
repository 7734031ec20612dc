package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
)

// startTimeout bounds the start of a server, a first download of its binaries included.
const startTimeout = 5 * time.Minute

// AnyVersion of PostgreSQL will do: the endpoint in the environment whatever it is, else the
// default.
const AnyVersion = ""

// Database is a test's own database on a server that it shares with other tests.
type Database struct {
	// Name of the database.
	Name string
	dsn  string
}

// Postgres gives the test a database of its own on a shared server of the given major version,
// "14" to "18", or AnyVersion. The database and its slots are dropped at the end of the test.
// Settings of the server and its sessions must be left alone; to change them, use an
// exclusive server.
func Postgres(t testing.TB, version string) *Database {
	t.Helper()
	dsn, err := sharedServer(version)
	if err != nil {
		Lacking(t, "postgres", err.Error())
	}
	return NewDatabase(t, dsn)
}

// NewDatabase makes a database for the test on the server of the superuser's dsn, and drops it
// with its slots at the end of the test, unless the server has ended by then.
func NewDatabase(t testing.TB, dsn string) *Database {
	t.Helper()
	db := &Database{Name: Unique("test")}
	(&Database{dsn: dsn}).Exec(t, "CREATE DATABASE "+db.Name)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Path = "/" + db.Name
	db.dsn = u.String()
	t.Cleanup(func() { dropDatabase(t, dsn, db.Name) })
	return db
}

func dropDatabase(t testing.TB, dsn, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Logf("database %s was not dropped: %v", name, err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	// A walsender may take a moment to notice the end of its client, and has its slot until
	// then.
	_, err = conn.Exec(ctx, `
		DO $$
		DECLARE name name;
		BEGIN
			PERFORM pg_terminate_backend(pid, 50000) FROM pg_stat_activity
				WHERE datname = '`+name+`' AND pid <> pg_backend_pid();
			FOR name IN SELECT slot_name FROM pg_replication_slots WHERE database = '`+name+`' LOOP
				PERFORM pg_drop_replication_slot(name);
			END LOOP;
		END $$`)
	require.NoError(t, err, "drop the slots of the test's database")
	_, err = conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	require.NoError(t, err, "drop the test's database")
}

// ExclusivePostgres starts a server for this test alone, which it may stop, kill, pause and
// configure. It is always a plain process, since those need its process id. It ends with the test.
func ExclusivePostgres(t testing.TB, cfg embedded.PostgresConfig) *embedded.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	pg, err := embedded.StartPostgres(ctx, cfg)
	if err != nil {
		Lacking(t, "postgres", err.Error())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the PostgreSQL log:\n%s", lastPart(pg.Output(), 4000))
		}
		require.NoError(t, pg.Close())
	})
	return pg
}

// DSN is the URL of the database, as a superuser.
func (d *Database) DSN() string { return d.dsn }

// Connect opens a connection that is closed at the end of the test.
func (d *Database) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	return Connect(t, d.dsn)
}

// Exec runs statements without arguments, one or more, on a connection of its own.
func (d *Database) Exec(t testing.TB, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.PgConn().Exec(t.Context(), sql).ReadAll()
	require.NoError(t, err)
}

// Connect opens a connection to any server; it is closed at the end of the test.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// Busy runs begin, which begins a transaction with an xid, and leaves it in the middle of a
// statement, where it looks like one that is committing, until end commits it or the test ends.
func Busy(t testing.TB, dsn, begin string) (pid uint32, end func()) {
	t.Helper()
	ctx := t.Context()
	gate, conn := Connect(t, dsn), Connect(t, dsn)
	pid = conn.PgConn().PID()
	_, err := gate.Exec(ctx, `SELECT pg_advisory_lock($1)`, pid)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, begin)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { // ends with end, or with the test
		_, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, pid)
		done <- err
		close(done)
	}()
	t.Cleanup(func() { t.Log(<-done) }) // before the connection is closed
	Await(t, "the advisory lock", func() (waits bool, err error) {
		err = gate.QueryRow(ctx, `SELECT wait_event IS NOT DISTINCT FROM 'advisory'
			FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&waits)
		return waits, err
	})
	return pid, func() {
		t.Helper()
		_, err := gate.Exec(ctx, `SELECT pg_advisory_unlock($1)`, pid)
		require.NoError(t, err)
		require.NoError(t, <-done)
		_, err = conn.Exec(ctx, `COMMIT`)
		require.NoError(t, err)
	}
}

// Unique returns a name for a slot, publication, table or topic that is not in use. Slots
// belong to the whole server, so a fixed name would meet that of another test.
func Unique(prefix string) string {
	return fmt.Sprintf("%s_%08x", prefix, rand.Uint32())
}

// sharedServer returns the URL of a superuser.
func sharedServer(version string) (dsn string, err error) {
	if version == AnyVersion && os.Getenv("POSTRIDER_TEST_POSTGRES") == "" && !oneImage() {
		// The server of the default version also serves tests that take any.
		if dsn, err := sharedServer(embedded.DefaultVersion); err == nil {
			return dsn, nil
		}
	}
	run.mu.Lock()
	start := run.postgres[version]
	if start == nil {
		start = sync.OnceValues(func() (string, error) { return startServer(version) })
		run.postgres[version] = start
	}
	run.mu.Unlock()
	return start()
}

// sharedSettings of a server that all tests of a package use, several at once.
var sharedSettings = map[string]string{"max_connections": "300", "max_replication_slots": "60",
	"max_wal_senders": "60"}

// startServer tries the sources in order. Their errors are returned only if all fail.
func startServer(version string) (dsn string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if dsn, err = environmentServer(ctx, version); dsn != "" || err != nil {
		return dsn, err
	}
	dsn, dockerErr := dockerServer(ctx, version)
	if dockerErr == nil {
		return dsn, nil
	}
	dockerFailed("PostgreSQL "+version, dockerErr)
	pg, err := embedded.StartPostgres(ctx,
		embedded.PostgresConfig{Version: version, Params: sharedSettings})
	if err != nil {
		return "", errors.Join(dockerErr, err)
	}
	AtEnd(pg.Close)
	return pg.DSN(), nil
}

// environmentServer returns "" when the environment names no server of this version. One that is
// named and does not answer is an error: the tests are meant to run there.
func environmentServer(ctx context.Context, version string) (string, error) {
	dsn := os.Getenv("POSTRIDER_TEST_POSTGRES")
	if dsn == "" {
		return "", nil
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", fmt.Errorf("connect to POSTRIDER_TEST_POSTGRES: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var walLevel string
	if err := conn.QueryRow(ctx, "SHOW wal_level").Scan(&walLevel); err != nil {
		return "", fmt.Errorf("read wal_level of POSTRIDER_TEST_POSTGRES: %w", err)
	}
	if walLevel != "logical" {
		return "", fmt.Errorf("POSTRIDER_TEST_POSTGRES has wal_level=%s, and the tests need "+
			"logical", walLevel)
	}
	if version != AnyVersion && version != majorVersion(conn) {
		return "", nil
	}
	return dsn, nil
}

func majorVersion(conn *pgx.Conn) string {
	major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
	return major
}

// imageVersion is replaced by the major version in the name of an image.
const imageVersion = "VERSION"

// oneImage reports whether the environment names an image of one version, which will do for tests
// that take any.
func oneImage() bool {
	image := os.Getenv("POSTRIDER_TEST_POSTGRES_IMAGE")
	return image != "" && !strings.Contains(image, imageVersion)
}

// dockerServer runs the official image, or the one that POSTRIDER_TEST_POSTGRES_IMAGE names, in
// which VERSION stands for the major version. It has to understand the official image's
// environment. An image without VERSION in its name serves only tests that take the version that
// it has.
func dockerServer(ctx context.Context, version string) (dsn string, err error) {
	image := cmp.Or(os.Getenv("POSTRIDER_TEST_POSTGRES_IMAGE"), "postgres:"+imageVersion)
	image = strings.ReplaceAll(image, imageVersion, cmp.Or(version, embedded.DefaultVersion))
	command := []string{"postgres", "-c", "wal_level=logical", "-c", "fsync=off"}
	for name, value := range sharedSettings {
		command = append(command, "-c", name+"="+value)
	}
	resource, err := runContainer(image, "5432/tcp", "0",
		[]string{"POSTGRES_HOST_AUTH_METHOD=trust"}, command)
	if err != nil {
		return "", err
	}
	dsn = "postgres://postgres@127.0.0.1:" + resource.GetPort("5432/tcp") +
		"/postgres?sslmode=disable"
	var major string
	err = eventually(ctx, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		major = majorVersion(conn)
		return conn.Close(ctx)
	})
	switch {
	case err != nil:
		err = fmt.Errorf("wait for PostgreSQL in Docker: %w", err)
	case version != AnyVersion && version != major:
		err = fmt.Errorf("image %s has PostgreSQL %s", image, major)
	default:
		AtEnd(resource.Close)
		return dsn, nil
	}
	return "", errors.Join(err, resource.Close())
}

// eventually repeats try until it succeeds, or ctx ends, or two minutes have passed; then the last
// error is returned.
func eventually(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// lastPart returns at most n bytes from the end.
func lastPart(text string, n int) string {
	return text[max(0, len(text)-n):]
}
