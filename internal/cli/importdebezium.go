package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/debezium"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
)

// debeziumImport is one run of import-debezium.
type debeziumImport struct {
	app            *app
	file           string
	output         string
	force          bool
	draft          bool
	asJSON         bool
	databaseURL    string
	tables         []string
	brokers        []string
	topicPrefix    string
	key, value     string
	tablesInServer []string            // with --postgres
	columns        map[string][]string // of them
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
	f.BoolVar(&i.asJSON, "json", false,
		"print the report as one JSON object on standard output, the configuration in it unless "+
			"--output takes it")
	f.StringVar(&i.databaseURL, "postgres", "",
		"`URL` of the database, to find the tables of patterns and to look for the columns")
	f.StringArrayVar(&i.tables, "table", nil,
		"an outbox `table`, schema.name, where the file has a pattern or nothing; may be repeated")
	f.StringSliceVar(&i.brokers, "brokers", nil, "the worker's bootstrap.servers, `host:port`,...")
	f.StringVar(&i.topicPrefix, "topic-prefix", "",
		"the `prefix` that consumers see, where the file has no topic.prefix "+
			"(default "+debezium.DefaultTopicPrefix+")")
	f.StringVar(&i.key, "key-converter", "",
		"the worker's key.converter, where the file has none: a `class`, or string, json, "+
			"json+schema, binary")
	f.StringVar(&i.value, "value-converter", "",
		"the worker's value.converter, where the file has none: a `class`, or string, json, "+
			"json+schema, binary")
	cmd.MarkFlagsMutuallyExclusive("postgres", "table")
	return cmd
}

func (i *debeziumImport) run(ctx context.Context) error {
	data, err := i.read()
	if err != nil {
		return err
	}
	if err := i.writable(); err != nil {
		return err
	}
	connector, err := debezium.Parse(i.file, data)
	if err != nil {
		return &exit.Error{Code: exit.Config, Err: err,
			Next: "give the connector's configuration as Kafka Connect has it: curl -s " +
				"http://CONNECT:8083/connectors/NAME"}
	}
	if i.databaseURL != "" {
		if err := i.look(ctx); err != nil {
			return exit.Explain(err)
		}
	}
	t := debezium.Translate(connector, debezium.Options{
		Tables: i.resolver(), KeyConverter: i.key, ValueConverter: i.value,
		TopicPrefix: i.topicPrefix, Brokers: i.brokers,
	})
	if err := i.judge(t); err != nil {
		return err
	}
	return i.write(connector, t)
}

func (i *debeziumImport) read() ([]byte, error) {
	if i.file == "-" {
		i.file = "standard input"
		data, err := io.ReadAll(i.app.Stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	}
	data, err := os.ReadFile(i.file)
	if err != nil {
		return nil, &exit.Error{Code: exit.Config, Err: err}
	}
	return data, nil
}

// writable comes first: a report that cannot be kept is of no use.
func (i *debeziumImport) writable() error {
	if i.output == "" || i.force {
		return nil
	}
	if _, err := os.Lstat(i.output); !errors.Is(err, fs.ErrNotExist) {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s exists", i.output),
			Next: "name another file with --output, or overwrite it with --force"}
	}
	return nil
}

// look reads the tables and columns of the database.
func (i *debeziumImport) look(ctx context.Context) error {
	conn, err := postgres.Connect(ctx,
		postgres.Config{URL: secret.Of(i.databaseURL),
			ConnectTimeout: postgres.DefaultConfig().ConnectTimeout})
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	rows, err := conn.Query(ctx, `SELECT pg_catalog.format('%s.%s', n.nspname, c.relname), a.attname
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname::text NOT LIKE 'pg\_%'
		ORDER BY 1, a.attnum`)
	if err != nil {
		return fmt.Errorf("look for tables: %w", postgres.Error(err))
	}
	i.columns = map[string][]string{}
	var table string
	var column *string
	_, err = pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		if _, known := i.columns[table]; !known {
			i.tablesInServer = append(i.tablesInServer, table)
			i.columns[table] = []string{}
		}
		if column != nil {
			i.columns[table] = append(i.columns[table], *column)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for tables: %w", postgres.Error(err))
	}
	return nil
}

// resolver finds the tables of a pattern in the database or among those of the command line.
func (i *debeziumImport) resolver() func(pattern string) ([]string, error) {
	known := i.tablesInServer
	if i.databaseURL == "" {
		known = i.tables
	}
	if i.databaseURL == "" && len(known) == 0 {
		return nil
	}
	return func(pattern string) ([]string, error) { return debezium.Match(pattern, known) }
}

// judge loads the new configuration as run does, and compares the columns. It refuses a property
// from which a problem comes.
func (i *debeziumImport) judge(t *debezium.Translation) error {
	for _, c := range t.Columns {
		columns, known := i.columns[c.Table]
		if known && !c.Optional && !slices.Contains(columns, c.Name) {
			t.Reject(c.Key, fmt.Sprintf("table %s has no column %s", c.Table, c.Name))
		}
	}
	dir, err := os.MkdirTemp("", "postrider-import-")
	if err != nil {
		return fmt.Errorf("check the configuration: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "postrider.toml")
	if err := os.WriteFile(path, t.TOML(), 0o600); err != nil {
		return fmt.Errorf("check the configuration: %w", err)
	}
	src := config.Source{Path: path}
	for _, v := range t.Variables {
		src.Env = append(src.Env, v+"=x")
	}
	// Without [postgres], whose files and variables are another machine's.
	_, err = config.LoadValid(src, "slot", "snapshot", "replication", "router", "format", "sink",
		"relay")
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return fmt.Errorf("check the configuration: %w", err)
	}
	already := len(t.Refused()) > 0
	for _, p := range problems {
		if already && p.Origin == "default" {
			continue // it follows from a refused property
		}
		why := strings.TrimPrefix(p.Err.Error(), p.Key+" ")
		if p.Hint != "" {
			why += "; " + p.Hint
		}
		t.Reject(p.Key, why)
	}
	return nil
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
	if i.asJSON {
		if err := i.app.printJSON(r); err != nil {
			return err
		}
	} else {
		r.Print(i.app.Stderr)
		if toml != nil && i.output == "" {
			if _, err := i.app.Stdout.Write(toml); err != nil {
				return fmt.Errorf("write the configuration: %w", err)
			}
		}
	}
	if refused {
		return exit.Status(exit.Config)
	}
	return nil
}
