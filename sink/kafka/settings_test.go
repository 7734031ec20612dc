package kafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
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
	require.EqualError(t, cfg.Validate(), `sink.kafka.brokers: is empty; name at least one broker, like ["kafka-1:9092"]`)
}

func TestConfig_NamesTheKeyThatIsWrong(t *testing.T) {
	for key, spoil := range map[string]func(*Config){
		"brokers":                   func(c *Config) { c.Brokers = []string{"kafka-1"} },
		"client_id":                 func(c *Config) { c.ClientID = "" },
		"version":                   func(c *Config) { c.Version = "new" },
		"compression":               func(c *Config) { c.Compression = "zip" },
		"max_message_bytes":         func(c *Config) { c.MaxMessageBytes = 10 },
		"dial_timeout":              func(c *Config) { c.DialTimeout = 0 },
		"read_timeout":              func(c *Config) { c.ReadTimeout = c.ProduceTimeout },
		"write_timeout":             func(c *Config) { c.WriteTimeout = -1 },
		"produce_timeout":           func(c *Config) { c.ProduceTimeout = 0 },
		"retry_backoff":             func(c *Config) { c.RetryBackoff = 0 },
		"delivery_timeout":          func(c *Config) { c.DeliveryTimeout = time.Second },
		"linger":                    func(c *Config) { c.Linger = time.Minute },
		"tls.enabled":               func(c *Config) { c.TLS.CAFile = "ca.pem" },
		"tls.cert_file":             func(c *Config) { c.TLS = TLSConfig{Enabled: true, KeyFile: "key.pem"} },
		"tls.insecure_skip_verify":  func(c *Config) { c.TLS = TLSConfig{Enabled: true, CAFile: "ca.pem", InsecureSkipVerify: true} },
		"sasl.mechanism":            func(c *Config) { c.SASL.Username = "rider" },
		"sasl.username":             func(c *Config) { c.SASL = SASLConfig{Mechanism: "PLAIN", Password: secret.Of("x")} },
		"sasl.password":             func(c *Config) { c.SASL = SASLConfig{Mechanism: "PLAIN", Username: "rider"} },
		"topics.partitions":         func(c *Config) { c.Topics = TopicsConfig{Create: true, ReplicationFactor: 1} },
		"topics.replication_factor": func(c *Config) { c.Topics = TopicsConfig{Create: true, Partitions: 1} },
	} {
		t.Run(key, func(t *testing.T) {
			cfg := valid()
			spoil(&cfg)
			require.ErrorContains(t, cfg.Validate(), "sink.kafka."+key+": ")
		})
	}
}

// What was pasted into a wrong key is refused without being shown.
func TestConfig_ShowsNoSecretThatStandsInAWrongKey(t *testing.T) {
	for key, spoil := range map[string]func(*Config){
		"brokers":     func(c *Config) { c.Brokers = []string{"rider:c4n4ry@kafka-1:9092"} },
		"tls.ca_file": func(c *Config) { c.TLS = TLSConfig{Enabled: true, CAFile: "-----BEGIN CERTIFICATE-----\nc4n4ry"} },
		"tls.cert_file": func(c *Config) {
			c.TLS = TLSConfig{Enabled: true, KeyFile: "k", CertFile: "-----BEGIN CERTIFICATE-----c4n4ry"}
		},
		"tls.key_file": func(c *Config) { c.TLS = TLSConfig{Enabled: true, CertFile: "c", KeyFile: "MIIE\nc4n4ry"} },
	} {
		cfg := valid()
		spoil(&cfg)
		err := cfg.Validate()
		require.ErrorContains(t, err, "sink.kafka."+key+": ")
		require.NotContains(t, err.Error(), "c4n4ry")
	}
}

// What sarama thinks of the configuration, and the settings that the guarantees rest on.
func TestConfig_BuildsAnIdempotentProducer(t *testing.T) {
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		cfg := valid()
		cfg.Compression = compression
		d := newDialer(&cfg)
		defer d.cut(sink.ErrClosed)
		s, err := cfg.produce(d)
		require.NoError(t, err)
		require.NoError(t, s.Validate())
		require.True(t, s.Producer.Idempotent)
		require.Equal(t, sarama.WaitForAll, s.Producer.RequiredAcks)
		require.Equal(t, 1, s.Net.MaxOpenRequests)
		require.False(t, s.Metadata.AllowAutoTopicCreation)
		require.True(t, s.Producer.Return.Successes && s.Producer.Return.Errors)
	}
}

// The same of the client that publishes.
func TestConfig_BuildsAnIdempotentClient(t *testing.T) {
	for compression := range codecs {
		for _, limit := range []int{1024, 1 << 20, requestLimit, 1<<30 - 1<<20} {
			cfg := valid()
			cfg.Compression, cfg.MaxMessageBytes = compression, limit
			require.NoError(t, cfg.Validate())
			d := newDialer(&cfg)
			defer d.cut(sink.ErrClosed)
			client, err := cfg.idempotent(d, placed{}, &Sink{})
			require.NoError(t, err)
			defer client.Close()
			require.Equal(t, false, client.OptValue(kgo.DisableIdempotentWrite))
			require.Equal(t, kgo.AllISRAcks(), client.OptValue(kgo.RequiredAcks))
			require.Equal(t, false, client.OptValue(kgo.AllowAutoTopicCreation))
			require.Equal(t, true, client.OptValue(kgo.StopProducerOnDataLossDetected))
			require.Equal(t, false, client.OptValue(kgo.AllowIdempotentProduceCancellation))
		}
	}
}

func TestExponential_DoublesUpToItsLimit(t *testing.T) {
	d := newDialer(&Config{})
	backoff := exponential(d.ctx, 100*time.Millisecond, time.Second)
	for retry, want := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond, 9: time.Second} {
		got := backoff(retry, 0)
		require.GreaterOrEqual(t, got, want, "retry %d", retry)
		require.LessOrEqual(t, got, want*11/10, "retry %d", retry)
	}
	d.cut(sink.ErrClosed)
	require.Zero(t, backoff(5, 0), "a pause after the connections were cut")
}
