package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/debezium"
	"github.com/postrider/postrider/internal/exit"
)

// connectorFiles are the configurations that package debezium is tested with, by absolute path.
func connectorFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../debezium/testdata/*")
	require.NoError(t, err)
	var files []string
	for _, path := range paths {
		if strings.HasSuffix(path, ".golden") {
			continue
		}
		path, err = filepath.Abs(path)
		require.NoError(t, err)
		files = append(files, path)
	}
	require.GreaterOrEqual(t, len(files), 12)
	return files
}

// importedEnv has what the written configurations refer to. The URL replaces those that name
// certificates of other machines.
var importedEnv = []string{"DB_HOST=db", "DB_PASSWORD=x", "CDC_PASSWORD=x", "DATABASE_USER=x",
	"DATABASE_HOSTNAME=x", "POSTRIDER_POSTGRES_URL=postgres://db/x"}

func TestImportDebezium_WritesConfigurationsThatAreValid(t *testing.T) {
	valid, refused := 0, 0
	for _, file := range connectorFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Chdir(t.TempDir())
			r := execute(t, nil, "import-debezium", file)
			if r.code != exit.OK {
				refused++
				require.Equal(t, exit.Config, r.code, r.stderr)
				require.Empty(t, r.stdout, "nothing that could be run")
				require.Contains(t, r.stderr, "\nrefused\n")
				r = execute(t, nil, "import-debezium", file, "--draft")
				require.Equal(t, exit.Config, r.code)
				require.Contains(t, r.stdout, "[postgres]")
				return
			}
			valid++
			require.NotContains(t, r.stderr, "\nrefused\n")
			require.NoError(t, os.WriteFile("postrider.toml", []byte(r.stdout), 0o600))
			v := execute(t, importedEnv, "config", "validate")
			require.Equal(t, exit.OK, v.code, v.stderr)
		})
	}
	require.Greater(t, valid, 6)
	require.Greater(t, refused, 4)
}

func TestImportDebezium_AccountsForEveryPropertyInJSON(t *testing.T) {
	for _, file := range connectorFiles(t) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		c, err := debezium.Parse(file, data)
		require.NoError(t, err)
		var printed struct {
			Properties, Mapped, Refused int
			NotNeeded                   int `json:"not_needed"`
			Items                       []struct {
				Property, Outcome, Text string
				Settings                []string
				Default                 bool
			}
			TOML string
			Next []string
		}
		r := execute(t, nil, "import-debezium", "--json", file)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &printed), r.stderr)
		require.Empty(t, r.stderr)
		require.Equal(t, len(c.Properties), printed.Properties)
		require.Equal(t, r.code == exit.OK, printed.Refused == 0)
		require.Equal(t, r.code == exit.OK, printed.TOML != "")
		require.NotEmpty(t, printed.Next)
		inFile := 0
		for _, i := range printed.Items {
			require.Contains(t, []string{"mapped", "not needed", "refused"}, i.Outcome)
			require.NotEmpty(t, i.Text+strings.Join(i.Settings, ""), i.Property)
			if !i.Default {
				inFile++
			}
		}
		require.Equal(t, len(c.Properties), inFile, file)
	}
}

func TestImportDebezium_NeverPrintsASecret(t *testing.T) {
	files := connectorFiles(t)
	for _, file := range files {
		for _, args := range [][]string{{}, {"--json"}, {"--draft"}, {"--draft", "--json"}} {
			r := execute(t, nil, append([]string{"import-debezium", file}, args...)...)
			require.NotEmpty(t, r.stdout+r.stderr)
			require.NotContains(t, r.stdout, canary, file)
			require.NotContains(t, r.stderr, canary, file)
		}
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"truncated.json":     `{"database.password": "c4n4ry`,
		"quotes.json":        `{"database.password": c4n4ry}`,
		"nested.json":        `{"database.password": ["c4n4ry"]}`,
		"other.txt":          "password is c4n4ry",
		"escape.properties":  "connector.class=x\ndatabase.password=\\uc4n4ry",
		"connector.yaml":     "kind: KafkaConnector\nspec: {config: {database.password: [c4n4ry]}}",
		"connector.unclosed": "kind: KafkaConnector\nspec: {config: {database.password: 'c4n4ry",
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		r := execute(t, nil, "import-debezium", name)
		require.Equal(t, exit.Config, r.code, name)
		require.Contains(t, r.stderr, name)
		require.NotContains(t, r.stderr, canary, name)
	}
	r := execute(t, nil, "import-debezium", files[0], "--postgres",
		"postgres://me:"+canary+"@127.0.0.1:1/x")
	require.Equal(t, exit.Unavailable, r.code, r.stderr)
	require.NotContains(t, r.stderr, canary)
}

// complete is a connector that leaves nothing to refuse, with something more in it.
func complete(more string) string {
	return `{"name": "orders", "config": {
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput", "topic.prefix": "pg",
		"database.hostname": "db", "database.dbname": "shop", "table.include.list": "public.outbox", "snapshot.mode": "no_data",
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter"` + more + `}}`
}

func TestImportDebezium_NamesTheUnsupportedPattern(t *testing.T) {
	t.Chdir(t.TempDir())
	for regex, want := range map[string]string{`\\X(?<routedByValue>.*)`: `the escape \X is not supported`, `(`: "unclosed group"} {
		require.NoError(t,
			os.WriteFile("c.json",
				[]byte(complete(`, "transforms.outbox.route.topic.regex": "`+regex+`"`)), 0o600))
		r := execute(t, nil, "import-debezium", "c.json")
		require.Equal(t, exit.Config, r.code)
		require.Empty(t, r.stdout)
		require.Contains(t, words(r.stderr), "transforms.outbox.route.topic.regex")
		require.Contains(t, strings.ReplaceAll(words(r.stderr), "'", `"`), want)
	}
	require.NoError(t,
		os.WriteFile("c.json",
			[]byte(complete(`, "transforms.outbox.route.topic.replacement": "x.$7"`)), 0o600))
	r := execute(t, nil, "import-debezium", "c.json")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, words(r.stderr), "transforms.outbox.route.topic.replacement")
}

// words is a text without its line breaks.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestImportDebezium_OverwritesNothingUnasked(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("c.json", []byte(complete("")), 0o600))
	require.NoError(t, os.WriteFile("postrider.toml", []byte("mine"), 0o600))
	r := execute(t, nil, "import-debezium", "c.json", "--output", "postrider.toml")
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "--force")
	kept, err := os.ReadFile("postrider.toml")
	require.NoError(t, err)
	require.Equal(t, "mine", string(kept))

	r = execute(t, nil, "import-debezium", "c.json", "--output", "postrider.toml", "--force",
		"--brokers", "k1:9092,k2:9092")
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Empty(t, r.stdout)
	written, err := os.ReadFile("postrider.toml")
	require.NoError(t, err)
	require.Contains(t, string(written), "brokers = ['k1:9092', 'k2:9092']")

	require.NoError(t,
		os.WriteFile("c.json", []byte(complete(`, "errors.tolerance": "all"`)), 0o600))
	r = execute(t, nil, "import-debezium", "c.json", "--output", "draft.toml")
	require.Equal(t, exit.Config, r.code)
	require.NoFileExists(t, "draft.toml")
	r = execute(t, nil, "import-debezium", "c.json", "--output", "draft.toml", "--draft")
	require.Equal(t, exit.Config, r.code)
	require.FileExists(t, "draft.toml")
}

func TestImportDebezium_ReadsStandardInputAndSaysWhatItCannotRead(t *testing.T) {
	t.Chdir(t.TempDir())
	i := &install{t: t}
	r := i.typed(complete(""), "import-debezium", "-")
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Contains(t, r.stderr, "standard input: connector orders, ")
	require.Contains(t, r.stdout, "[router]")

	require.Equal(t, exit.Usage, execute(t, nil, "import-debezium").code)
	r = execute(t, nil, "import-debezium", "missing.json")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stderr, "missing.json")
	require.Equal(t, exit.Usage,
		execute(t, nil, "import-debezium", "x", "--table", "a.b", "--postgres", "x").code)
}

func TestImportDebezium_TakesFromTheCommandLineWhatTheFileLeavesOut(t *testing.T) {
	t.Chdir(t.TempDir())
	text := strings.NewReplacer(`"table.include.list": "public.outbox"`,
		`"table.include.list": "public\\..*box"`,
		`"value.converter": "org.apache.kafka.connect.storage.StringConverter",`,
		"").Replace(complete(""))
	require.NoError(t, os.WriteFile("c.json", []byte(text), 0o600))
	r := execute(t, nil, "import-debezium", "c.json")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, words(r.stderr), "--table schema.name")
	r = execute(t, nil, "import-debezium", "c.json", "--table", "public.outbox", "--table",
		"public.other", "--value-converter", "json")
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Contains(t, r.stdout, "tables = ['public.outbox']")
	require.Contains(t, r.stdout, "value = 'json'")
}

func TestImportDebezium_LooksAtTheDatabase(t *testing.T) {
	i := newInstall(t, "17")
	i.exec(`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb)`)
	i.exec(`CREATE TABLE outbox_two (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, payload jsonb)`)
	i.exec(`CREATE TABLE orders (id int)`)
	text := strings.Replace(complete(`, "transforms.outbox.table.fields.additional.placement": "type:header"`), "public.outbox", `public\\.outbox.*`, 1)
	require.NoError(t, os.WriteFile("c.json", []byte(text), 0o600))

	r := i.run("import-debezium", "c.json", "--postgres", i.db.DSN())
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, words(r.stderr),
		"transforms.outbox.table.fields.additional.placement table public.outbox_two has no "+
			"column type")

	i.exec(`ALTER TABLE outbox_two ADD type text`)
	r = i.run("import-debezium", "c.json", "--postgres", i.db.DSN())
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Contains(t, r.stdout, "tables = ['public.outbox', 'public.outbox_two']")
}
