package diagnosis

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/test/parts"
)

// brokerPassword is the one of every login.
const brokerPassword = "password-of-the-test"

// plainLogin is how a JVM logs in with a password.
const plainLogin = "org.apache.kafka.common.security.plain.PlainLoginModule"

// onBroker are the conditions of the way to Kafka, and of topics.
func onBroker() []condition {
	database := []string{initialise, tail, dryRun, status, slotShow}
	const otherTopic = "reads the topic of dead letters"
	list := []condition{
		{
			name:  "no broker",
			make:  func(t *testing.T, s *site) { s.brokers(t, parts.Nobody(t)) },
			cause: `127\.0\.0\.1:\d+: connection refused`,
			prose: "sink.kafka.brokers is corrected, or a broker is started",
		},
		{
			name: "wrong listener",
			make: func(t *testing.T, s *site) { s.brokers(t, s.broker.Listener("ASTRAY")) },
			cause: `broker 1 cannot be reached under the address that it advertises: ` +
				`127\.0\.0\.1:1: connection refused`,
			prose: "advertised.listeners of the broker is corrected",
		},
		{
			name:  "wrong password of the broker",
			make:  func(t *testing.T, s *site) { s.login(t, "wrong") },
			cause: `[Aa]uthentication (failed|refused)`,
			prose: "sink.kafka.sasl is corrected",
		},
		{
			name:  "no topic",
			make:  func(*testing.T, *site) {},
			cause: `topic topics_[0-9a-f]+\.order does not exist`,
			unmet: reasons{
				otherTopic: {letters},
				"reads the topics that there are, and misses none by its name": {audit},
				"waits for what the other relay publishes":                     {compare},
				"takes a topic that is missing for one without records":        {recovering},
			},
		},
		{
			name: "no ACL",
			make: func(t *testing.T, s *site) {
				s.broker.CreateTopic(t, s.topic(), 1, nil)
				s.broker.KafkaTool(t, "kafka-acls.sh", "--bootstrap-server", s.broker.Brokers()[0], "--add",
					"--allow-principal", "User:relay", "--operation", "Describe", "--topic", s.topic())
				s.login(t, brokerPassword)
			},
			cause: `(producer_id|session ended).* not permitted by the broker`,
			unmet: reasons{otherTopic: {letters}, "reads, which is another right": {audit, compare, recovering}},
		},
		{
			name: "row too large",
			make: func(t *testing.T, s *site) {
				s.broker.CreateTopic(t, s.topic(), 1, nil)
				s.set(t, "replication.max_row_bytes", quoted("1KiB"))
				s.insert(t, `{"x": "`+strings.Repeat("x", 5000)+`"}`)
			},
			cause: `a row of \d+ bytes is longer than replication\.max_row_bytes = 1024`,
			unmet: reasons{"reads no row that the slot has kept": {check, audit, compare, recovering, letters}},
		},
	}
	for i := range list {
		c := &list[i]
		broken := c.make
		c.make = func(t *testing.T, s *site) {
			s.install(t)
			s.insert(t, "{}")
			broken(t, s)
		}
		if c.unmet == nil {
			c.unmet = reasons{}
		}
		c.unmet[noBroker] = database
	}
	return list
}

// login has the commands log in to the broker.
func (s *site) login(t *testing.T, password string) {
	t.Helper()
	s.brokers(t, s.broker.Listener("SASL"))
	s.set(t, "sink.kafka.sasl.mechanism", quoted("PLAIN"), "sink.kafka.sasl.username", quoted("relay"),
		"sink.kafka.sasl.password", quoted(password))
}

func TestMatrix_ConditionsOfKafka(t *testing.T) {
	t.Parallel()
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{
		Listeners:  map[string]string{"SASL": "SASL_PLAINTEXT", "ASTRAY": "PLAINTEXT"},
		Advertised: map[string]string{"ASTRAY": "127.0.0.1:1"},
		Properties: map[string]string{
			"sasl.enabled.mechanisms": "PLAIN",
			"listener.name.sasl.plain.sasl.jaas.config": plainLogin +
				` required user_relay="` + brokerPassword + `" user_admin="` + brokerPassword + `";`,
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS;User:admin",
		},
	})
	t.Run("conditions", func(t *testing.T) {
		for _, c := range onBroker() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.walk(t, func(t *testing.T) *site {
					s := newSite(t, parts.Postgres(t, parts.AnyVersion))
					s.broker = broker
					s.brokers(t, broker.Brokers()...)
					return s
				})
			})
		}
	})
}
