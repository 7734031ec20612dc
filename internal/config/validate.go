package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/router"
)

// check is a check of one section.
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
		{"format", c.validateFormat},
		{"registry", c.validateRegistry},
		{"sink", c.Sink.Validate},
		{"snapshot", c.validateSnapshot},
		{"relay", c.Relay.Validate},
		{"relay", c.validateHeartbeat},
		{"relay", c.validatePositions},
		{"prune", c.validatePrune},
		{"write_back", c.validateWriteBack},
		{"deadletter", c.validateDeadLetters},
		{"monitor", c.Monitor.Validate},
		{"health", c.Health.Validate},
		{"alerts", c.Alerts.Validate},
		{"http", c.HTTP.Validate},
		{"admin", c.Admin.Validate},
		{"log", c.Log.Validate},
	}...)
}

// validateRules checks that every table and message has one rule set.
func (c Config) validateRules() error {
	_, err := router.Divide(c.Router, c.Replication.Tables, c.Replication.Messages)
	return err
}

// validateFormat also checks that the rule sets can be with it.
func (c Config) validateFormat() error {
	return errors.Join(c.Format.Validate(), c.Format.Fits(c.Router))
}

// validateRegistry also checks that there is one where a format needs it, and that it has what the
// format does.
func (c Config) validateRegistry() error {
	key, value := c.Format.Registered()
	if (key || value) && !c.Registry.IsSet() {
		return fmt.Errorf("registry.urls: is empty, and format.key = %q with format.value = %q needs "+
			"a schema registry", c.Format.Key, c.Format.Value)
	}
	var unfit error
	f := c.Format
	if c.Registry.Framing == registry.Glue && (f.Key == "protobuf" || f.Value == "protobuf" ||
		len(f.KeySchemaReferences)+len(f.ValueSchemaReferences) > 0) {
		unfit = fmt.Errorf("registry.framing: %q takes formats avro, json_schema and framed, without "+
			"references", registry.Glue)
	}
	return errors.Join(unfit, c.Registry.Validate())
}

// needsKafka refuses a sink without topics; what ends with need or needs.
func (c Config) needsKafka(what, does string) error {
	if c.Sink.Kind == SinkKafka {
		return nil
	}
	return fmt.Errorf("%s sink.kind = %q: nothing else %s", what, SinkKafka, does)
}

// validateSnapshot also checks that the sink can store how far a snapshot has come.
func (c Config) validateSnapshot() error {
	err := c.Snapshot.Validate()
	if err == nil && c.Snapshot.On() {
		err = c.needsKafka(fmt.Sprintf("snapshot.mode = %q needs", c.Snapshot.Mode),
			"remembers which rows were published")
	}
	return err
}

// validateHeartbeat makes a heartbeat: not every format can.
func (c Config) validateHeartbeat() error {
	key, value := c.Format.Registered()
	if c.Relay.HeartbeatInterval <= 0 || key || value { // a registry's formats take it
		return nil
	}
	_, err := router.Heartbeat(c.Format, router.Registries{}, c.HeartbeatTopic(),
		c.Router[0].TopicPrefix, time.Now())
	if err != nil {
		return fmt.Errorf("relay.heartbeat_interval: %w; set it to \"0s\", or choose another format",
			err)
	}
	return nil
}

// validatePositions checks that the sink and the messages support what [relay] requires.
func (c Config) validatePositions() error {
	if c.Relay.PositionTopic == c.Snapshot.Topic {
		return fmt.Errorf("relay.position_topic and snapshot.topic are both %q: name two topics",
			c.Snapshot.Topic)
	}
	tail := c.Relay.Dedup == relay.DedupTail
	if c.Relay.ExactlyOnce || tail {
		err := c.needsKafka("relay.exactly_once and relay.dedup need", "remembers positions")
		if err != nil {
			return err
		}
	}
	without := func(r router.Config) bool { return !r.PositionHeaders }
	if tail && slices.ContainsFunc(c.Router, without) {
		return fmt.Errorf("relay.dedup = %q needs router.position_headers = true: what is in a topic "+
			"is recognised by them", relay.DedupTail)
	}
	return nil
}

// validatePrune also checks that there are tables, and a sink that keeps what it acknowledges.
func (c Config) validatePrune() error {
	err := c.Prune.Validate()
	switch {
	case err != nil || !c.Prune.Enabled:
		return err
	case len(c.Replication.Tables) == 0:
		return errors.New("prune.enabled needs replication.tables: logical messages are in no table")
	}
	return c.needsKafka("prune.enabled needs", "keeps the rows")
}

// validateWriteBack also checks the tables, and that the sink keeps what it acknowledges.
func (c Config) validateWriteBack() error {
	err := c.WriteBack.Validate()
	if err != nil || !c.WriteBack.Enabled {
		return err
	}
	for _, table := range c.WriteBack.Tables {
		if !slices.Contains(c.Replication.Tables, table) {
			return fmt.Errorf("write_back.tables names %q, which is not in replication.tables", table)
		}
	}
	if len(c.Replication.Tables) == 0 {
		return errors.New("write_back.enabled needs replication.tables: messages are in no table")
	}
	return c.needsKafka("write_back.enabled needs", "keeps the rows")
}

func (c Config) validateDeadLetters() error {
	if err := c.DeadLetter.Validate(); err != nil {
		return err
	}
	for _, other := range []struct{ key, topic string }{
		{"relay.position_topic", c.Relay.PositionTopic}, {"snapshot.topic", c.Snapshot.Topic},
	} {
		if c.DeadLetter.Topic == other.topic {
			return fmt.Errorf("deadletter.topic and %s are both %q: the one is a log and the other is "+
				"compacted; name two topics", other.key, other.topic)
		}
	}
	if c.DeadLetter.On() {
		return c.needsKafka("policy dead_letter needs", "keeps dead letters")
	}
	return nil
}

// Validate calls the Validate of each section, or of the named ones: `postrider slot list` works
// before a broker is configured. The error is a Problems.
func (l *Loaded) Validate(sections ...string) error { return l.validate(sections).or() }

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

// noteMissingFile adds to the first problem about a default that no file was found.
func (ps Problems) noteMissingFile() {
	for i := range ps {
		if ps[i].Origin == originDefault || ps[i].Origin == "" {
			ps[i].Hint = "no configuration file was found: looked for " + strings.Join(searchPath, " and ")
			return
		}
	}
}
