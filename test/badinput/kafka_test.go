package badinput

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
)

// broker starts one for this site alone and configures it.
func (s *site) broker(t *testing.T, options ...kfake.Opt) *embedded.Kafka {
	t.Helper()
	k, err := embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{"outbox.event.order": 3}, Options: options})
	require.NoError(t, err)
	t.Cleanup(k.Close)
	s.brokerAt(k.Brokers()[0])
	return k
}

func (s *site) brokerAt(address string) {
	s.set("sink.kafka", `brokers = ["`+address+`"]`)
	s.masks[address] = "127.0.0.1:9092"
}

var kafkaMistakes = []mistake{
	{
		name: "broker-down", about: "no broker listens where sink.kafka.brokers says",
		make: func(t *testing.T, s *site) {
			var err error
			s.freePort, err = child.FreePort()
			require.NoError(t, err)
			s.brokerAt(fmt.Sprintf("127.0.0.1:%d", s.freePort))
		},
		run: retries, check: 69, advised: []string{"127.0.0.1:9092", "refused", "sink.kafka.brokers"},
		heal: func(t *testing.T, s *site, _ string) { s.broker(t, kfake.Ports(s.freePort)) },
	},
	{
		name: "broker-unresolvable", about: "the host name in sink.kafka.brokers does not exist",
		make: func(_ *testing.T, s *site) { s.set("sink.kafka", `brokers = ["kafka.invalid:9092"]`) },
		run:  retries, check: 69, advised: []string{"kafka.invalid:9092", "sink.kafka.brokers"},
	},
	{
		name: "broker-with-tls", about: "the broker's listener speaks TLS, and sink.kafka.tls.enabled is false",
		make: func(t *testing.T, s *site) { s.broker(t, kfake.TLS(brokerTLS(t))) },
		run:  retries, check: 69, advised: []string{"127.0.0.1:9092", "sink.kafka.tls.enabled"},
	},
	{
		name: "broker-without-tls", about: "sink.kafka.tls.enabled is true, and the broker's listener does not speak TLS",
		make: func(_ *testing.T, s *site) {
			s.set("sink.kafka.tls", "enabled = true")
			s.set("sink.kafka", `dial_timeout = "500ms"`)
		},
		run: retries, check: 69, advised: []string{"127.0.0.1:9092", "TLS", "dial_timeout"},
	},
	{
		name: "broker-certificate-refused", about: "the broker's certificate comes from another authority than sink.kafka.tls.ca_file",
		make: func(t *testing.T, s *site) {
			s.broker(t, kfake.TLS(brokerTLS(t)))
			s.set("sink.kafka.tls", "enabled = true")
			s.set("sink.kafka.tls", `ca_file = "`+s.file(t, "ca.pem", otherAuthority(t))+`"`)
		},
		run: retries, check: 78, advised: []string{"127.0.0.1:9092", "certificate", "sink.kafka.tls.ca_file"},
		heal: func(t *testing.T, s *site, _ string) { s.file(t, "ca.pem", string(certificates(t).authority)) },
	},
	{
		name: "broker-password-wrong", about: "the password in sink.kafka.sasl is wrong",
		make: func(t *testing.T, s *site) {
			s.broker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "postrider", "another"))
			s.sasl("SCRAM-SHA-512")
		},
		run: 77, check: 77, advised: []string{"127.0.0.1:9092", "SCRAM-SHA-512", "sink.kafka.sasl"},
		heal: func(t *testing.T, s *site, _ string) {
			s.broker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "postrider", canary))
		},
	},
	{
		name: "broker-mechanism-wrong", about: "the broker does not have the mechanism in sink.kafka.sasl",
		make: func(t *testing.T, s *site) {
			s.broker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "postrider", canary))
			s.sasl("PLAIN")
		},
		run: 77, check: 77, advised: []string{"127.0.0.1:9092", "sink.kafka.sasl.mechanism"},
		heal: func(_ *testing.T, s *site, _ string) { s.sasl("SCRAM-SHA-512") },
	},
	{
		name: "broker-with-sasl", about: "the broker asks for a login, and none is configured",
		make: func(t *testing.T, s *site) {
			s.broker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "postrider", canary))
		},
		run: retries, check: 69, advised: []string{"127.0.0.1:9092", "sink.kafka.sasl"},
	},
	{
		name: "topic-missing", about: "a row is routed to a topic that does not exist",
		make: func(t *testing.T, s *site) {
			k := s.broker(t)
			s.sql(t, s.database, `SELECT pg_create_logical_replication_slot('`+s.slot+`', 'pgoutput')`)
			s.sql(t, s.database, `GRANT SELECT ON outbox TO `+s.role) // so that check sees the row, too
			s.sql(t, s.database, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('invoice', '1', 'Paid', '{}')`)
			s.own = k
		},
		run: retries, check: 78, advised: []string{`outbox.event.invoice`, "kafka-topics.sh", "--create --topic outbox.event.invoice"},
		heal: func(t *testing.T, s *site, _ string) {
			require.NoError(t, s.own.CreateTopic("outbox.event.invoice", 3))
		},
	},
}

func (s *site) sasl(mechanism string) {
	s.set("sink.kafka.sasl", `mechanism = "`+mechanism+`"`)
	s.set("sink.kafka.sasl", `username = "postrider"`)
	s.set("sink.kafka.sasl", `password = "`+canary+`"`)
}
