// Package config reads, checks and prints the configuration. A Config has one field per section,
// each the Config type of the package that uses it. The struct tags are the table of keys from
// which file, environment, flags, print and schema follow.
//
// A key is a name ("sink.kafka.brokers"), a field, a default, and lines in config.example.toml: to
// add one, write the last three; a test fails for what is missing.
//
//	config.go      Config, its defaults, what follows from several sections, [sink] and [log]
//	keys.go        every key, found by reflection
//	kind.go        the types of keys: reading, setting and printing a value
//	topicrates.go  the kind of [[relay.rate]]
//	load.go        Load: file, environment and flags, in this order; what a reload takes over
//	file.go        the TOML file, with the line of each key
//	environment.go variables, ${NAME} in values, and the name that was probably meant
//	validate.go    the checks of every section
//	problem.go     an error of the configuration, with its key and place
//	print.go       the configuration in effect
//	mask.go        which values may be printed, and URLs without their secrets
//	schema.go      the JSON Schema, and the comments of config.example.toml
package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/internal/writeback"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// Config is everything that can be configured.
type Config struct {
	Postgres    postgres.Config    `toml:"postgres"`
	Slot        slot.Config        `toml:"slot"`
	Replication replication.Config `toml:"replication"`
	Router      []router.Config    `toml:"router"` // rule sets, at least one
	Format      router.Format      `toml:"format"`
	Registry    registry.Config    `toml:"registry"`
	Sink        Sink               `toml:"sink"`
	Snapshot    backfill.Config    `toml:"snapshot"`
	Relay       relay.Config       `toml:"relay"`
	Prune       prune.Config       `toml:"prune"`
	WriteBack   writeback.Config   `toml:"write_back"`
	DeadLetter  deadletter.Config  `toml:"deadletter"`
	Monitor     monitor.Config     `toml:"monitor"`
	Health      health.Config      `toml:"health"`
	Alerts      alerts.Config      `toml:"alerts"`
	HTTP        httpserver.Config  `toml:"http"`
	Admin       httpserver.Admin   `toml:"admin"`
	Log         Log                `toml:"log"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Postgres:    postgres.DefaultConfig(),
		Slot:        slot.DefaultConfig(),
		Replication: replication.DefaultConfig(),
		Router:      []router.Config{router.DefaultConfig()},
		Format:      router.DefaultFormat(),
		Registry:    registry.DefaultConfig(),
		Sink:        Sink{Kind: SinkKafka, Kafka: kafka.DefaultConfig()},
		Snapshot:    backfill.DefaultConfig(),
		Relay:       relay.DefaultConfig(),
		Prune:       prune.DefaultConfig(),
		WriteBack:   writeback.DefaultConfig(),
		DeadLetter:  deadletter.DefaultConfig(),
		Monitor:     monitor.DefaultConfig(),
		Health:      health.DefaultConfig(),
		Alerts:      alerts.DefaultConfig(),
		HTTP:        httpserver.DefaultConfig(),
		Log:         Log{Level: "info", Format: "auto"},
	}
}

// Requirements are the relay's requirements of the server.
func (c Config) Requirements() slot.Requirements {
	return slot.Requirements{
		Slot: c.Slot, Publication: c.Replication.Publication, Tables: c.Replication.Tables,
	}
}

// KeyColumns are the columns that the table's router uses.
func (c Config) KeyColumns(table string) backfill.KeyColumns {
	r := backfill.KeyColumns{ID: router.DefaultConfig().FieldID, OrderBy: c.Snapshot.OrderBy}
	if rule, found := c.Rule(table); found {
		r.ID, r.Timestamp = rule.FieldID, rule.FieldTimestamp
	}
	return r
}

// WriteBackTables are the tables that are written back.
func (c Config) WriteBackTables() []prune.Source {
	if len(c.WriteBack.Tables) > 0 {
		return c.Sources(c.WriteBack.Tables)
	}
	return c.Sources(c.Replication.Tables)
}

// Sources are tables with the columns that their routers use.
func (c Config) Sources(names []string) []prune.Source {
	tables := make([]prune.Source, len(names))
	for i, name := range names {
		columns := c.KeyColumns(name)
		tables[i] = prune.Source{Table: name, ID: columns.ID, Timestamp: columns.Timestamp}
	}
	return tables
}

// Rule is the rule set of a table; false: no rule set is for it, or the rule sets are not valid.
func (c Config) Rule(table string) (router.Config, bool) {
	rules, err := router.Divide(c.Router, c.Replication.Tables, c.Replication.Messages)
	if err != nil {
		return router.Config{}, false
	}
	for _, r := range rules {
		if slices.Contains(r.Tables, table) {
			return r, true
		}
	}
	return router.Config{}, false
}

// OwnTopics are the topics of the relay itself. No event is published to one of them, whatever its
// row requests: a forged position would make the relay leave out rows.
func (c Config) OwnTopics() []string {
	own := []string{c.DeadLetter.Topic, c.Relay.PositionTopic, c.Snapshot.Topic}
	return slices.DeleteFunc(own, func(topic string) bool { return topic == "" })
}

// HeartbeatTopic is where heartbeats go.
func (c Config) HeartbeatTopic() string {
	return cmp.Or(c.Relay.HeartbeatTopic, router.HeartbeatTopic(c.Router[0].TopicPrefix))
}

// The values of sink.kind.
const (
	SinkKafka  = "kafka"
	SinkStdout = "stdout" // JSON lines, to see what would be published
)

// Sink is the section [sink]: one kind, and a sub-section per kind.
type Sink struct {
	Kind  string       `toml:"kind"`
	Kafka kafka.Config `toml:"kafka"`
}

// Validate checks the sub-section of the chosen kind alone.
func (s Sink) Validate() error {
	switch s.Kind {
	case SinkKafka:
		return s.Kafka.Validate()
	case SinkStdout:
		return nil
	}
	return fmt.Errorf("sink.kind is %q: it must be %s or %s", s.Kind, SinkKafka, SinkStdout)
}

// Log is the section [log].
type Log struct {
	Level  string `toml:"level"`  // trace | debug | info | warn | error
	Format string `toml:"format"` // auto | console | json
}

// The accepted values.
var (
	LogLevels  = []string{"trace", "debug", "info", "warn", "error"}
	LogFormats = []string{"auto", "console", "json"}
)

// Validate reports every wrong value.
func (l Log) Validate() error {
	return errors.Join(oneOf("log.level", l.Level, LogLevels),
		oneOf("log.format", l.Format, LogFormats))
}

func oneOf(key, value string, accepted []string) error {
	if slices.Contains(accepted, value) {
		return nil
	}
	return fmt.Errorf("%s is %q: it must be one of %s", key, value, strings.Join(accepted, ", "))
}
