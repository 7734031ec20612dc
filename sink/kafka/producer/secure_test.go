package producer

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

// requireDelivers opens a sink and publishes one message.
func requireDelivers(t *testing.T, cfg kafka.Config) {
	t.Helper()
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	require.NoError(t, got.wait(t, 1)[0].err)
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

func TestOpen_WarnsOfWhatIsNotSafe(t *testing.T) {
	a := parts.NewAuthority(t)
	open := func(cfg kafka.Config) string {
		var log bytes.Buffer
		s, err := Open(parts.Within(t, patience), cfg, zerolog.New(&log).Level(zerolog.InfoLevel),
			newOutcomes().done)
		require.NoError(t, err)
		require.NoError(t, s.Close(parts.Within(t, patience)))
		return log.String()
	}
	secure := parts.Cluster(t, kfake.TLS(a.Server(x509.Certificate{})))
	cfg := quick(secure.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, InsecureSkipVerify: true}
	require.Contains(t, open(cfg), "sink.kafka.tls.insecure_skip_verify")
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	require.Empty(t, open(cfg))

	plain := parts.Cluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "rider", "s3cret-canary"))
	cfg = quick(plain.ListenAddrs()...)
	cfg.SASL = kafka.SASLConfig{Mechanism: "PLAIN", Username: "rider",
		Password: secret.Of("s3cret-canary")}
	require.Contains(t, open(cfg), "in the clear")
	require.NotContains(t, open(cfg), "canary")
}

func openFails(t *testing.T, cfg kafka.Config) error {
	t.Helper()
	_, err := Open(parts.Within(t, patience), cfg, zerolog.Nop(), newOutcomes().done)
	require.Error(t, err)
	t.Log(err)
	return err
}

func TestOpen_SpeaksTLS(t *testing.T) {
	a := parts.NewAuthority(t)
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(a.Server(x509.Certificate{})))
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	requireDelivers(t, cfg)

	t.Run("without verification", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = kafka.TLSConfig{Enabled: true, InsecureSkipVerify: true}
		requireDelivers(t, cfg)
	})
	t.Run("unknown authority", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = kafka.TLSConfig{Enabled: true}
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
		cfg.TLS = kafka.TLSConfig{}
		err := openFails(t, cfg)
		require.ErrorIs(t, err, sink.ErrUnreachable)
		require.ErrorContains(t, err, "sink.kafka.tls.enabled")
	})
}

func TestOpen_RefusesAnExpiredServerCertificate(t *testing.T) {
	a := parts.NewAuthority(t)
	c := parts.Cluster(t,
		kfake.TLS(a.Server(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})))
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	err := openFails(t, cfg)
	require.ErrorIs(t, err, sink.ErrTLS)
	require.ErrorContains(t, err, "certificate has expired")
	require.ErrorContains(t, err, "give the broker a new certificate")
}

// The others go on, whichever broker the client asks for metadata, and the same session goes on
// with the partition once there is another certificate.
func TestSink_OneBrokerWithAnExpiredCertificateStallsItsPartitionAlone(t *testing.T) {
	t.Parallel()
	a := parts.NewAuthority(t)
	good := a.Server(x509.Certificate{})
	expired := a.Server(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})
	var bad atomic.Pointer[string] // address of a broker
	bad.Store(new(string))
	server := good.Clone()
	server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.Conn.LocalAddr().String() == *bad.Load() {
			return expired, nil
		}
		return good, nil
	}
	c := parts.Cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "orders"), kfake.TLS(server))
	for partition := range int32(3) {
		require.NoError(t, c.MoveTopicPartition("orders", partition, partition))
	}
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	bad.Store(&c.ListenAddrs()[2])
	got := newOutcomes()
	s := openSink(t, cfg, got.done)

	ms := numbered("orders", 3)
	for partition, m := range ms {
		m.Partition = int32(partition) //nolint:gosec // three
	}
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	parts.Await(t, "a stalled partition", func() (bool, error) {
		return s.stopped() || s.Stalled() != sink.Stalled{}, nil
	})
	for _, o := range got.wait(t, 2) {
		require.NoError(t, o.err)
	}
	stalled := s.Stalled()
	require.Equal(t, int32(2), stalled.Partition)
	require.Contains(t, stalled.Error, "certificate has expired")
	require.Contains(t, stalled.Next, "give the broker a new certificate")

	bad.Store(new(string))
	require.NoError(t, got.wait(t, 3)[2].err)
}

// No session helps before there is another one, and none has to look for replicas.
func TestSink_GivesUpWithTheCertificateThatHasExpired(t *testing.T) {
	t.Parallel()
	a := parts.NewAuthority(t)
	var current atomic.Pointer[tls.Config]
	current.Store(a.Server(x509.Certificate{}))
	server := current.Load().Clone()
	server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"), kfake.TLS(server), kfake.ListenFn(gate.Listen))
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	cfg.DeliveryTimeout = cfg.ReadTimeout + time.Millisecond
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	got.wait(t, 1)
	d, err := OpenDeadLetters(t.Context(), cfg, "orders", "", zerolog.Nop())
	require.NoError(t, err)
	defer d.Close()
	letter := []*sink.Message{{Topic: "orders", Partition: 0, Value: []byte("a dead letter")}}
	require.NoError(t, d.Append(t.Context(), letter))
	current.Store(a.Server(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)}))
	gate.Cut()
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	err = got.wait(t, 2)[1].err
	require.ErrorContains(t, err, "sink.kafka.delivery_timeout")
	require.ErrorContains(t, err, "certificate has expired")
	require.ErrorContains(t, err, "give the broker a new certificate")

	require.ErrorContains(t, d.Append(t.Context(), letter), "certificate has expired")
}

func TestOpen_SaysThatTheListenerHasNoTLS(t *testing.T) {
	c := parts.Cluster(t)
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, InsecureSkipVerify: true}
	err := openFails(t, cfg)
	require.NotErrorIs(t, err, sink.ErrAuthentication)
}

func TestOpen_PresentsItsCertificate(t *testing.T) {
	a := parts.NewAuthority(t)
	for name, newest := range map[string]uint16{"TLS 1.2": tls.VersionTLS12,
		"TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			server := a.Server(x509.Certificate{})
			server.ClientAuth = tls.RequireAndVerifyClientCert
			server.ClientCAs = a.Pool()
			server.MaxVersion = newest
			c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(server))
			cfg := quick(c.ListenAddrs()...)
			cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}

			require.ErrorIs(t, openFails(t, cfg), sink.ErrAuthentication, "without a certificate")

			stranger := parts.NewAuthority(t)
			cfg.TLS.CertFile, cfg.TLS.KeyFile = stranger.Issue("stranger", x509.Certificate{})
			err := openFails(t, cfg)
			require.ErrorIs(t, err, sink.ErrAuthentication)
			require.ErrorContains(t, err, "sink.kafka.tls.cert_file")

			cfg.TLS.CertFile, cfg.TLS.KeyFile = a.Issue("client", x509.Certificate{})
			requireDelivers(t, cfg)
		})
	}
}

func TestOpen_Authenticates(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(),
				kfake.Superuser(mechanism, "rider", "s3cret-canary"))
			cfg := quick(c.ListenAddrs()...)
			cfg.SASL = kafka.SASLConfig{Mechanism: mechanism, Username: "rider",
				Password: secret.Of("s3cret-canary")}
			requireDelivers(t, cfg)

			wrong := cfg
			wrong.SASL.Password = secret.Of("wr0ng-canary")
			err := openFails(t, wrong)
			require.ErrorIs(t, err, sink.ErrAuthentication)
			require.ErrorContains(t, err, "sink.kafka.sasl")
			require.NotContains(t, err.Error(), "canary")

			none := cfg
			none.SASL = kafka.SASLConfig{}
			err = openFails(t, none)
			require.ErrorIs(t, err, sink.ErrUnreachable)
			require.ErrorContains(t, err, "sink.kafka.sasl")
		})
	}
}

func TestOpen_AuthenticatesOverTLS(t *testing.T) {
	a := parts.NewAuthority(t)
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(a.Server(x509.Certificate{})),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "rider", "s3cret"))
	cfg := quick(c.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	cfg.SASL = kafka.SASLConfig{Mechanism: "SCRAM-SHA-512", Username: "rider",
		Password: secret.File(file)}
	requireDelivers(t, cfg)
}

func TestOpen_RefusesAnUnsupportedMechanism(t *testing.T) {
	c := parts.Cluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "rider", "s3cret"))
	cfg := quick(c.ListenAddrs()...)
	cfg.SASL = kafka.SASLConfig{Mechanism: "SCRAM-SHA-512", Username: "rider",
		Password: secret.Of("s3cret")}
	require.ErrorIs(t, openFails(t, cfg), sink.ErrAuthentication)
}
