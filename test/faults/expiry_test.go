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

// A server's certificate expires in mid-stream. The connections that are open go on; new ones are refused until it has another.
func TestFault28_AnExpiredCertificateIsNamedAndWaitedFor(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(t *testing.T, ca *parts.Authority, expiring x509.Certificate) (r *rig, reconnect, renew func()){
		"PostgreSQL": expiringPostgres, "Kafka": expiringKafka} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, expiry := parts.NewAuthority(t), time.Now().Add(30*time.Second)
			r, reconnect, renew := server(t, ca, x509.Certificate{NotAfter: expiry})
			p := r.started(t)
			l := r.load(t, 100)
			l.more(t, 100)
			require.Positive(t, time.Until(expiry), "the machine is too slow for this test")
			during(time.Until(expiry)+time.Second, func() { p.requireRunning(t) })
			l.more(t, 100)
			r.drained(t, time.Minute)
			require.Equal(t, 1, p.ask().Relay.Sessions, "what is open goes on")

			said := len(p.Log.String())
			reconnect()
			eventually(t, time.Minute, "the log says what has expired, and what to do", func() bool {
				p.requireRunning(t)
				text := p.Log.String()[said:]
				return strings.Contains(text, "certificate has expired") && strings.Contains(text, " a new certificate")
			})
			l.more(t, 100)
			renew()
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

func expiringPostgres(t *testing.T, ca *parts.Authority, expiring x509.Certificate) (r *rig, reconnect, renew func()) {
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
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"ssl": "on"}, Files: files(expiring)})
	r = newRig(t, pg.DSN(), parts.RealKafka(t))
	u, err := url.Parse(r.dsn)
	require.NoError(t, err)
	u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.CAFile()}}.Encode()
	r.url = u.String()
	reconnect = func() {
		execute(t, r.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postrider'")
	}
	return r, reconnect, func() {
		for name, content := range files(x509.Certificate{}) {
			require.NoError(t, os.WriteFile(filepath.Join(pg.DataDir(), name), content, 0o600))
		}
		execute(t, r.dsn, "SELECT pg_reload_conf()")
	}
}

func expiringKafka(t *testing.T, ca *parts.Authority, expiring x509.Certificate) (r *rig, reconnect, renew func()) {
	t.Helper()
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{ThroughProxy: true, Protocol: "SSL", Properties: map[string]string{
		"listener.name.client.ssl.keystore.type": "PEM", "listener.name.client.ssl.keystore.location": ca.Keystore("broker", expiring)}})
	r = newRig(t, server(t, parts.AnyVersion), broker)
	r.settings["sink.kafka.tls.enabled"], r.settings["sink.kafka.tls.ca_file"] = "true", quote(ca.CAFile())
	return r, broker.Proxy.Cut, func() {
		ca.Keystore("broker", x509.Certificate{})
		broker.Stop(t)
		broker.Restart(t)
	}
}
