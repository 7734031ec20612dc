package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/config"
	"postrider/debezium"
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
func (g *golden) connector(t *testing.T) debezium.Connector {
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
		require.True(t, known, "%s.converter %q", what, format)
		p[what+".converter"] = class
		if strings.HasPrefix(format, "json") {
			p[what+".converter.schemas.enable"] = fmt.Sprint(format == "json+schema")
		}
	}
	maps.Copy(p, g.ConverterOption)
	return debezium.Connector{Name: "golden", Properties: p}
}

// errRefused is a configuration that import-debezium refuses: the user learns of it before anything is started.
var errRefused = errors.New("refused by import-debezium")

// configuration is what import-debezium makes of the recording's connector. conn is used for patterns of tables.
func (g *golden) configuration(t *testing.T, conn *pgx.Conn, brokers []string) (config.Config, error) {
	t.Helper()
	tr := debezium.Translate(g.connector(t), debezium.Options{
		Brokers: brokers,
		Tables:  func(pattern string) ([]string, error) { return tablesLike(conn, pattern) },
	})
	if refused := tr.Refused(); len(refused) > 0 {
		return config.Config{}, fmt.Errorf("%w: %s: %s", errRefused, refused[0].Property, refused[0].Text)
	}
	path := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(path, tr.TOML(), 0o600))
	l, err := config.LoadValid(config.Source{Path: path})
	if err != nil {
		return config.Config{}, err
	}
	cfg := l.Config
	for i := range cfg.Router {
		cfg.Router[i].TracingHeaders = g.TracingLibrary // which no connector's configuration tells
	}
	return cfg, nil
}

func tablesLike(conn *pgx.Conn, pattern string) ([]string, error) {
	rows, err := conn.Query(context.Background(), `
		SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema' ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	return debezium.Match(pattern, all)
}
