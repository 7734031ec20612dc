package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
)

func valid() Config {
	cfg := DefaultConfig()
	cfg.Brokers = []string{"kafka-1:9092", "[::1]:9092"}
	return cfg
}

func TestConfig_DefaultsAreValidButForTheBrokers(t *testing.T) {
	cfg := valid()
	require.NoError(t, cfg.Validate())
	cfg = DefaultConfig()
	require.EqualError(t, cfg.Validate(),
		`sink.kafka.brokers: is empty; name at least one broker, like ["kafka-1:9092"]`)
}

func TestConfig_NamesTheKeyThatIsWrong(t *testing.T) {
	for key, spoil := range map[string]func(*Config){
		"brokers":           func(c *Config) { c.Brokers = []string{"kafka-1"} },
		"client_id":         func(c *Config) { c.ClientID = "" },
		"version":           func(c *Config) { c.Version = "new" },
		"compression":       func(c *Config) { c.Compression = "zip" },
		"max_message_bytes": func(c *Config) { c.MaxMessageBytes = 10 },
		"dial_timeout":      func(c *Config) { c.DialTimeout = 0 },
		"read_timeout":      func(c *Config) { c.ReadTimeout = c.ProduceTimeout },
		"write_timeout":     func(c *Config) { c.WriteTimeout = -1 },
		"produce_timeout":   func(c *Config) { c.ProduceTimeout = 0 },
		"retry_backoff":     func(c *Config) { c.RetryBackoff = 0 },
		"delivery_timeout":  func(c *Config) { c.DeliveryTimeout = time.Second },
		"linger":            func(c *Config) { c.Linger = time.Minute },
		"tls.enabled":       func(c *Config) { c.TLS.CAFile = "ca.pem" },
		"tls.cert_file":     func(c *Config) { c.TLS = TLSConfig{Enabled: true, KeyFile: "key.pem"} },
		"tls.insecure_skip_verify": func(c *Config) {
			c.TLS = TLSConfig{Enabled: true, CAFile: "ca.pem", InsecureSkipVerify: true}
		},
		"sasl.mechanism": func(c *Config) { c.SASL.Username = "rider" },
		"sasl.username": func(c *Config) {
			c.SASL = SASLConfig{Mechanism: "PLAIN", Password: secret.Of("x")}
		},
		"sasl.password": func(c *Config) {
			c.SASL = SASLConfig{Mechanism: "PLAIN", Username: "rider"}
		},
		"sasl.oauth": func(c *Config) { // two logins
			c.SASL = SASLConfig{Mechanism: "PLAIN", Username: "u", Password: secret.Of("x"),
				OAuth: credentials.OIDC{TokenFile: "token"}}
		},
		"sasl.aws": func(c *Config) {
			c.SASL.Mechanism, c.SASL.Provider, c.SASL.AWS.Region = "OAUTHBEARER", ProviderGoogle, "eu-central-1"
			c.TLS.Enabled = true
		},
		"sasl.provider": func(c *Config) {
			c.SASL.Mechanism, c.SASL.Provider = "OAUTHBEARER", "okta"
			c.TLS.Enabled = true
		},
		"sasl.extensions": func(c *Config) {
			c.SASL.Mechanism, c.SASL.OAuth.TokenFile = "OAUTHBEARER", "token"
			c.SASL.Extensions = []string{"auth=Bearer x"}
		},
		"sasl.kerberos.principal": func(c *Config) {
			c.SASL.Mechanism, c.SASL.Kerberos.Keytab = "GSSAPI", "keytab"
		},
		"sasl.kerberos.keytab": func(c *Config) {
			c.SASL.Mechanism, c.SASL.Kerberos.Principal = "GSSAPI", "me@EXAMPLE.COM"
		},
		"topics.partitions": func(c *Config) {
			c.Topics = TopicsConfig{Create: true, ReplicationFactor: 1}
		},
		"topics.replication_factor": func(c *Config) {
			c.Topics = TopicsConfig{Create: true, Partitions: 1}
		},
	} {
		t.Run(key, func(t *testing.T) {
			cfg := valid()
			spoil(&cfg)
			require.ErrorContains(t, cfg.Validate(), "sink.kafka."+key+": ")
		})
	}
}

func TestConfig_RefusesHalfALogin(t *testing.T) {
	for text, spoil := range map[string]func(*Config){
		"sasl.mechanism: is empty although sasl.provider is given": func(c *Config) {
			c.SASL.Provider = ProviderAWS
		},
		`sasl.mechanism: "AWS_MSK_IAM": Amazon MSK takes that login as mechanism = "OAUTHBEARER"`: func(c *Config) {
			c.SASL.Mechanism = "AWS_MSK_IAM"
		},
		"tls.enabled: is false: aws_msk_iam takes no connection without TLS": func(c *Config) {
			c.SASL.Mechanism, c.SASL.Provider = "OAUTHBEARER", ProviderAWS
		},
	} {
		cfg := valid()
		spoil(&cfg)
		require.ErrorContains(t, cfg.Validate(), "sink.kafka."+text)
	}
}

// What was pasted into a wrong key is refused without being shown.
func TestConfig_ShowsNoSecretThatStandsInAWrongKey(t *testing.T) {
	for key, spoil := range map[string]func(*Config){
		"brokers": func(c *Config) { c.Brokers = []string{"rider:c4n4ry@kafka-1:9092"} },
		"tls.ca_file": func(c *Config) {
			c.TLS = TLSConfig{Enabled: true, CAFile: "-----BEGIN CERTIFICATE-----\nc4n4ry"}
		},
		"tls.cert_file": func(c *Config) {
			c.TLS = TLSConfig{Enabled: true, KeyFile: "k", CertFile: "-----BEGIN CERTIFICATE-----c4n4ry"}
		},
		"tls.key_file": func(c *Config) {
			c.TLS = TLSConfig{Enabled: true, CertFile: "c", KeyFile: "MIIE\nc4n4ry"}
		},
	} {
		cfg := valid()
		spoil(&cfg)
		err := cfg.Validate()
		require.ErrorContains(t, err, "sink.kafka."+key+": ")
		require.NotContains(t, err.Error(), "c4n4ry")
	}
}

func TestBackoff_DoublesUpToItsLimit(t *testing.T) {
	cfg := valid()
	backoff := cfg.Backoff(100 * time.Millisecond)
	for retry, want := range map[int]time.Duration{1: 100 * time.Millisecond,
		2: 200 * time.Millisecond, 3: 400 * time.Millisecond, 9: longestRetry} {
		got := backoff(retry)
		require.GreaterOrEqual(t, got, want, "retry %d", retry)
		require.LessOrEqual(t, got, want*11/10, "retry %d", retry)
	}
	cfg.RetryBackoff = 2 * longestRetry
	require.GreaterOrEqual(t, cfg.Backoff(cfg.RetryBackoff)(5), 2*longestRetry)
}

// The relay reads again what it has published.
func TestConfig_ABatchThatIsWrittenCanBeRead(t *testing.T) {
	for _, compression := range []string{"none", "zstd"} {
		for _, size := range []int{1 << 20, 200 << 20, 1<<30 - 1<<20} {
			cfg := valid()
			cfg.Compression, cfg.MaxMessageBytes = compression, size
			require.NoError(t, cfg.Validate())
			require.GreaterOrEqual(t, cfg.LargestPlainBatch(), cfg.LargestBatch())
		}
	}
}

// A version that the client does not know would be no limit.
func TestConfig_KnowsTheVersion(t *testing.T) {
	for _, version := range []string{"2.9.0", "3.10.0", "10.0.0", "0.7.0.0", "3.6"} {
		cfg := valid()
		cfg.Version = version
		require.ErrorContains(t, cfg.Validate(), `sink.kafka.version: "`+version+`" is not a Kafka version`)
	}
	for _, version := range []string{"0.11.0.2", "1.1.1", "2.8.0", "3.6.2", "4.1.0"} {
		cfg := valid()
		cfg.Version = version
		require.NoError(t, cfg.Validate(), version)
	}
}
