// Package config reads, checks and prints the configuration. A Config has one field per section,
// each the Config type of the package that uses it. The struct tags are the table of keys from
// which file, environment, flags, print and schema follow.
//
// A key is a name ("sink.kafka.brokers"), a field, a default, and lines in config.example.toml: to
// add one, write the last three; a test fails for what is missing.
//
//	config.go      Config and its defaults
//	keys.go        every key, found by reflection
//	load.go        Load: file, environment and flags, in this order
//	file.go        the TOML file
//	lines.go       the line of each key in the file
//	environment.go variables, and ${NAME} in values
//	suggest.go     the name that was probably meant
//	setvalue.go    setting a key
//	value.go       the value of a key, as TOML and JSON
//	units.go       sizes and durations as text
//	validate.go    the checks of every section
//	locate.go      which key an error is about
//	problem.go     an error of the configuration, with its place
//	print.go       the configuration in effect
//	shown.go       which values may be printed
//	mask.go        URLs without their secrets
//	schema.go      the JSON Schema
//	example.go     the comments of config.example.toml
//	adopt.go       what a reload takes over
//	derived.go     requirements and topics that follow from several sections
//	sink.go        the section [sink]
//	log.go         the section [log]
package config

import (
	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
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
	Sink        Sink               `toml:"sink"`
	Snapshot    backfill.Config    `toml:"snapshot"`
	Relay       relay.Config       `toml:"relay"`
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
		Sink:        defaultSink(),
		Snapshot:    backfill.DefaultConfig(),
		Relay:       relay.DefaultConfig(),
		DeadLetter:  deadletter.DefaultConfig(),
		Monitor:     monitor.DefaultConfig(),
		Health:      health.DefaultConfig(),
		Alerts:      alerts.DefaultConfig(),
		HTTP:        httpserver.DefaultConfig(),
		Log:         defaultLog(),
	}
}
