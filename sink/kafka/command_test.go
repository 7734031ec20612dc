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
