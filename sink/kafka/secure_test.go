package kafka

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
)

// authority issues certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

// caFile is what a client trusts.
func (a *authority) caFile() string {
	return a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// issue writes a certificate for 127.0.0.1 and its key.
func (a *authority) issue(name string, template x509.Certificate) (certFile, keyFile string) {
	a.t.Helper()
	template.Subject = pkix.Name{CommonName: name}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if template.IPAddresses == nil && template.DNSNames == nil {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	cert, key := a.sign(&template, a.cert, a.key)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return a.write(name+".pem", "CERTIFICATE", cert.Raw), a.write(name+".key", "EC PRIVATE KEY", der)
}

func (a *authority) server(template x509.Certificate) *tls.Config {
	a.t.Helper()
	certFile, keyFile := a.issue("server", template)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(a.t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// requireDelivers opens a sink and publishes one message.
func requireDelivers(t *testing.T, cfg Config) {
	t.Helper()
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(within(t, patience), numbered("orders", 1)))
	require.NoError(t, got.wait(t, 1)[0].err)
	require.NoError(t, s.Close(within(t, patience)))
}

func TestOpen_WarnsOfWhatIsNotSafe(t *testing.T) {
	a := newAuthority(t)
	open := func(cfg Config) string {
		var log bytes.Buffer
		s, err := Open(within(t, patience), cfg, zerolog.New(&log), newOutcomes().done)
		require.NoError(t, err)
		require.NoError(t, s.Close(within(t, patience)))
		return log.String()
	}
	secure := cluster(t, kfake.TLS(a.server(x509.Certificate{})))
	cfg := quick(secure.ListenAddrs()...)
	cfg.TLS = TLSConfig{Enabled: true, InsecureSkipVerify: true}
	require.Contains(t, open(cfg), "sink.kafka.tls.insecure_skip_verify")
	cfg.TLS = TLSConfig{Enabled: true, CAFile: a.caFile()}
	require.Empty(t, open(cfg))

	plain := cluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "rider", "s3cret-canary"))
	cfg = quick(plain.ListenAddrs()...)
	cfg.SASL = SASLConfig{Mechanism: "PLAIN", Username: "rider", Password: secret.Of("s3cret-canary")}
	require.Contains(t, open(cfg), "in the clear")
	require.NotContains(t, open(cfg), "canary")
}

func openFails(t *testing.T, cfg Config) error {
	t.Helper()
	_, err := Open(within(t, patience), cfg, zerolog.Nop(), newOutcomes().done)
	require.Error(t, err)
	t.Log(err)
	return err
}

func TestOpen_SpeaksTLS(t *testing.T) {
	a := newAuthority(t)
	c := cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(a.server(x509.Certificate{})))
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = TLSConfig{Enabled: true, CAFile: a.caFile()}
	requireDelivers(t, cfg)

	t.Run("without verification", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = TLSConfig{Enabled: true, InsecureSkipVerify: true}
		requireDelivers(t, cfg)
	})
	t.Run("unknown authority", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = TLSConfig{Enabled: true}
		err := openFails(t, cfg)
		require.ErrorIs(t, err, sink.ErrTLS)
		var unknown x509.UnknownAuthorityError
		require.ErrorAs(t, err, &unknown)
		require.ErrorContains(t, err, "sink.kafka.tls.ca_file")
	})
	t.Run("other name", func(t *testing.T) {
		cfg := cfg
		cfg.TLS.ServerName = "kafka.example"
		err := openFails(t, cfg)
		require.ErrorIs(t, err, sink.ErrTLS)
		require.ErrorContains(t, err, "kafka.example")
	})
	t.Run("no CA file", func(t *testing.T) {
		cfg := cfg
		cfg.TLS.CAFile = filepath.Join(t.TempDir(), "none.pem")
		err := openFails(t, cfg)
		require.ErrorIs(t, err, sink.ErrTLS)
		require.ErrorContains(t, err, "sink.kafka.tls.ca_file")
	})
	t.Run("client without TLS", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = TLSConfig{}
		err := openFails(t, cfg)
		require.ErrorIs(t, err, sink.ErrUnreachable)
		require.ErrorContains(t, err, "sink.kafka.tls.enabled")
	})
}

func TestOpen_RefusesAnExpiredServerCertificate(t *testing.T) {
	a := newAuthority(t)
	c := cluster(t, kfake.TLS(a.server(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})))
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = TLSConfig{Enabled: true, CAFile: a.caFile()}
	err := openFails(t, cfg)
	require.ErrorIs(t, err, sink.ErrTLS)
	require.ErrorContains(t, err, "expired")
}

func TestOpen_SaysThatTheListenerHasNoTLS(t *testing.T) {
	c := cluster(t)
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = TLSConfig{Enabled: true, InsecureSkipVerify: true}
	err := openFails(t, cfg)
	require.NotErrorIs(t, err, sink.ErrAuthentication)
}

func TestOpen_PresentsItsCertificate(t *testing.T) {
	a := newAuthority(t)
	for name, newest := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			server := a.server(x509.Certificate{})
			server.ClientAuth = tls.RequireAndVerifyClientCert
			server.ClientCAs = x509.NewCertPool()
			server.ClientCAs.AddCert(a.cert)
			server.MaxVersion = newest
			c := cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(server))
			cfg := quick(c.ListenAddrs()...)
			cfg.TLS = TLSConfig{Enabled: true, CAFile: a.caFile()}

			require.ErrorIs(t, openFails(t, cfg), sink.ErrAuthentication, "without a certificate")

			stranger := newAuthority(t)
			cfg.TLS.CertFile, cfg.TLS.KeyFile = stranger.issue("stranger", x509.Certificate{})
			err := openFails(t, cfg)
			require.ErrorIs(t, err, sink.ErrAuthentication)
			require.ErrorContains(t, err, "sink.kafka.tls.cert_file")

			cfg.TLS.CertFile, cfg.TLS.KeyFile = a.issue("client", x509.Certificate{})
			requireDelivers(t, cfg)
		})
	}
}

func TestDialer_ReadsCertificatesAtEachConnect(t *testing.T) {
	a := newAuthority(t)
	server := a.server(x509.Certificate{})
	server.ClientAuth = tls.RequireAndVerifyClientCert
	server.ClientCAs = x509.NewCertPool()
	server.ClientCAs.AddCert(a.cert)
	seen := make(chan string, 100)
	server.VerifyPeerCertificate = func(_ [][]byte, chains [][]*x509.Certificate) error {
		seen <- chains[0][0].Subject.CommonName
		return nil
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() { // ended by Close of the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()

	cfg := quick(l.Addr().String())
	cfg.TLS = TLSConfig{Enabled: true, CAFile: a.caFile()}
	cfg.TLS.CertFile, cfg.TLS.KeyFile = a.issue("before", x509.Certificate{})
	d := newDialer(&cfg)
	defer d.cut(sink.ErrClosed)
	_, err = d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.Equal(t, "before", <-seen)

	cert, key := a.issue("after", x509.Certificate{})
	require.NoError(t, os.Rename(cert, cfg.TLS.CertFile))
	require.NoError(t, os.Rename(key, cfg.TLS.KeyFile))
	_, err = d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.Equal(t, "after", <-seen)
}

func TestOpen_Authenticates(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(), kfake.Superuser(mechanism, "rider", "s3cret-canary"))
			cfg := quick(c.ListenAddrs()...)
			cfg.SASL = SASLConfig{Mechanism: mechanism, Username: "rider", Password: secret.Of("s3cret-canary")}
			requireDelivers(t, cfg)

			wrong := cfg
			wrong.SASL.Password = secret.Of("wr0ng-canary")
			err := openFails(t, wrong)
			require.ErrorIs(t, err, sink.ErrAuthentication)
			require.ErrorContains(t, err, "sink.kafka.sasl")
			require.NotContains(t, err.Error(), "canary")

			none := cfg
			none.SASL = SASLConfig{}
			err = openFails(t, none)
			require.ErrorIs(t, err, sink.ErrUnreachable)
			require.ErrorContains(t, err, "sink.kafka.sasl")
		})
	}
}

func TestOpen_AuthenticatesOverTLS(t *testing.T) {
	a := newAuthority(t)
	c := cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(a.server(x509.Certificate{})),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "rider", "s3cret"))
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = TLSConfig{Enabled: true, CAFile: a.caFile()}
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	cfg.SASL = SASLConfig{Mechanism: "SCRAM-SHA-512", Username: "rider", Password: secret.File(file)}
	requireDelivers(t, cfg)
}

func TestOpen_RefusesAnUnsupportedMechanism(t *testing.T) {
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "rider", "s3cret"))
	cfg := quick(c.ListenAddrs()...)
	cfg.SASL = SASLConfig{Mechanism: "SCRAM-SHA-512", Username: "rider", Password: secret.Of("s3cret")}
	require.ErrorIs(t, openFails(t, cfg), sink.ErrAuthentication)
}
