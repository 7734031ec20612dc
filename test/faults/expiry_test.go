package faults

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// expiring is a server whose certificate can be replaced.
type expiring struct {
	rig       *rig
	install   func(template x509.Certificate) // for the connections that come
	reconnect func()                          // ends those that are open
	named     func(p *process) string         // what says why there is no new one
}

// A server's certificate expires in mid-stream. What is open goes on; new connections are refused until there is another certificate.
func TestFault28_AnExpiredCertificateIsNamedAndWaitedFor(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T, *parts.Authority) expiring{"PostgreSQL": expiringPostgres, "Kafka": expiringKafka} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, parts.NewAuthority(t))
			r := s.rig
			p := r.started(t)
			l := r.load(t, 100)
			l.more(t, 100)
			s.install(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})
			l.more(t, 100)
			r.drained(t, time.Minute)
			require.Equal(t, 1, p.ask().Relay.Sessions, "what is open goes on")

			s.reconnect()
			eventually(t, time.Minute, "it is said what has expired, and what to do", func() bool {
				p.requireRunning(t)
				text := s.named(p)
				return strings.Contains(text, "certificate has expired") && strings.Contains(text, " a new certificate")
			})
			l.more(t, 100)
			s.install(x509.Certificate{})
			s.reconnect()
			back := r.caughtUp(t)
			l.end(t)
			r.drained(t, time.Minute)
			sessions := p.ask().Relay.Sessions
			p.stop(t)
			v := r.judge(t)
			requireNothingLost(t, v)
			require.LessOrEqual(t, v.Duplicated, int64(sessions-1)*repeats)
			matrix(t, 28, "expired certificate, "+name, fmt.Sprintf("caught up %s after there was another", seconds(back)))
		})
	}
}

func expiringPostgres(t *testing.T, ca *parts.Authority) expiring {
	t.Helper()
	files := func(template x509.Certificate) map[string][]byte {
		cert, key := ca.Issue("server", template)
		content := map[string][]byte{}
		for name, path := range map[string]string{"server.crt": cert, "server.key": key} {
			bytes, err := os.ReadFile(path)
			require.NoError(t, err)
			content[name] = bytes
		}
		return content
	}
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"ssl": "on"}, Files: files(x509.Certificate{})})
	r := newRig(t, pg.DSN(), parts.RealKafka(t))
	u, err := url.Parse(r.dsn)
	require.NoError(t, err)
	u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.CAFile()}}.Encode()
	r.url = u.String()
	install := func(template x509.Certificate) {
		for name, content := range files(template) {
			require.NoError(t, os.WriteFile(filepath.Join(pg.DataDir(), name), content, 0o600))
		}
		execute(t, r.dsn, "SELECT pg_reload_conf()")
	}
	return expiring{r, install, func() {
		execute(t, r.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postrider'")
	}, func(p *process) string { return p.Log.String() }}
}

// The broker reads its keystore when it starts.
func expiringKafka(t *testing.T, ca *parts.Authority) expiring {
	t.Helper()
	install := func(template x509.Certificate) { ca.Keystore("broker", template) }
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{Protocol: "SSL", Properties: map[string]string{
		"listener.name.client.ssl.keystore.type":     "PEM",
		"listener.name.client.ssl.keystore.location": ca.Keystore("broker", x509.Certificate{})}})
	r := newRig(t, server(t, parts.AnyVersion), broker)
	r.settings["sink.kafka.tls.enabled"], r.settings["sink.kafka.tls.ca_file"] = "true", quote(ca.CAFile())
	return expiring{r, install, func() {
		broker.Stop(t)
		broker.Restart(t)
	}, func(p *process) string { // the session goes on
		body, _ := p.get("/status")
		return string(body)
	}}
}
