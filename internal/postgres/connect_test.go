package postgres_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

func configOf(dsn string) postgres.Config {
	cfg := postgres.DefaultConfig()
	cfg.URL = secret.Of(dsn)
	return cfg
}

// attempt tries both kinds of connection, which must fail alike.
func attempt(t *testing.T, dsn string) error {
	t.Helper()
	_, err := postgres.Connect(t.Context(), configOf(dsn))
	require.Error(t, err)
	_, other := postgres.ConnectReplication(t.Context(), configOf(dsn))
	require.Error(t, other)
	require.NotContains(t, fmt.Sprintf("%v %+v %v %+v", err, err, other, other), "canary")
	var driver *pgconn.ConnectError
	require.False(t, errors.As(err, &driver), "it holds the password in its fields")
	return err
}

func TestConnect_SaysWhyNot(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Password: "right"})
			with := func(old, replacement string) error {
				return attempt(t, strings.Replace(s.DSN(), old, replacement, 1))
			}
			require.ErrorIs(t, with(":right@", ":canary@"), postgres.ErrAuthentication)
			require.ErrorIs(t, with("postgres:right@", "absent:canary@"), postgres.ErrAuthentication)
			require.ErrorIs(t, with("/postgres?", "/absent?"), postgres.ErrNoSuchDatabase)
			require.ErrorIs(t, with("sslmode=disable", "sslmode=verify-full"), postgres.ErrTLS)

			conn := parts.Connect(t, s.DSN())
			for _, sql := range []string{
				"CREATE ROLE weak LOGIN PASSWORD 'weak'", "CREATE DATABASE closed",
				"REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
			} {
				_, err := conn.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			weak := strings.Replace(s.DSN(), "postgres:right@", "weak:weak@", 1)
			require.ErrorIs(t, attempt(t, strings.Replace(weak, "/postgres?", "/closed?", 1)),
				postgres.ErrPermission)
			_, err := postgres.ConnectReplication(t.Context(), configOf(weak))
			require.ErrorIs(t, err, postgres.ErrPermission)

			require.NoError(t, s.Stop(t.Context()))
			require.ErrorIs(t, attempt(t, s.DSN()), postgres.ErrUnreachable)
		})
	}
	require.ErrorIs(t, attempt(t, "postgres://u:canary@"+parts.Nobody(t)+"/db"),
		postgres.ErrUnreachable)
	require.ErrorIs(t, attempt(t, "postgres://u:canary@no-such-host.invalid/db"),
		postgres.ErrUnreachable)
}

// One cause is said once, whatever else was tried on the way: the driver asks a local server for
// TLS first.
func TestConnect_SaysEachCauseOnce(t *testing.T) {
	s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17", Password: "right"})
	at := fmt.Sprintf("127.0.0.1:%d", s.Port())
	says := func(class error, dsn, text string) {
		t.Helper()
		err := attempt(t, dsn)
		require.ErrorIs(t, err, class)
		require.EqualError(t, err, text)
	}
	says(postgres.ErrAuthentication, "postgres://postgres:canary@"+at+"/shop",
		"connect to "+at+`/shop as postgres: password authentication failed for user "postgres" (28P01)`)
	says(postgres.ErrNoSuchDatabase, "postgres://postgres:right@"+at+"/shop",
		"connect to "+at+`/shop as postgres: database "shop" does not exist (3D000)`)
	says(postgres.ErrTLS, "postgres://postgres:canary@"+at+"/shop?sslmode=require",
		"connect to "+at+"/shop as postgres: server refused TLS connection")
	says(postgres.ErrUnreachable, "postgres://u:canary@no-such-host.invalid:5433/shop",
		"connect to no-such-host.invalid:5433/shop as u: host name not found")
	says(postgres.ErrUnreachable, "postgres://u:canary@/shop?host=/no/such/directory",
		"connect to database shop at /no/such/directory/.s.PGSQL.5432 as u: no such file or directory")
	closed := parts.Nobody(t)
	says(postgres.ErrUnreachable, "postgres://u:canary@"+closed+"/a%20b",
		"connect to "+closed+`/"a b" as u: connection refused`)
	says(postgres.ErrAuthentication, "postgres://postgres:canary@"+closed+","+at+"/shop",
		"connect to database shop as postgres: "+closed+": connection refused; "+
			at+`: password authentication failed for user "postgres" (28P01)`)

	_ = parts.Connect(t, s.DSN()) // which a smart shutdown waits for
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.StopMode(ended, embedded.ShutdownMode(syscall.SIGTERM)))
	require.Eventually(t, func() bool {
		_, err := postgres.Connect(t.Context(), configOf(s.DSN()))
		return err != nil
	}, time.Minute, time.Millisecond)
	says(postgres.ErrStarting, "postgres://postgres:right@"+at+"/shop",
		"connect to "+at+"/shop as postgres: the database system is shutting down (57P03)")
}

func TestConnect_GivesUpOnAHostThatDoesNotAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes the connection and never says a word
	require.NoError(t, err)
	defer l.Close()
	cfg := configOf("postgres://u:canary@" + l.Addr().String() + "/db?sslmode=disable")
	cfg.ConnectTimeout = 100 * time.Millisecond
	_, err = postgres.Connect(t.Context(), cfg)
	require.ErrorIs(t, err, postgres.ErrUnreachable)
}

// A length is believed only as far as it can be true. With 1 GiB, which is what the driver takes,
// a server that talks nonsense would fill the memory.
func TestConnect_MakesNoRoomForWhatAServerOnlyAnnounces(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// a parameter of nearly 1 GiB, and its first byte
			_, _ = c.Write([]byte{'S', 0x3f, 0xff, 0xff, 0x00, 'a'})
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	dsn := "postgres://u:canary@" + l.Addr().String() + "/db?sslmode=disable"
	require.ErrorContains(t, attempt(t, dsn), "expected at most 16777216")
	_, err = postgres.ConnectRows(t.Context(), configOf(dsn))
	require.Error(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
}

// Tables have rows of any length.
func TestConnectRows_ReadsARowThatIsLongerThanAnyAnswer(t *testing.T) {
	conn, err := postgres.ConnectRows(t.Context(), configOf(parts.Postgres(t, "17").DSN()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	var text string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT repeat('x', 20 << 20)").Scan(&text))
	require.Len(t, text, 20<<20)
}

func TestConnect_TakesTheWritableOfSeveralHosts(t *testing.T) {
	readOnly := parts.ExclusivePostgres(t, embedded.PostgresConfig{
		Version: "17", Params: map[string]string{"default_transaction_read_only": "on"},
	})
	writable := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17"})
	dsn := func(servers ...*embedded.Postgres) postgres.Config {
		hosts := []string{parts.Nobody(t)}
		for _, s := range servers {
			hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", s.Port()))
		}
		return configOf("postgres://postgres@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable")
	}
	conn, err := postgres.Connect(t.Context(), dsn(readOnly, writable))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var port int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT inet_server_port()").Scan(&port))
	require.Equal(t, writable.Port(), port)

	replication, err := postgres.ConnectReplication(t.Context(), dsn(readOnly, writable))
	require.NoError(t, err)
	require.NoError(t, replication.Close(context.Background()))

	_, err = postgres.Connect(t.Context(), dsn(readOnly))
	require.ErrorIs(t, err, postgres.ErrNotWritable)
	alone, err := postgres.Connect(t.Context(), configOf(readOnly.DSN()))
	require.NoError(t, err, "one host is taken as it is")
	require.NoError(t, alone.Close(context.Background()))
}

// A host that is off takes no connection and refuses none.
func TestConnect_WaitsForNoHostThatIsOff(t *testing.T) {
	db := parts.Postgres(t, "17")
	server, err := url.Parse(db.DSN())
	require.NoError(t, err)
	server.Host = silentHost(t) + "," + server.Host
	cfg := configOf(server.String())
	cfg.ConnectTimeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := postgres.Connect(ctx, cfg)
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))
	replication, err := postgres.ConnectReplication(ctx, cfg)
	require.NoError(t, err)
	require.NoError(t, replication.Close(ctx))
}

// silentHost is an address that no longer answers who wants to connect: its queue of connections
// is full.
func silentHost(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	bound, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	at := fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
	for {
		conn, err := net.DialTimeout("tcp", at, time.Second)
		if err != nil {
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout(), "%v", err)
			return at
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

func TestConnectReplication_SetsAShortTimeoutOfItsOwn(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			conn, err := postgres.ConnectReplication(t.Context(),
				configOf(parts.Postgres(t, version).DSN()))
			require.NoError(t, err)
			defer conn.Close(context.Background())
			results, err := conn.Exec(t.Context(), "SHOW wal_sender_timeout").ReadAll()
			require.NoError(t, err)
			require.Equal(t, "15s", string(results[0].Rows[0][0]))
		})
	}
}

func TestError_TellsTheEndOfAConnection(t *testing.T) {
	db := parts.Postgres(t, "17")
	conn, err := postgres.Connect(t.Context(), configOf(db.DSN()))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	db.Exec(t, fmt.Sprintf("SELECT pg_terminate_backend(%d)", conn.PgConn().PID()))
	_, err = conn.WaitForNotification(t.Context())
	require.ErrorIs(t, postgres.Error(err), postgres.ErrStopping)
	require.EqualError(t, postgres.Error(err), "terminating connection due to administrator "+
		"command (57P01)")
	_, err = conn.Exec(t.Context(), "SELECT 1")
	require.ErrorIs(t, postgres.Error(err), postgres.ErrUnreachable)
}

func TestError_LeavesTheRestAlone(t *testing.T) {
	require.NoError(t, postgres.Error(nil))
	require.Equal(t, context.Canceled, postgres.Error(context.Canceled))
	syntax := &pgconn.PgError{Code: "42601"}
	require.Equal(t, error(syntax), postgres.Error(syntax))
	once := postgres.Error(&pgconn.PgError{Code: "42501"})
	require.Equal(t, once, postgres.Error(once), "wrapped once")
	var pe *pgconn.PgError
	require.ErrorAs(t, once, &pe)
}

// Without sslmode a certificate that nobody vouches for is refused, and one that is vouched for is
// taken.
func TestConnect_VerifiesTheCertificateByDefault(t *testing.T) {
	cert, key := selfSigned(t, "db.example")
	s := parts.ExclusivePostgres(t, embedded.PostgresConfig{
		Version: "17", Params: map[string]string{
			"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key",
		},
		Files: map[string][]byte{"server.crt": cert, "server.key": key},
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, cert, 0o600))
	connect := func(query url.Values) error {
		cfg := configOf(fmt.Sprintf("postgres://postgres@db.example:%d/postgres?%s", s.Port(),
			query.Encode()))
		pc, err := postgres.ParseConfig(cfg)
		require.NoError(t, err)
		pc.LookupFunc = func(context.Context, string) ([]string, error) {
			return []string{"127.0.0.1"}, nil
		}
		conn, err := pgconn.ConnectConfig(t.Context(), &pc.Config)
		if err != nil {
			return postgres.Error(err)
		}
		require.IsType(t, &tls.Conn{}, conn.Conn())
		return conn.Close(context.Background())
	}
	require.ErrorIs(t, connect(url.Values{}), postgres.ErrTLS)
	require.NoError(t, connect(url.Values{"sslrootcert": {ca}}))
	require.NoError(t, connect(url.Values{"sslmode": {"require"}}), "chosen")
}

func selfSigned(t *testing.T, host string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
