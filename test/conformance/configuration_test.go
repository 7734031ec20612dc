package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/debezium"
)

// connectorDefaults are the options of every recording, beside Debezium's own defaults.
var connectorDefaults = map[string]string{
	"connector.class":             "io.debezium.connector.postgresql.PostgresConnector",
	"topic.prefix":                "pg",
	"plugin.name":                 "pgoutput",
	"publication.name":            "dbz_publication",
	"publication.autocreate.mode": "disabled",
	"table.include.list":          "public.outbox",
	"snapshot.mode":               "no_data",
	"extended.headers.enabled":    "false",
	"database.hostname":           "localhost",
	"database.dbname":             "shop",
	"database.user":               "debezium",

	"transforms":             "outbox",
	"transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",

	// The recordings' broker makes topics with four partitions.
	"topic.creation.default.partitions":         "4",
	"topic.creation.default.replication.factor": "1",
}

var converterClasses = map[string]string{
	"string":      "org.apache.kafka.connect.storage.StringConverter",
	"json":        "org.apache.kafka.connect.json.JsonConverter",
	"json+schema": "org.apache.kafka.connect.json.JsonConverter",
	"binary":      "io.debezium.converters.BinaryDataConverter",
	"bytearray":   "org.apache.kafka.connect.converters.ByteArrayConverter",
	"simple":      "org.apache.kafka.connect.storage.SimpleHeaderConverter",
}

// connector is the configuration that the recording was made with, as Kafka Connect has it.
func (g *golden) connector() (debezium.Connector, error) {
	p := maps.Clone(connectorDefaults)
	maps.Copy(p, g.Connector)
	for name, value := range g.Router {
		p["transforms.outbox."+name] = value
	}
	for what, format := range map[string]string{"key": g.KeyConverter, "value": g.ValueConverter, "header": g.HeaderConverter} {
		if _, given := g.ConverterOption[what+".converter"]; given {
			continue
		}
		class, known := converterClasses[format]
		if !known {
			return debezium.Connector{}, fmt.Errorf("the recording has an unknown %s_converter %q", what, format)
		}
		p[what+".converter"] = class
		if strings.HasPrefix(format, "json") {
			p[what+".converter.schemas.enable"] = fmt.Sprint(format == "json+schema")
		}
	}
	maps.Copy(p, g.ConverterOption)
	return debezium.Connector{Name: "golden", Properties: p}, nil
}

// errRefused is a configuration that import-debezium refuses: the user learns of it before anything is started.
var errRefused = errors.New("refused by import-debezium")

// configuration is what import-debezium makes of the recording's connector, loaded as run loads it.
func (w *worker) configuration(ctx context.Context, g *golden) (config.Config, error) {
	connector, err := g.connector()
	if err != nil {
		return config.Config{}, err
	}
	tables, _, err := debezium.ReadTables(ctx, w.db.side)
	if err != nil {
		return config.Config{}, err
	}
	tr := debezium.Translate(connector, debezium.Options{
		Brokers: w.suite.topics.broker.Brokers(), Tables: tables,
	})
	if refused := tr.Refused(); len(refused) > 0 {
		return config.Config{}, fmt.Errorf("%w: %s: %s", errRefused, refused[0].Property, refused[0].Text)
	}
	if err := os.WriteFile(w.file, tr.TOML(), 0o600); err != nil {
		return config.Config{}, err
	}
	l, err := config.LoadValid(config.Source{Path: w.file})
	if err != nil {
		return config.Config{}, err
	}
	cfg := l.Config
	for i := range cfg.Router {
		cfg.Router[i].TracingHeaders = g.TracingLibrary // which no connector's configuration tells
	}
	return cfg, nil
}
