package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/debezium"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
)

// debeziumImport is one call of import-debezium.
type debeziumImport struct {
	*app
	file        string
	output      string
	force       bool
	draft       bool
	databaseURL string
	options     debezium.Options
}

func newImportDebezium(a *app) *cobra.Command {
	i := &debeziumImport{app: a}
	cmd := &cobra.Command{
		Use:   "import-debezium FILE",
		Short: "Turn the configuration of a Debezium connector into postrider.toml",
		Long: `Reads the configuration of a Debezium connector for PostgreSQL with the Outbox
Event Router: the JSON of Kafka Connect (the map alone, with name and config, or from GET
/connectors?expand=info), a properties file, Debezium Server's application.properties, or a
Strimzi KafkaConnector. "-" reads standard input.

The configuration is written to standard output, or to --output. The report on standard error
says of each property whether it is mapped, not needed (and why), or refused (and what to do).
With anything refused the exit code is 78 and no configuration is written, unless --draft
is given. Passwords and keys are never copied.`,
		Example: `  postrider import-debezium connector.json --brokers kafka-1:9092 --output postrider.toml
  curl -s localhost:8083/connectors/orders | postrider import-debezium -
  postrider import-debezium application.properties --postgres "$DATABASE_URL" --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i.file = args[0]
			return i.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&i.output, "output", "o", "",
		"write the configuration to this `file` instead of standard output")
	f.BoolVar(&i.force, "force", false, "overwrite the file of --output")
	f.BoolVar(&i.draft, "draft", false,
		"write the configuration although something is refused; the exit code is still 78")
	a.jsonFlag(cmd,
		"print the report as one JSON object on standard output, the configuration in it unless "+
			"--output takes it")
	f.StringVar(&i.databaseURL, "postgres", "",
		"`URL` of the database, to find the tables of patterns and to look for the columns")
	f.StringArrayVar(&i.options.Tables, "table", nil,
		"an outbox `table`, schema.name, where the file has a pattern or nothing; may be repeated")
	f.StringSliceVar(&i.options.Brokers, "brokers", nil,
		"the worker's bootstrap.servers, `host:port`,...")
	f.StringVar(&i.options.TopicPrefix, "topic-prefix", "",
		"the `prefix` that consumers see, where the file has no topic.prefix "+
			"(default "+debezium.DefaultTopicPrefix+")")
	const converter = ", where the file has none: a `class`, or string, json, json+schema, binary, " +
		"avro, json_schema, protobuf"
	f.StringVar(&i.options.KeyConverter, "key-converter", "",
		"the worker's key.converter"+converter)
	f.StringVar(&i.options.ValueConverter, "value-converter", "",
		"the worker's value.converter"+converter)
	cmd.MarkFlagsMutuallyExclusive("postgres", "table")
	return cmd
}

func (i *debeziumImport) run(ctx context.Context) error {
	data, err := i.read(i.file)
	if err != nil {
		return &exit.Error{Code: exit.Config, Err: err}
	}
	if i.file == "-" {
		i.file = "standard input"
	}
	// First: a report that cannot be kept is of no use.
	if i.output != "" && !i.force {
		if _, err := os.Lstat(i.output); !errors.Is(err, fs.ErrNotExist) {
			return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s exists", i.output),
				Next: "name another file with --output, or overwrite it with --force"}
		}
	}
	connector, err := debezium.Parse(i.file, data)
	if err != nil {
		return &exit.Error{Code: exit.Config, Err: err,
			Next: "give the connector's configuration as Kafka Connect has it: curl -s " +
				"http://CONNECT:8083/connectors/NAME"}
	}
	var columns map[string][]string
	if i.databaseURL != "" {
		cfg := config.Config{Postgres: postgres.Config{URL: secret.Of(i.databaseURL),
			ConnectTimeout: postgres.DefaultConfig().ConnectTimeout}}
		err := i.connect(ctx, cfg, func(s *session) (err error) {
			i.options.Tables, columns, err = debezium.ReadTables(s.ctx, s.conn)
			return err
		})
		if err != nil {
			return err
		}
	}
	t := debezium.Translate(connector, i.options)
	if err := t.Judge(columns); err != nil {
		return err
	}
	return i.write(connector, t)
}

// write prints the report and, unless something is refused, the configuration.
func (i *debeziumImport) write(c debezium.Connector, t *debezium.Translation) error {
	refused := len(t.Refused()) > 0
	var toml []byte
	if !refused || i.draft {
		toml = t.TOML()
	}
	if toml != nil && i.output != "" {
		if err := os.WriteFile(i.output, toml, 0o600); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	r := debezium.NewReport(i.file, i.output, c, t, toml)
	if i.json {
		if err := i.printJSON(r); err != nil {
			return err
		}
	} else {
		r.Print(i.Stderr)
		if toml != nil && i.output == "" {
			if _, err := i.Stdout.Write(toml); err != nil {
				return fmt.Errorf("write the configuration: %w", err)
			}
		}
	}
	return statusUnless(!refused, exit.Config)
}
