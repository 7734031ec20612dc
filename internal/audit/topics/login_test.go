package topics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func requireReads(t *testing.T, b *parts.Broker, cfg kafka.Config) {
	t.Helper()
	topic := b.Topic(t, 1)
	produce(t, b, topic, 0, "1", "2")
	r, err := OpenReader(parts.Within(t, 3*parts.Patience), cfg, false)
	require.NoError(t, err)
	defer r.Close()
	spans, err := r.Spans(parts.Within(t, 3*parts.Patience), topic, time.Time{})
	require.NoError(t, err)
	require.Len(t, spans, 1)
	require.EqualValues(t, 2, spans[0].End-spans[0].From)
}

func TestReader_LogsInWithATicket(t *testing.T) {
	k := parts.NewKDC(t, time.Hour)
	b := parts.ExclusiveKafka(t, k.Listener())
	k.AddPrincipal("audit")
	cfg := real(b)
	cfg.SASL.Mechanism = "GSSAPI"
	cfg.SASL.Kerberos = kafka.KerberosConfig{ServiceName: "kafka", Principal: "audit",
		Keytab: k.Keytab("audit"), ConfigFile: k.Config()}
	requireReads(t, b, cfg)
}

func TestReader_LogsInWithAToken(t *testing.T) {
	o := parts.NewOIDC(t, time.Hour)
	b := parts.ExclusiveKafka(t, o.Listener())
	cfg := real(b)
	cfg.SASL.Mechanism = "OAUTHBEARER"
	cfg.SASL.OAuth = credentials.OIDC{TokenURL: o.TokenURL(), ClientID: parts.OIDCClient,
		ClientSecret: secret.Of(parts.OIDCSecret)}
	requireReads(t, b, cfg)
}
