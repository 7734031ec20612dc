package kafka

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
)

// Config is the section [sink.kafka]. The client's options, each with its reason, are in
// sink/kafka/client.go; those of producers in sink/kafka/producer/options.go.
type Config struct {
	Brokers  []string `toml:"brokers"`   // host:port of one or more brokers to start from
	ClientID string   `toml:"client_id"` // name in the broker's logs, metrics and quotas
	// highest protocol level to speak, as a Kafka version; empty: the newest. Lower is negotiated
	Version     string `toml:"version"`
	Compression string `toml:"compression"` // none, gzip, snappy, lz4 or zstd
	// largest message, compressed, and largest batch of several, uncompressed; keep it at the
	// broker's message.max.bytes
	MaxMessageBytes int           `toml:"max_message_bytes,size"`
	DialTimeout     time.Duration `toml:"dial_timeout"` // TCP and TLS handshake together
	// wait for a response before the connection is given up; more than produce_timeout
	ReadTimeout    time.Duration `toml:"read_timeout"`
	WriteTimeout   time.Duration `toml:"write_timeout"`   // for the broker to take a request
	ProduceTimeout time.Duration `toml:"produce_timeout"` // for the broker's replicas
	// first pause before a retry; doubles up to 500ms, or this if it is longer
	RetryBackoff time.Duration `toml:"retry_backoff"`
	// without any acknowledgement for this long the session ends
	DeliveryTimeout time.Duration `toml:"delivery_timeout"`
	// longest wait for more messages, and only while they come closer together than this; 0: none
	Linger time.Duration `toml:"linger"`
	// how long the broker lets a transaction of exactly_once stay open; at most its
	// transaction.max.timeout.ms
	TransactionTimeout time.Duration `toml:"transaction_timeout"`
	TLS                TLSConfig     `toml:"tls"`
	SASL               SASLConfig    `toml:"sasl"`
	Topics             TopicsConfig  `toml:"topics"`

	// Requested is called for each produce request that was written to a broker, from several
	// goroutines; it may be nil. Not a key.
	Requested func(bytes int) `json:"-"`
}

// TLSConfig is the section [sink.kafka.tls]. The files are read at each connect, so a renewed
// certificate needs no restart.
type TLSConfig struct {
	Enabled  bool   `toml:"enabled"`
	CAFile   string `toml:"ca_file"`   // PEM; empty: the system's authorities
	CertFile string `toml:"cert_file"` // PEM, our certificate; with key_file
	KeyFile  string `toml:"key_file"`  // PEM
	// name the broker's certificate must carry; empty: the broker's host
	ServerName         string `toml:"server_name"`
	InsecureSkipVerify bool   `toml:"insecure_skip_verify"` // accept any certificate: for tests only
}

// SASLConfig is the section [sink.kafka.sasl]. An empty mechanism means no SASL.
type SASLConfig struct {
	Mechanism string        `toml:"mechanism"` // PLAIN, SCRAM-SHA-…, OAUTHBEARER, GSSAPI
	Username  string        `toml:"username"`
	Password  secret.Secret `toml:"password"` // read again for each client
	// of OAUTHBEARER: where tokens come from
	Provider string `toml:"provider"`
	// of OAUTHBEARER: further fields of the login, name=value (RFC 7628, 3.1)
	Extensions []string           `toml:"extensions"`
	OAuth      credentials.OIDC   `toml:"oauth"`    // of provider oidc
	AWS        credentials.AWS    `toml:"aws"`      // of provider aws_msk_iam
	Azure      credentials.Azure  `toml:"azure"`    // of provider azure_event_hubs
	Google     credentials.Google `toml:"google"`   // of provider google_managed_kafka
	Kerberos   KerberosConfig     `toml:"kerberos"` // of GSSAPI

	tokens *tokens // shared by copies of the configuration; nil: each login requests its own
}

// TopicsConfig is the section [sink.kafka.topics]: what to do about a topic that does not exist.
type TopicsConfig struct {
	Create            bool `toml:"create"`             // else a missing topic ends the session
	Partitions        int  `toml:"partitions"`         // of a created topic; required with create
	ReplicationFactor int  `toml:"replication_factor"` // of a created topic; required with create
}

// DefaultConfig returns the defaults. Brokers has none.
func DefaultConfig() Config {
	return Config{
		ClientID:           "postrider",
		Compression:        "none",
		MaxMessageBytes:    1 << 20,
		DialTimeout:        10 * time.Second,
		ReadTimeout:        30 * time.Second,
		WriteTimeout:       30 * time.Second,
		ProduceTimeout:     10 * time.Second,
		RetryBackoff:       20 * time.Millisecond,
		DeliveryTimeout:    5 * time.Minute,
		Linger:             time.Millisecond,
		TransactionTimeout: 5 * time.Minute,
		SASL: SASLConfig{Provider: ProviderOIDC, tokens: new(tokens),
			Kerberos: KerberosConfig{ServiceName: defaultServiceName}},
	}
}

// kafkaVersion is what Version may be, beside empty.
var kafkaVersion = regexp.MustCompile(`^(0\.\d+\.\d+\.\d+|\d+\.\d+\.\d+)$`)

// Validate reports every setting that cannot be, by its TOML key. It opens no file and no
// connection.
func (c *Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("sink.kafka.%s: %s", key, fmt.Sprintf(format, args...)))
	}

	if len(c.Brokers) == 0 {
		bad("brokers", `is empty; name at least one broker, like ["kafka-1:9092"]`)
	}
	for i, b := range c.Brokers {
		switch host, port, err := net.SplitHostPort(b); {
		case strings.ContainsAny(b, "@/\r\n"):
			bad("brokers", `entry %d is not host:port, like "kafka-1:9092" (it is not shown, `+
				`since it may hold a password); user and password belong to sink.kafka.sasl`, i+1)
		case err != nil || host == "" || port == "":
			bad("brokers", `%q is not host:port, like "kafka-1:9092"`, b)
		}
	}
	if c.ClientID == "" {
		bad("client_id", "is empty")
	}
	if c.Version != "" && (!kafkaVersion.MatchString(c.Version) ||
		kversion.FromString(c.Version) == nil) { // no limit, for the client
		bad("version", `%q is not a Kafka version, like "3.6.0", of those up to %s`, c.Version,
			strings.TrimPrefix(kversion.VersionStrings()[0], "v"))
	}
	if _, ok := codecs[c.Compression]; !ok {
		bad("compression", "%q is none of none, gzip, snappy, lz4, zstd", c.Compression)
	}
	if c.MaxMessageBytes < 1024 || c.MaxMessageBytes > 1<<30-1<<20 {
		bad("max_message_bytes", "%d is not between 1KiB and 1023MiB", c.MaxMessageBytes)
	}
	for i, d := range []time.Duration{c.DialTimeout, c.ReadTimeout, c.WriteTimeout,
		c.ProduceTimeout, c.RetryBackoff, c.DeliveryTimeout, c.TransactionTimeout} {
		if d < time.Millisecond {
			keys := []string{"dial_timeout", "read_timeout", "write_timeout", "produce_timeout",
				"retry_backoff", "delivery_timeout", "transaction_timeout"}
			bad(keys[i], "%s is too short; the least is 1ms", d)
		}
	}
	if c.ReadTimeout <= c.ProduceTimeout {
		bad("read_timeout",
			"%s must be longer than produce_timeout (%s): the broker may take that long to answer",
			c.ReadTimeout, c.ProduceTimeout)
	}
	if c.DeliveryTimeout <= c.ReadTimeout {
		bad("delivery_timeout",
			"%s must be longer than read_timeout (%s): otherwise nothing is ever retried",
			c.DeliveryTimeout, c.ReadTimeout)
	}
	if c.Linger < 0 || c.Linger > time.Second {
		bad("linger", "%s is not between 0s and 1s", c.Linger)
	}
	c.TLS.validate(bad)
	c.validateSASL(bad)
	c.Topics.validate(bad)
	return errors.Join(errs...)
}

// bootstrap is the broker list as Kafka's own tools take it.
func (c *Config) bootstrap() string { return strings.Join(c.Brokers, ",") }

func (t *TLSConfig) validate(bad func(key, format string, args ...any)) {
	if !t.Enabled {
		if *t != (TLSConfig{}) {
			bad("tls.enabled",
				"is false although other tls settings are given; set it to true or remove them")
		}
		return
	}
	for _, file := range []struct{ key, path string }{{"tls.ca_file", t.CAFile},
		{"tls.cert_file", t.CertFile}, {"tls.key_file", t.KeyFile}} {
		if err := secret.CheckPath(file.path); err != nil {
			bad(file.key, "%v", err)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		bad("tls.cert_file", "and tls.key_file go together; one of them is missing")
	}
	if t.InsecureSkipVerify && (t.CAFile != "" || t.ServerName != "") {
		bad("tls.insecure_skip_verify",
			"makes tls.ca_file and tls.server_name pointless; remove one or the other")
	}
}

func (t *TopicsConfig) validate(bad func(key, format string, args ...any)) {
	if !t.Create {
		return
	}
	if t.Partitions < 1 || t.Partitions > 100_000 {
		bad("topics.partitions", "%d: say how many partitions a created topic gets", t.Partitions)
	}
	if t.ReplicationFactor < 1 || t.ReplicationFactor > 100 {
		bad("topics.replication_factor",
			"%d: say how many replicas a created topic gets (3 in production)", t.ReplicationFactor)
	}
}

const (
	// requestLimit is the broker's default socket.request.max.bytes, and so the most that
	// max_message_bytes can be. The client requires uncompressed batches to be below it, too.
	requestLimit = 100 << 20
	// requestOverhead is what the client keeps free below its largest request.
	requestOverhead = 10 << 10
	// answerLimit is the largest answer that is read, if max_message_bytes needs no more. A client
	// allocates as much as the first bytes of an answer promise.
	answerLimit = 48 << 20
	// plainLimit is the most that a batch may have before compression to be read, if
	// max_message_bytes needs no more. No batch of the relay has more (LargestBatch), and no window
	// of zstd has at the levels of Kafka's clients. A few KiB can decompress to gigabytes.
	plainLimit = 128 << 20
)

// LargestAnswer is the most that a broker may send at once.
func (c *Config) LargestAnswer() int32 { return c.atLeast(answerLimit) }

// LargestRequest is what the client may write at once.
func (c *Config) LargestRequest() int32 { return c.atLeast(requestLimit) }

// LargestPlainBatch is the most that a batch that is read may have before compression.
func (c *Config) LargestPlainBatch() int32 { return c.atLeast(plainLimit) }

func (c *Config) atLeast(limit int32) int32 {
	return max(limit, int32(c.MaxMessageBytes)+2*requestOverhead) //nolint:gosec // validated
}

// LargestBatch bounds a batch before compression. The sink itself keeps batches of several records
// below max_message_bytes.
func (c *Config) LargestBatch() int32 {
	if c.Compression == "none" {
		return int32(c.MaxMessageBytes) //nolint:gosec // validated
	}
	return c.LargestRequest() - requestOverhead
}
