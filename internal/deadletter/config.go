package deadletter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/sink"
)

// Policy is what becomes of a row that can never be delivered as it is.
type Policy string

// The policies.
const (
	Halt          Policy = "halt"            // the relay stops in front of it
	DeadLetter    Policy = "dead_letter"     // it goes to the dead-letter topic
	DeadLetterKey Policy = "dead_letter_key" // so does every later row of its key, until redriven
	Skip          Policy = "skip"            // it is left out
)

// Cause is why a row cannot be delivered.
type Cause string

// The causes.
const (
	NotRoutable  Cause = "not_routable"  // no topic, no key, or a value that cannot be converted
	InvalidTopic Cause = "invalid_topic" // the topic is no valid name, or not allowed
	TooLarge     Cause = "too_large"     // over a limit of ours or of the broker
	Refused      Cause = "refused"       // the broker refuses it by itself
	Malformed    Cause = "malformed"     // JSON or headers that cannot be read
	UnknownTopic Cause = "unknown_topic" // no such topic, for as long as UnknownTopicAfter
)

// Config is the section [deadletter].
type Config struct {
	NotRoutable  Policy `toml:"not_routable"`
	InvalidTopic Policy `toml:"invalid_topic"`
	TooLarge     Policy `toml:"too_large"`
	Refused      Policy `toml:"refused"`
	Malformed    Policy `toml:"malformed"`
	UnknownTopic Policy `toml:"unknown_topic"` // Halt: the relay waits for the topic
	// UnknownTopicAfter is how long a topic has to be missing, by each answer of the cluster.
	UnknownTopicAfter time.Duration `toml:"unknown_topic_after"`
	// Retries is how often the broker refuses a record by itself until it is Refused or TooLarge.
	Retries int    `toml:"retries"`
	Topic   string `toml:"topic"`
}

// minUnknownTopicAfter is about what a cluster takes until all its brokers know a new topic.
const minUnknownTopicAfter = 10 * time.Second

// DefaultConfig returns the defaults; config.example.toml gives the reasons.
func DefaultConfig() Config {
	return Config{
		NotRoutable: Halt, InvalidTopic: Halt, TooLarge: Halt, Refused: Halt, Malformed: Halt,
		UnknownTopic: Halt, UnknownTopicAfter: 5 * time.Minute,
		Retries: 3, Topic: "postrider.dead_letters",
	}
}

type decision struct {
	cause  Cause
	policy Policy
}

// decisions are in the order of the configuration.
func (c Config) decisions() []decision {
	return []decision{{NotRoutable, c.NotRoutable}, {InvalidTopic, c.InvalidTopic},
		{TooLarge, c.TooLarge}, {Refused, c.Refused}, {Malformed, c.Malformed},
		{UnknownTopic, c.UnknownTopic}}
}

// Policy is that of a cause.
func (c Config) Policy(cause Cause) Policy {
	for _, d := range c.decisions() {
		if d.cause == cause {
			return d.policy
		}
	}
	return Halt
}

// On reports whether a policy makes dead letters.
func (c Config) On() bool {
	return slices.ContainsFunc(c.decisions(), func(d decision) bool {
		return d.policy == DeadLetter || d.policy == DeadLetterKey
	})
}

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	for _, d := range c.decisions() {
		if !slices.Contains([]Policy{Halt, DeadLetter, DeadLetterKey, Skip}, d.policy) {
			errs = append(errs, fmt.Errorf("deadletter.%s = %q: must be %s, %s, %s or %s",
				d.cause, d.policy, Halt, DeadLetter, DeadLetterKey, Skip))
		}
	}
	if c.UnknownTopicAfter < minUnknownTopicAfter {
		errs = append(errs, fmt.Errorf("deadletter.unknown_topic_after = %s: must be at least %s",
			c.UnknownTopicAfter, minUnknownTopicAfter))
	}
	if c.Retries < 1 {
		errs = append(errs, fmt.Errorf("deadletter.retries = %d: must be at least 1", c.Retries))
	}
	if !sink.ValidTopic(c.Topic) {
		errs = append(errs, fmt.Errorf(
			"deadletter.topic = %q: a name is 1 to 249 of a-z A-Z 0-9 . _ -", c.Topic))
	}
	return errors.Join(errs...)
}
