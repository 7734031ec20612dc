package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who follows the advice must not give a right to everybody: ANONYMOUS is only who has no login at all.
func TestAllowCommand_NamesTheLoginOfTheRelay(t *testing.T) {
	for name, c := range map[string]struct {
		set       func(c *Config)
		principal string
	}{
		"no login":    {func(*Config) {}, "User:ANONYMOUS "},
		"a password":  {func(c *Config) { c.SASL.Mechanism, c.SASL.Username = "PLAIN", "rider" }, "User:rider "},
		"Event Hubs":  {func(c *Config) { c.SASL.Mechanism, c.SASL.Username = "PLAIN", "$ConnectionString" }, "'User:$ConnectionString' "},
		"a token":     {func(c *Config) { c.SASL.Mechanism = "OAUTHBEARER" }, "User:NAME "},
		"Kerberos":    {func(c *Config) { c.SASL.Mechanism = "GSSAPI" }, "User:NAME "},
		"certificate": {func(c *Config) { c.TLS.CertFile = "client.pem" }, "User:NAME "},
		"a token and a certificate": {func(c *Config) {
			c.SASL.Mechanism, c.TLS.CertFile = "OAUTHBEARER", "client.pem"
		}, "NAME: the subject of the token"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.set(&cfg)
			require.Contains(t, AllowCommand(cfg, "--producer --topic orders"), c.principal)
		})
	}
}

// Without its file a script of Kafka's reaches no listener with TLS or a login.
func TestCommands_NameTheFileOfTheAdministrator(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(c *Config)
		want string
	}{
		"plain":   {func(*Config) {}, "kafka-1:9092,kafka-2:9092 --"},
		"TLS":     {func(c *Config) { c.TLS.Enabled = true }, "kafka-1:9092,kafka-2:9092 --command-config admin.properties --"},
		"a login": {func(c *Config) { c.SASL.Mechanism = "PLAIN" }, "kafka-1:9092,kafka-2:9092 --command-config admin.properties --"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Brokers = []string{"kafka-1:9092", "kafka-2:9092"}
			c.set(&cfg)
			for _, command := range []string{
				CreateTopicCommand(cfg, "a", 3), CreateDeadLetterTopicCommand(cfg, "a", 3), CreateCompactedTopicCommand(cfg, "a", 3),
				AddPartitionsCommand(cfg, "a", 3), AlterTopicCommand(cfg, "a", "max.message.bytes", 3), FindSmallISRCommand(cfg),
				FindLeaderlessCommand(cfg), FindQuotasCommand(cfg), AllowCommand(cfg, "--producer --topic a"),
				Command(cfg, "kafka-topics.sh", "--list"),
			} {
				require.Regexp(t, `^kafka-[a-z]+\.sh --bootstrap-server `+c.want, command)
			}
			require.Contains(t, AlterTopicCommand(cfg, "a", "max.message.bytes", 3), " --alter --topic a --add-config max.message.bytes=3")
		})
	}
}
