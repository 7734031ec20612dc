package deadletter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/sink"
)

// Policy is what the relay does with a row that cannot be delivered as it is.
type Policy string

// The policies.
const (
	Halt          Policy = "halt"            // the relay stops before the row
	DeadLetter    Policy = "dead_letter"     // the row goes to the dead-letter topic
	DeadLetterKey Policy = "dead_letter_key" // and later rows of its key, until redriven
	Skip          Policy = "skip"            // the row is skipped
)

// Cause is why a row cannot be delivered.
type Cause string

// The causes.
const (
	NotRoutable  Cause = "not_routable"  // no topic, no key, or a value that cannot be converted
	InvalidTopic Cause = "invalid_topic" // no valid topic name, or not allowed
	TooLarge     Cause = "too_large"     // over a limit of postrider or of the broker
	Refused      Cause = "refused"       // the broker refuses the record, sent alone
	Malformed    Cause = "malformed"     // JSON or headers that cannot be read
	UnknownTopic Cause = "unknown_topic" // missing for UnknownTopicAfter
)

// Config is the section [deadletter].
type Config struct {
	NotRoutable  Policy `toml:"not_routable"`
	InvalidTopic Policy `toml:"invalid_topic"`
	TooLarge     Policy `toml:"too_large"`
	Refused      Policy `toml:"refused"`
	Malformed    Policy `toml:"malformed"`
	UnknownTopic Policy `toml:"unknown_topic"` // Halt: the relay waits for the topic
	// UnknownTopicAfter is how long the topic has to be missing in every answer of the cluster.
	UnknownTopicAfter time.Duration `toml:"unknown_topic_after"`
	// Retries is how many refusals of a record, sent alone, make it Refused or TooLarge.
	Retries int    `toml:"retries"`
	Topic   string `toml:"topic"`
}

// minUnknownTopicAfter is about how long a new topic takes to reach all brokers' metadata.
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

// decisions returns the policy of each cause, in the order of the configuration.
func (c Config) decisions() []decision {
	return []decision{{NotRoutable, c.NotRoutable}, {InvalidTopic, c.InvalidTopic},
		{TooLarge, c.TooLarge}, {Refused, c.Refused}, {Malformed, c.Malformed},
		{UnknownTopic, c.UnknownTopic}}
}

// Policy returns the policy of a cause.
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
