package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// secretFile has the relay read where to connect from a file, and returns how to replace its content.
func (r *rig) secretFile(t testing.TB) (write func(dsn string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "url")
	write = func(dsn string) {
		require.NoError(t, os.WriteFile(path+".new", []byte(dsn+"\n"), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	r.settings["postgres.url_file"] = quote(path)
	return write
}

// changed ends the relay's connections and waits until it streams over another.
func (r *rig) changed(t testing.TB, p *process) time.Duration {
	t.Helper()
	before, began := r.walsender(t), time.Now()
	execute(t, r.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postrider'")
	eventually(t, 30*time.Second, "another walsender", func() bool {
		p.requireRunning(t)
		now := r.walsender(t)
		return now != 0 && now != before
	})
	return time.Since(began)
}

func TestFault28_APasswordIsChangedWithoutARestart(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	for name, configure := range map[string]func(t testing.TB, r *rig) func(password string){
		"file": func(t testing.TB, r *rig) func(string) {
			write := r.secretFile(t)
			return func(password string) { write(r.as(t, url.UserPassword("rider", password))) }
		},
		"command": func(t testing.TB, r *rig) func(string) { // as of a vault's program
			path := filepath.Join(t.TempDir(), "password")
			r.url = r.as(t, url.User("rider"))
			r.settings["postgres.password_command"] = `["cat", ` + quote(path) + `]`
			return func(password string) {
				require.NoError(t, os.WriteFile(path+".new", []byte(password+"\n"), 0o600))
				require.NoError(t, os.Rename(path+".new", path))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Password: "the superuser's"})
			r := newRig(t, pg.DSN(), broker)
			execute(t, r.dsn, "CREATE ROLE rider LOGIN REPLICATION PASSWORD 'number 0'")
			write := configure(t, r)
			write("number 0")
			p := r.started(t)
			l := r.load(t, 100)
			var again times
			n := full(t, 3, 50)
			for i := range n {
				l.more(t, 100)
				password := fmt.Sprint("number ", i+1)
				execute(t, r.dsn, "ALTER ROLE rider PASSWORD '"+password+"'")
				write(password)
				again = append(again, r.changed(t, p))
			}
			l.end(t)
			r.drained(t, time.Minute)
			require.Zero(t, p.Log.Count("number "), "a password in the log")
			p.stop(t)
			v := r.judge(t)
			requireNothingLost(t, v)
			require.LessOrEqual(t, v.Duplicated, int64(n)*repeats)
			matrix(t, 28, "password of a "+name, fmt.Sprintf("%d changes, streams again: %s", n, again))
		})
	}
}

// as is the DSN with another login.
func (r *rig) as(t testing.TB, user *url.Userinfo) string {
	t.Helper()
	u, err := url.Parse(r.dsn)
	require.NoError(t, err)
	u.User = user
	return u.String()
}

// The server moves to another address, which is looked up, or read, for each connection. Here it is the file that changes.
func TestFault28_AnAddressIsChangedWithoutARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	write := r.secretFile(t)
	var proxies []*parts.Proxy
	move := func() {
		proxies = append(proxies, r.through(t))
		write(r.url)
	}
	move()
	p := r.started(t)
	l := r.load(t, 100)
	var again times
	n := full(t, 2, 50)
	for range n {
		l.more(t, 100)
		old := proxies[len(proxies)-1]
		move()
		began := time.Now()
		before := r.walsender(t)
		old.Refuse() // for good
		eventually(t, time.Minute, "another walsender", func() bool { now := r.walsender(t); return now != 0 && now != before })
		again = append(again, time.Since(began))
	}
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(n)*repeats)
	matrix(t, 28, "address", fmt.Sprintf("%d changes, streams again: %s", n, again))
}

// certificate is a server's certificate that signs itself, and its key.
func certificate(t testing.TB, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "a server of the test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes})
}

// The server gets a certificate of another authority, and the file with the authorities its certificate.
func TestFault28_ACertificateIsChangedWithoutARestart(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	cert, key := certificate(t, 1)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"ssl": "on"},
		Files: map[string][]byte{"server.crt": cert, "server.key": key}})
	r := newRig(t, pg.DSN(), broker)
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	trust := func(cert []byte) {
		require.NoError(t, os.WriteFile(authorities+".new", cert, 0o600))
		require.NoError(t, os.Rename(authorities+".new", authorities))
	}
	trust(cert)
	u, err := url.Parse(r.dsn)
	require.NoError(t, err)
	u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {authorities}}.Encode()
	r.url = u.String()
	p := r.started(t)
	require.True(t, query[bool](t, r.dsn, "SELECT ssl FROM pg_stat_ssl WHERE pid = $1", r.walsender(t)))
	l := r.load(t, 100)
	var again times
	n := full(t, 2, 50)
	for i := range n {
		l.more(t, 100)
		cert, key := certificate(t, int64(i+2))
		for name, content := range map[string][]byte{"server.crt": cert, "server.key": key} {
			// In place: the file keeps its owner, whom the server wants to be its own.
			require.NoError(t, os.WriteFile(filepath.Join(pg.DataDir(), name), content, 0o600))
		}
		trust(cert)
		execute(t, r.dsn, "SELECT pg_reload_conf()")
		again = append(again, r.changed(t, p))
	}
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(n)*repeats)
	matrix(t, 28, "certificate", fmt.Sprintf("%d changes, streams again: %s", n, again))
}
