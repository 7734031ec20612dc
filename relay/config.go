package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Config is the section [relay].
type Config struct {
	// limit of messages that the sink has not acknowledged and that are not stalled
	InFlightMessages int `toml:"in_flight_messages"`
	// limit of the memory that these retain: their rows and read buffers
	InFlightBytes int64 `toml:"in_flight_bytes,size"`
	// limit of the memory of stalled messages: those that wait for their partition while others are
	// acknowledged; 0: they count as the others
	StalledBytes int64 `toml:"stalled_bytes,size"`
	// limit of messages that a crash can repeat, those of an open transaction not counted
	MaxRepeatedMessages int `toml:"max_repeated_messages"`
	// how long a stop waits for messages in flight
	DrainTimeout time.Duration `toml:"drain_timeout"`
	// ceiling of the first delay between two sessions
	BackoffMin time.Duration `toml:"backoff_min"`
	BackoffMax time.Duration `toml:"backoff_max"` // ceiling of every delay

	// what is published in a second, of all topics and of some
	MaxRate ratelimit.Rate        `toml:"max_rate"`
	Rates   []ratelimit.TopicRate `toml:"rate"`

	// time between two heartbeat records; 0: none
	HeartbeatInterval time.Duration `toml:"heartbeat_interval"`
	// of the heartbeat records; empty: Debezium's name
	HeartbeatTopic string `toml:"heartbeat_topic"`

	// none or tail; tail: a session skips rows that the topics have already
	Dedup string `toml:"dedup"`
	// publish in Kafka transactions that include the position
	ExactlyOnce   bool   `toml:"exactly_once"`
	PositionTopic string `toml:"position_topic"` // compacted topic of those positions
}

// The values of relay.dedup.
const (
	DedupNone = "none"
	DedupTail = "tail"
)

// DefaultConfig returns the defaults; config.example.toml gives the reasons.
func DefaultConfig() Config {
	return Config{
		InFlightMessages: 5_000,
		InFlightBytes:    8 << 20,
		StalledBytes:     64 << 20,
		DrainTimeout:     20 * time.Second,
		BackoffMin:       200 * time.Millisecond,
		BackoffMax:       15 * time.Second,
		Dedup:            DedupNone,
		PositionTopic:    "postrider.positions",

		MaxRepeatedMessages: 1_000_000,
	}
}

// maxStalledBytes keeps stalled messages within the limits of the sink's queues.
const maxStalledBytes = 512 << 20

// limits returns those of the window. With exactly_once a partition that waits keeps the whole
// transaction from being committed, so that more messages behind it would help nobody.
func (c Config) limits() limits {
	l := limits{messages: c.InFlightMessages, bytes: c.InFlightBytes, stalledBytes: c.StalledBytes,
		repeatable: c.MaxRepeatedMessages}
	if c.ExactlyOnce {
		l.stalledBytes = 0
	}
	return l
}

// Deduplicates reports whether a session reads from the topics what is published already.
func (c Config) Deduplicates() bool { return c.Dedup == DedupTail }

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(c.InFlightMessages >= 1, "relay.in_flight_messages = %d: must be at least 1",
		c.InFlightMessages)
	require(c.InFlightBytes >= 1, "relay.in_flight_bytes = %d: must be at least 1",
		c.InFlightBytes)
	require(c.StalledBytes >= 0 && c.StalledBytes <= maxStalledBytes,
		"relay.stalled_bytes = %d: must be between 0 and %d", c.StalledBytes, int64(maxStalledBytes))
	require(c.MaxRepeatedMessages >= 1, "relay.max_repeated_messages = %d: must be at least 1",
		c.MaxRepeatedMessages)
	require(c.DrainTimeout >= time.Second, "relay.drain_timeout = %s: must be at least 1s, "+
		"in which the last position reaches the server", c.DrainTimeout)
	require(c.BackoffMin > 0 && c.BackoffMax >= c.BackoffMin,
		"relay.backoff_min = %s, relay.backoff_max = %s: must be positive and in this order",
		c.BackoffMin, c.BackoffMax)
	require(c.HeartbeatInterval >= 0, "relay.heartbeat_interval = %s: must not be negative",
		c.HeartbeatInterval)
	require(c.Dedup == DedupNone || c.Dedup == DedupTail, "relay.dedup = %q: must be %s or %s",
		c.Dedup, DedupNone, DedupTail)
	require(!c.ExactlyOnce || c.Dedup == DedupNone,
		"relay.dedup = %q conflicts with relay.exactly_once, which publishes no row twice: set it to %q",
		c.Dedup, DedupNone)
	require(sink.ValidTopic(c.PositionTopic),
		"relay.position_topic = %q: a name is 1 to 249 of a-z A-Z 0-9 . _ -", c.PositionTopic)
	return errors.Join(append(errs, c.validateRates()...)...)
}

// validateRates checks [[relay.rate]].
func (c Config) validateRates() (errs []error) {
	for i, r := range c.Rates {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("relay.rate: entry %d: "+format,
				append([]any{i + 1}, args...)...))
		}
		if len(r.Topics) == 0 {
			wrong(`topics is empty: must list topics, or patterns as "outbox.event.*"; ` +
				"relay.max_rate is for all topics together")
		}
		for _, pattern := range r.Topics {
			if problem := router.PatternProblem(pattern); problem != "" {
				wrong(`topics: %q %s; must be a topic, or a pattern as "outbox.event.*"`, pattern, problem)
			}
		}
		if r.Rate == (ratelimit.Rate{}) {
			wrong(`max_rate is not set: must be a rate as "500 rows/s"; leave the entry out for no limit`)
		}
	}
	return errs
}
