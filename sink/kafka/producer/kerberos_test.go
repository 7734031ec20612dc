package producer

import (
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func withTicket(b *parts.Broker, k *parts.KDC, keytab string) kafka.Config {
	cfg := real(b)
	cfg.SASL.Mechanism = "GSSAPI"
	cfg.SASL.Kerberos = kafka.KerberosConfig{ServiceName: "kafka", Principal: "relay@" + parts.Realm,
		Keytab: keytab, ConfigFile: k.Config()}
	return cfg
}

// Tickets live for five seconds, and the broker ends each session after four: the same session of
// the relay goes on.
func TestKerberos_TicketsAreRenewedInTheMiddleOfAStream(t *testing.T) {
	k := parts.NewKDC(t, 5*time.Second)
	b := parts.ExclusiveKafka(t, k.Listener())
	k.AddPrincipal("relay")
	topic := b.Topic(t, 3)
	got := newOutcomes()
	s := openSink(t, withTicket(b, k, k.Keytab("relay")), got.done)
	sent := 0
	for end := time.Now().Add(14 * time.Second); time.Now().Before(end); {
		ms := numbered(topic, sent+50)[sent:]
		sent += len(ms)
		require.NoError(t, s.Publish(parts.Within(t, patience), ms))
		got.wait(t, sent)
	}
	for _, outcome := range got.wait(t, sent) {
		require.NoError(t, outcome.err)
	}
	requireInOrder(t, b.Consume(t, topic, sent), sent)
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

func TestKerberos_SaysWhatIsWrong(t *testing.T) {
	k := parts.NewKDC(t, time.Hour)
	b := parts.ExclusiveKafka(t, k.Listener())
	k.AddPrincipal("relay")
	k.AddPrincipal("other/127.0.0.1")
	keytab := k.Keytab("relay")
	requireDeliversTo(t, withTicket(b, k, keytab), b.Topic(t, 1))

	fails := func(cfg kafka.Config, class error, text string) {
		t.Helper()
		_, err := Open(parts.Within(t, patience), cfg, zerolog.Nop(), newOutcomes().done)
		t.Log(err)
		require.ErrorIs(t, err, class)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "check sink.kafka.brokers", "they are not the cause")
	}
	cfg := withTicket(b, k, keytab)
	cfg.SASL.Kerberos.Principal = "nobody@" + parts.Realm
	fails(cfg, sink.ErrAuthentication, "nobody")
	cfg = withTicket(b, k, keytab)
	cfg.SASL.Kerberos.ServiceName = "database"
	fails(cfg, sink.ErrAuthentication, "the KDC does not know database/127.0.0.1")
	cfg.SASL.Kerberos.ServiceName = "other"
	fails(cfg, sink.ErrAuthentication, "check that the broker has the keys of other/HOST")
	cfg = withTicket(b, k, "/nowhere/keytab")
	fails(cfg, os.ErrNotExist, "sink.kafka.sasl.kerberos.keytab")
	cfg = withTicket(b, k, keytab)
	cfg.SASL.Kerberos.ConfigFile = "/nowhere/krb5.conf"
	fails(cfg, os.ErrNotExist, "sink.kafka.sasl.kerberos.config_file")

	k.Keytab("relay") // a newer key
	fails(withTicket(b, k, keytab), sink.ErrAuthentication, "the keytab has an old key")

	k.Stop()
	fails(withTicket(b, k, keytab), sink.ErrUnreachable, "check that a KDC of the realm answers")
	k.Start()
	requireDeliversTo(t, withTicket(b, k, k.Keytab("relay")), b.Topic(t, 1))
}
