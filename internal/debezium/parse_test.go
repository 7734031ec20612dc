package debezium

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse_KnowsTheKindByTheContent(t *testing.T) {
	const class = "io.debezium.connector.postgresql.PostgresConnector"
	for name, file := range map[string]string{
		"bare": `{"connector.class": "` + class + `", "tasks.max": 1, "slot.failover": true}`,
		"with name": `{"name": "n", "config": {"connector.class": "` + class +
			`", "tasks.max": "1", "slot.failover": "true"}}`,
		"byte order mark": "\xEF\xBB\xBF" + `{"connector.class": "` + class +
			`", "tasks.max": 1, "slot.failover": true}`,
		"in a list": `[{"name": "n", "config": {"connector.class": "` + class +
			`", "tasks.max": "1", "slot.failover": "true"}}]`,
		"expanded": `{"n": {"info": {"name": "n", "config": {"connector.class": "` + class +
			`", "tasks.max": "1", "slot.failover": "true"}}}}`,
		"properties": "# a comment\nconnector.class = " + class +
			"\ntasks.max:1\nslot.failover=\\\n  true\n",
		"Debezium Server": "debezium.sink.type=kafka\ndebezium.source.connector.class=" + class +
			"\ndebezium.source.tasks.max=1\ndebezium.source.slot.failover=true\n",
		"KafkaConnector": "kind: KafkaConnector\nspec:\n  class: " + class +
			"\n  tasksMax: 1\n  config:\n    slot.failover: true\n",
		"several documents": "kind: Secret\n---\nkind: KafkaConnector\nspec:\n  class: " + class +
			"\n  tasksMax: 1\n  config: {slot.failover: true}\n---\n",
		"a mapping's anchor": "kind: KafkaConnector\nx: &c\n  slot.failover: true\nspec:\n  class: " +
			class + "\n  tasksMax: 1\n  config: *c\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("file", []byte(file))
			require.NoError(t, err)
			require.Equal(t, class, c.Properties["connector.class"])
			require.Equal(t, "1", c.Properties["tasks.max"])
			require.Equal(t, "true", c.Properties["slot.failover"])
			require.Equal(t, name == "Debezium Server", c.Server)
		})
	}
}

func TestParse_NamesTheLineAndNotTheSecret(t *testing.T) {
	secret := `"database.password": "` + canary + `"`
	for name, tt := range map[string]struct{ file, want string }{
		"truncated": {"{\n\"name\": \"n\",\n\"config\": {\n" + secret + ",\n\"x\": \"" +
			canary, "line 5: the JSON ends in the middle"},
		"missing comma": {"{\n" + secret + "\n\"a\": 1}", "line 3: not valid JSON"},
		"missing quote": {"{\n\"database.password\": " + canary + "\n}", "line 2: not valid JSON"},
		"two objects": {"{" + secret + "}\n{" + secret + "}",
			"line 2: there is more behind the end"},
		"nested": {`{"database.password": {"a": "` + canary + `"}}`,
			"database.password is not a text"},
		"null":     {`{"connector.class": "x", "slot.name": null}`, "slot.name is null"},
		"a number": {`42`, "neither connector.class"},
		"a list":   {`["` + canary + `"]`, "expected one JSON object"},
		"a wrong escape": {"connector.class=x\ndatabase.password=\\u" + canary + "\n",
			"line 2: not valid Java properties"},
		"bad YAML": {"kind: KafkaConnector\nspec:\n  config:\n   database.password: [" +
			canary + "\n", "not valid YAML"},
		"a list in YAML": {"kind: KafkaConnector\nspec:\n  config:\n    database.password: [" +
			canary + "]\n", "line 4: spec.config.database.password is a list"},
		"a loop in YAML": {"kind: KafkaConnector\nspec: &a\n  config: *a\n", "levels deep"},
		"no KafkaConnector": {"kind: Deployment\nspec: {password: " + canary + "}\n",
			"no document of kind KafkaConnector"},
		"two KafkaConnectors": {"kind: KafkaConnector\n---\nkind: KafkaConnector\n",
			"2 documents of kind KafkaConnector"},
		"two connectors": {`{"a": {"info": {"config": {"connector.class": "PostgresConnector"}}}, "b": {"info": {"config": {"connector.class": "PostgresConnector"}}}}`,
			"2 connectors for PostgreSQL (a, b)"},
		"another sink": {"debezium.sink.type=kinesis\ndebezium.source.connector.class=x\n",
			"debezium.sink.type is not kafka"},
		"a profile": {"debezium.sink.type=kafka\n%dev.debezium.source.slot.name=x\n",
			"%dev.debezium.source.slot.name belongs to a profile"},
		"given twice": {"debezium.sink.type=kafka\ndebezium.source.slot.name=x\nslot.name=y\n",
			"debezium.source.slot.name and slot.name are the same"},
		"a worker": {"bootstrap.servers=a:1\ngroup.id=connect\nsasl.jaas.config=" + canary + "\n",
			"configuration of a worker"},
		"something else": {"hello: world\npassword: " + canary + "\n", "neither connector.class"},
		"empty":          {" \n", "the file is empty"},
		"no text":        {"\x7fELF\x00\x01", "the file is no text"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("dir/file.json", []byte(tt.file))
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "dir/file.json: ")
			require.NotContains(t, err.Error(), canary)
		})
	}
}

// A copy that broke off is the commonest damage; none of it may print a line of the file.
func TestParse_SurvivesEveryTruncation(t *testing.T) {
	for path := range samples(t) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for n := range data {
			c, err := Parse(path, data[:n])
			if err != nil {
				require.NotContains(t, err.Error(), canary)
				continue
			}
			require.NotContains(t, strings.Join(texts(Translate(c, Options{})), "\n"), canary)
		}
	}
}

func texts(tr *Translation) []string {
	var all []string
	for _, i := range tr.Items {
		all = append(all, i.Text)
	}
	return all
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"connector.class": "x", "transforms": "a,a,b", "transforms.a.type": "EventRouter"}`))
	f.Add([]byte("debezium.sink.type=kafka\ndebezium.format.key=avro\n"))
	f.Add([]byte("kind: KafkaConnector\nspec: {config: {table.include.list: '(a|b)\\.[c-z]'}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err != nil {
			return
		}
		tr := Translate(c, Options{})
		in := 0
		for _, i := range tr.Items {
			if !i.Default {
				in++
			}
		}
		require.Equal(t, len(c.Properties), in)
		require.NotEmpty(t, tr.TOML())
	})
}
