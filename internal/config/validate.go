package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/router"
)

// check is the judgement of one section.
type check struct {
	section string
	run     func() error
}

func (c Config) checks() []check {
	checks := []check{
		{"postgres", c.Postgres.Validate},
		{"slot", c.Slot.Validate},
		{"replication", c.Replication.Validate},
		{routerSection, c.validateRules},
	}
	for i, rule := range c.Router {
		checks = append(checks, check{router.RuleName(i, len(c.Router)), rule.Validate})
	}
	return append(checks, []check{
		{"format", c.Format.Validate},
		{"sink", c.Sink.Validate},
		{"snapshot", c.validateSnapshot},
		{"relay", c.Relay.Validate},
		{"relay", c.validateHeartbeat},
		{"relay", c.validatePositions},
		{"deadletter", c.validateDeadLetters},
		{"monitor", c.Monitor.Validate},
		{"health", c.Health.Validate},
		{"alerts", c.Alerts.Validate},
		{"http", c.HTTP.Validate},
		{"admin", c.Admin.Validate},
		{"log", c.Log.Validate},
	}...)
}

// validateRules judges who routes what.
func (c Config) validateRules() error {
	_, err := router.Divide(c.Router, c.Replication.Tables, c.Replication.Messages)
	return err
}

// validateSnapshot also judges whether the sink can remember how far a snapshot has come.
func (c Config) validateSnapshot() error {
	if err := c.Snapshot.Validate(); err != nil {
		return err
	}
	if c.Snapshot.On() && c.Sink.Kind != SinkKafka {
		return fmt.Errorf("snapshot.mode = %q needs sink.kind = %q: nothing else remembers which rows were published", c.Snapshot.Mode, SinkKafka)
	}
	return nil
}

// validateHeartbeat writes one: not every format can.
func (c Config) validateHeartbeat() error {
	if c.Relay.HeartbeatInterval <= 0 {
		return nil
	}
	if _, err := router.Heartbeat(c.Format, c.HeartbeatTopic(), c.Router[0].TopicPrefix, time.Now()); err != nil {
		return fmt.Errorf("relay.heartbeat_interval: %w; set it to \"0s\", or choose another format", err)
	}
	return nil
}

// validatePositions judges whether the sink and the messages can do what [relay] asks for.
func (c Config) validatePositions() error {
	switch {
	case c.Relay.PositionTopic == c.Snapshot.Topic:
		return fmt.Errorf("relay.position_topic and snapshot.topic are both %q: name two topics", c.Snapshot.Topic)
	case (c.Relay.ExactlyOnce || c.Relay.Dedup == relay.DedupTail) && c.Sink.Kind != SinkKafka:
		return fmt.Errorf("relay.exactly_once and relay.dedup need sink.kind = %q: nothing else remembers positions", SinkKafka)
	case c.Relay.Dedup == relay.DedupTail && slices.ContainsFunc(c.Router, func(r router.Config) bool { return !r.PositionHeaders }):
		return fmt.Errorf("relay.dedup = %q needs router.position_headers = true: what is in a topic is recognised by them", relay.DedupTail)
	}
	return nil
}

func (c Config) validateDeadLetters() error {
	if err := c.DeadLetter.Validate(); err != nil {
		return err
	}
	for _, other := range []struct{ key, topic string }{{"relay.position_topic", c.Relay.PositionTopic}, {"snapshot.topic", c.Snapshot.Topic}} {
		if c.DeadLetter.Topic == other.topic {
			return fmt.Errorf("deadletter.topic and %s are both %q: the one is a log and the other is compacted; name two topics", other.key, other.topic)
		}
	}
	if c.DeadLetter.On() && c.Sink.Kind != SinkKafka {
		return fmt.Errorf("policy dead_letter needs sink.kind = %q: nothing else keeps dead letters", SinkKafka)
	}
	return nil
}

// OwnTopics are where the relay keeps what it needs itself. Events must not be written there, whatever their rows ask for: a forged position
// would have the relay leave out rows.
func (c Config) OwnTopics() []string {
	own := []string{c.DeadLetter.Topic, c.Relay.PositionTopic, c.Snapshot.Topic}
	return slices.DeleteFunc(own, func(topic string) bool { return topic == "" })
}

// HeartbeatTopic is where heartbeats go.
func (c Config) HeartbeatTopic() string {
	if c.Relay.HeartbeatTopic != "" {
		return c.Relay.HeartbeatTopic
	}
	return router.HeartbeatTopic(c.Router[0].TopicPrefix)
}

// Validate asks each package about its section. Without arguments it judges all; a command that uses two sections names
// them, so that `postrider slot list` works before a broker is configured. The error is a Problems.
func (l *Loaded) Validate(sections ...string) error { return l.validate(sections).or() }

// Validate judges a configuration that was not loaded, such as one built by a test or the demo.
func (c Config) Validate(sections ...string) error {
	return (&Loaded{Config: c}).Validate(sections...)
}

func (l *Loaded) validate(sections []string) Problems {
	var problems Problems
	keys := keysOf(&l.Config)
	for _, c := range l.Config.checks() {
		if len(sections) > 0 && !slices.Contains(sections, unnumbered(c.section)) {
			continue
		}
		for _, err := range split(c.run()) {
			problems = append(problems, l.locate(keys, c.section, err))
		}
	}
	if l.Path == "" && l.origins != nil {
		problems.noteMissingFile()
	}
	return problems
}

// noteMissingFile adds to the first value that nobody gave why that may be.
func (ps Problems) noteMissingFile() {
	for i := range ps {
		if ps[i].Origin == originDefault || ps[i].Origin == "" {
			ps[i].Hint = "no configuration file was found: looked for " + strings.Join(searchPath, " and ")
			return
		}
	}
}

// split undoes errors.Join, and only that: an error may also wrap several and say one thing.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var parts []error
	var texts []string
	for _, e := range joined.Unwrap() {
		parts = append(parts, split(e)...)
		texts = append(texts, e.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return parts
}

// locate finds the key an error of a section is about, and where that key was set: it is the key whose name comes first in
// the text, in full or without its section. Two that start at the same place are told apart by their length.
func (l *Loaded) locate(keys []key, section string, err error) Problem {
	if unnumbered(section) != section { // a rule set does not know its number
		err = &numberedError{err, section}
	}
	p := Problem{Key: section, Err: err}
	text := err.Error()
	first, longest := len(text), 0
	for _, k := range keys {
		i := mention(text, k.name)
		if i < 0 && topSection(k.name) != section {
			continue
		}
		below := strings.TrimPrefix(k.name, section+".") // "kafka.brokers"
		if j := mention(text, below); i < 0 && (j == 0 || j > 0 && strings.ContainsAny(below, "._")) {
			i = j // a single word in the middle of a sentence may be just a word
		}
		if i >= 0 && (i < first || i == first && len(below) > longest) {
			p.Key, p.Origin, first, longest = k.name, l.Origin(k.name), i, len(below)
		}
	}
	return p
}

// numberedError is an error of a section that has a number, which its text gets.
type numberedError struct {
	err     error
	section string // "router[2]"
}

func (e *numberedError) Error() string { return numbered(e.err.Error(), e.section) }

func (e *numberedError) Unwrap() error { return e.err }

// numbered is a sentence about keys of a section without a number, with it.
func numbered(text, section string) string {
	return strings.ReplaceAll(text, unnumbered(section)+".", section+".")
}

// mention tells where text contains name as a whole, -1 if nowhere.
func mention(text, name string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return -1
		}
		i += from
		end := i + len(name)
		startsHere := i == 0 || !partOfName(text[i-1])
		// A full stop ends a sentence, unless another part of a name follows.
		endsHere := end == len(text) || !partOfName(text[end]) || text[end] == '.' && (end+1 == len(text) || !partOfName(text[end+1]))
		if startsHere && endsHere {
			return i
		}
		from = end
	}
}

func partOfName(c byte) bool {
	return c == '_' || c == '.' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func topSection(name string) string {
	section, _, _ := strings.Cut(name, ".")
	return section
}
