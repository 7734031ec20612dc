package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/secret"
)

// write makes a configuration file, and a working directory in which it has the name that problems
// show.
func write(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("postrider.toml", []byte(text), 0o600))
}

func TestLoad_NamesEveryProblem(t *testing.T) {
	tests := map[string]struct {
		file  string
		env   []string
		flags []Flag
		want  []string
	}{
		"unknown key": {
			file: "[slot]\n\n[replication]\npublicatoin = 'p'\n",
			want: []string{"postrider.toml:4: replication.publicatoin: unknown key; did you mean " +
				"replication.publication?"},
		},
		"key in the wrong section": {
			file: "[sink]\nbrokers = ['a:1']\n",
			want: []string{"postrider.toml:2: sink.brokers: unknown key; did you mean sink.kafka.brokers?"},
		},
		"key outside of a section": {
			file: "publication = 'p'\n",
			want: []string{"postrider.toml:1: publication: unknown key; did you mean " +
				"replication.publication?"},
		},
		"unknown section": {
			file: "[kafka]\nbrokers = ['a:1']\nclient_id = 'x'\n",
			want: []string{"postrider.toml:1: kafka: unknown section; did you mean [sink.kafka]?"},
		},
		"unknown router option": {
			file: "[router]\nroute.by.feild = 'x'\n",
			want: []string{"postrider.toml:2: router.route.by.feild: unknown key; did you mean " +
				"router.route.by.field?"},
		},
		"router option with the connector's prefix": {
			file: "[router]\ntransforms.outbox.route.by.field = 'x'\n",
			want: []string{"postrider.toml:2: router.transforms.outbox.route.by.field: unknown key; cut " +
				"the connector's prefix: route.by.field"},
		},
		"router option without quotes": {
			file: "[router]\nroute.by.field=aggregate_type\n",
			want: []string{"postrider.toml:2:16: ", "text needs quotes, 'like this'"},
		},
		"router option twice, once in quotes": {
			file: "[router]\nroute.by.field = 'x'\n'route.by.field' = 'y'\n",
			want: []string{"postrider.toml:3: router.route.by.field: given twice, also in line 2"},
		},
		"unknown option of one of several routers": {
			file: "[[router]]\n\n[[router]]\nroute.by.field = 'y'\nroute.topik.regex = 'x'\n",
			want: []string{"postrider.toml:5: router[2].route.topik.regex: unknown key; did you mean " +
				"router.route.topic.regex?"},
		},
		"option of one of several routers below a table": {
			file: "[[router]]\n[router.route]\nby.feild = 'x'\n[[router]]\n[router.route]\nby.field = 7\n",
			want: []string{
				"postrider.toml:3: router[1].route.by.feild: unknown key",
				"postrider.toml:6: router[2].route.by.field: expected a string, got the integer 7",
			},
		},
		"several routers in one line": {
			file: "router = [{ null_key = 'publish' },\n  { null_kee = 'refuse' }]\n",
			want: []string{"postrider.toml:2: router[2].null_kee: unknown key; did you mean " +
				"router.null_key?"},
		},
		"connector's prefix in one of several routers": {
			file: "[[router]]\n[[router]]\ntransforms.outbox.route.by.field = 'x'\n",
			want: []string{"postrider.toml:3: router[2].transforms.outbox.route.by.field: unknown key; " +
				"cut the connector's prefix: route.by.field"},
		},
		"variable for one of several routers": {
			file: "[[router]]\n[[router]]\n",
			env:  []string{"POSTRIDER_ROUTER_NULL_KEY=publish"},
			want: []string{"env POSTRIDER_ROUTER_NULL_KEY: router.null_key: the file has several " +
				"[[router]]", "--set router[1].null_key=..."},
		},
		"flag for one of several routers": {
			file: "[[router]]\n[[router]]\n",
			flags: []Flag{
				{Key: "router.null_key", Value: "publish", Name: "--set"},
				{Key: "router[2].null_key", Value: "publish", Name: "--set"},
			},
			want: []string{"configuration: flag --set: router.null_key: the file has several [[router]]"},
		},
		"no router in a list": {
			file: "router = []\n",
			want: []string{"postrider.toml:1: router: expected one section; write [router] once"},
		},
		"section in a list in one line": {
			file: "\nrelay = [{ drain_timeout = 20 }]\n",
			want: []string{"postrider.toml:2: relay.drain_timeout: expected a duration"},
		},
		"several of another section": {
			file: "[[relay]]\n[[relay]]\n",
			want: []string{"postrider.toml:1: relay: expected one section; write [relay] once"},
		},
		"section as a value": {
			file: "replication = 'p'\n",
			want: []string{`postrider.toml:1: replication: expected a section, got a string; write [replication] on a line of its own`},
		},
		"value as a section": {
			file: "[replication.publication]\nname = 'p'\n",
			want: []string{"postrider.toml:1: replication.publication: expected a string, got a table"},
		},
		"string for a list": {
			file: "[replication]\ntables = 'public.outbox'\n",
			want: []string{`postrider.toml:2: replication.tables: expected a list of strings, got the string "public.outbox"; write ["public.outbox"]`},
		},
		"list with a number": {
			file: "[replication]\ntables = ['a', 1]\n",
			want: []string{"expected a list of strings, but item 2 is the integer 1"},
		},
		"number for a duration": {
			file: "[relay]\ndrain_timeout = 20\n",
			want: []string{`postrider.toml:2: relay.drain_timeout: expected a duration such as "10s", got the integer 20`},
		},
		"duration without a unit": {
			file: "[relay]\ndrain_timeout = '20'\n",
			want: []string{`expected a duration such as "10s", got "20"`},
		},
		"decimal megabytes": {
			file: "[relay]\nin_flight_bytes = '16MB'\n",
			want: []string{`relay.in_flight_bytes: expected a size such as "16MiB" (B, KiB, MiB, GiB, TiB), got "16MB"`},
		},
		"size beyond the largest": {
			file: "[relay]\nin_flight_bytes = '99999999TiB'\n",
			want: []string{`expected a size such as "16MiB"`},
		},
		"string for a boolean": {
			file: "[sink.kafka.tls]\nenabled = 'true'\n",
			want: []string{`sink.kafka.tls.enabled: expected true or false, got the string "true"`},
		},
		"string for a number": {
			file: "[relay]\nin_flight_messages = '20000'\n",
			want: []string{`relay.in_flight_messages: expected an integer, got the string "20000"`},
		},
		"key in an inline table": {
			file: "[sink]\nkafka = { brokers = ['a:1'],\n  tls = { enabeld = true } }\n",
			want: []string{"postrider.toml:3: sink.kafka.tls.enabeld: unknown key; did you mean " +
				"sink.kafka.tls.enabled?"},
		},
		"duplicate key": {
			file: "[log]\nlevel = 'info'\nlevel = 'warn'\n",
			want: []string{"postrider.toml:3:"},
		},
		"secret and its file": {
			file: "[postgres]\nurl = 'postgres://a/b'\nurl_file = '/x'\n",
			want: []string{"postrider.toml:3: postgres.url and postgres.url_file are both given; keep " +
				"one of them"},
		},
		"reference to nothing": {
			file: "[postgres]\nurl = 'postgres://${DB_USER}:${DB_PW}@db/x'\n",
			env:  []string{"DB_USER=me"},
			want: []string{"postrider.toml:2: postgres.url: environment variable DB_PW is not set"},
		},
		"wrong value in the environment": {
			env:  []string{"POSTRIDER_RELAY_DRAIN_TIMEOUT=soon"},
			want: []string{`env POSTRIDER_RELAY_DRAIN_TIMEOUT: relay.drain_timeout: expected a duration such as "10s", got "soon"`},
		},
		"unknown key in a flag": {
			flags: []Flag{{Key: "sink.knd", Value: "kafka", Name: "--set"}},
			want:  []string{"flag --set: sink.knd: unknown key; did you mean sink.kind?"},
		},
		"all at once": {
			file:  "[relay]\ndrain_timeout = 20\n[log]\nlevle = 'info'\n",
			env:   []string{"POSTRIDER_RELAY_IN_FLIGHT_MESSAGES=many"},
			flags: []Flag{{Key: "relay.backoff_min", Value: "x", Name: "--set"}},
			want: []string{
				"configuration: 4 problems\npostrider.toml:2: ", "\npostrider.toml:4: log.levle",
				"\nenv POSTRIDER_RELAY_IN_FLIGHT_MESSAGES: ",
				"\nflag --set: relay.backoff_min",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			write(t, tt.file)
			_, err := Load(Source{Env: tt.env, Flags: tt.flags})
			require.Error(t, err)
			for _, want := range tt.want {
				require.Contains(t, err.Error(), want)
			}
			var problems Problems
			require.ErrorAs(t, err, &problems)
		})
	}
}

func TestLoad_FlagsBeatEnvironmentBeatsFileBeatsDefaults(t *testing.T) {
	write(t, `
[replication]
publication = "file"
tables = ["file.a", "file.b"]

[relay]
in_flight_bytes = "1MiB"
drain_timeout = "1s"
`)
	l, err := Load(Source{
		Env: []string{
			"POSTRIDER_REPLICATION_TABLES=env.a, env.b", "POSTRIDER_RELAY_DRAIN_TIMEOUT=2s",
			"POSTRIDER_RELAY_IN_FLIGHT_BYTES=2097152",
			"POSTRIDER_ROUTER_ROUTE_BY_FIELD=kind", "POSTRIDER_LOG_LEVEL=",
		},
		Flags: []Flag{{Key: "relay.drain_timeout", Value: "3s", Name: "--relay-drain-timeout"}},
	})
	require.NoError(t, err)

	require.Equal(t, "file", l.Config.Replication.Publication)
	require.Equal(t, "postrider.toml:3", l.Origin("replication.publication"))
	require.Equal(t, []string{"env.a", "env.b"}, l.Config.Replication.Tables)
	require.Equal(t, "env POSTRIDER_REPLICATION_TABLES", l.Origin("replication.tables"))
	require.EqualValues(t, 2<<20, l.Config.Relay.InFlightBytes)
	require.Equal(t, 3*time.Second, l.Config.Relay.DrainTimeout)
	require.Equal(t, "flag --relay-drain-timeout", l.Origin("relay.drain_timeout"))
	require.Equal(t, "kind", l.Config.Router[0].RouteByField)
	require.Equal(t, "info", l.Config.Log.Level, "an empty variable is not set")
	require.Equal(t, "default", l.Origin("log.level"))
}

func TestLoad_TakesRouterOptionsNestedQuotedAndPasted(t *testing.T) {
	write(t, `
[router]
route.by.field = "a"
"table.field.event.key" = "b"
route.topic.replacement = '${routedByValue}-$1-${HOME}'
table.expand.json.payload = "true"
table.fields.additional.error.on.missing = false
header_id = "event-id"

[router.table.field]
event.payload = "c"
`)
	l, err := Load(Source{Env: []string{"HOME=/home/me"}})
	require.NoError(t, err)
	r := l.Config.Router[0]
	require.Equal(t, "a", r.RouteByField)
	require.Equal(t, "b", r.FieldKey)
	require.Equal(t, "c", r.FieldPayload)
	require.Equal(t, "event-id", r.HeaderID)
	require.Equal(t, "${routedByValue}-$1-${HOME}", r.TopicReplacement,
		"the router's groups are not environment variables")
	require.True(t, r.ExpandJSONPayload)
	require.Equal(t, "false", normal(l.Config)["router.table.fields.additional.error.on.missing"])
	require.Equal(t, "postrider.toml:11", l.Origin("router.table.field.event.payload"))
}

// format.key is a key, and the first part of the names of its options.
func TestLoad_TakesTheOptionsOfAKey(t *testing.T) {
	for name, file := range map[string]string{
		"in quotes": "[format]\nkey = 'json'\n\"key.decimal.format\" = 'NUMERIC'\n",
		"alone":     "[format]\nkey.decimal.format = 'NUMERIC'\n",
	} {
		t.Run(name, func(t *testing.T) {
			write(t, file)
			l, err := Load(Source{})
			require.NoError(t, err)
			require.Equal(t, `"NUMERIC"`, normal(l.Config)["format.key.decimal.format"])
		})
	}
	write(t, "[format]\nkey = 'json'\nkey.decimal.format = 'NUMERIC'\n")
	_, err := Load(Source{})
	require.ErrorContains(t, err, "postrider.toml:3:")
	require.ErrorContains(t, err, `write "key.decimal.format" in quotes`)
}

func TestLoad_TakesOneRouterFromAList(t *testing.T) {
	write(t, "[[router]]\nroute.by.field = 'a'\n")
	l, err := Load(Source{})
	require.NoError(t, err)
	require.Equal(t, "a", l.Config.Router[0].RouteByField)
}

func TestLoad_TakesSeveralRouters(t *testing.T) {
	write(t, `
[postgres]
url = "postgres://localhost/x"
[replication]
tables = ["public.orders", "public.tasks"]
messages = ["audit"]

[[router]]
tables = ["public.tasks"]
route.by.field = "kind"
"table.expand.json.payload" = "true"
[router.table.field]
event.payload = "c"

[[router]]
null_key = "publish"
route.topic.replacement = "${routedByValue}"

[sink.kafka]
brokers = ["k:9092"]
`)
	l, err := LoadValid(Source{
		Env:   []string{"routedByValue=x"},
		Flags: []Flag{{Key: "router[2].header_id", Value: "event", Name: "--set"}},
	})
	require.NoError(t, err)
	require.Len(t, l.Config.Router, 2)
	tasks, orders := l.Config.Router[0], l.Config.Router[1]
	require.Equal(t, []string{"public.tasks"}, tasks.Tables)
	require.Equal(t, []string{"kind", "c", "refuse", "id"},
		[]string{tasks.RouteByField, tasks.FieldPayload, tasks.NullKey, tasks.HeaderID})
	require.True(t, tasks.ExpandJSONPayload)
	require.Equal(t, []string{"", "payload", "publish", "event"},
		[]string{orders.RouteByField, orders.FieldPayload, orders.NullKey, orders.HeaderID})
	require.False(t, orders.ExpandJSONPayload)
	require.Equal(t, "${routedByValue}", orders.TopicReplacement)
	require.Equal(t, "postrider.toml:13", l.Origin("router[1].table.field.event.payload"))
	require.Equal(t, "postrider.toml:16", l.Origin("router[2].null_key"))
	require.Equal(t, "default", l.Origin("router[1].null_key"))

	// What is printed can be loaded, and is the same.
	var printed strings.Builder
	require.NoError(t, l.Print(&printed))
	require.Equal(t, 2, strings.Count(printed.String(), "[[router]]\n"))
	require.Regexp(t, `(?m)^null_key = "publish" +# postrider.toml:16$`, printed.String())
	write(t, printed.String())
	again, err := LoadValid(Source{})
	require.NoError(t, err)
	require.Equal(t, normal(l.Config), normal(again.Config))
}

func TestLoadValid_NamesTheRouterAndTheLine(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"a wrong value": {
			file: "[[router]]\ntables = ['public.outbox']\n\n[[router]]\ntopic_case = 'loud'\n",
			want: []string{`postrider.toml:5: router[2].topic_case = "loud": must be one of`},
		},
		"a table that is not relayed": {
			file: "[[router]]\ntables = ['public.outbx']\n[[router]]\n",
			want: []string{`postrider.toml:2: router[1].tables has "public.outbx", which is not in replication.tables (public.outbox)`},
		},
		"a table without a router": {
			file: "[replication]\ntables = ['public.a', 'public.b', 'public.c']\n[[router]]\ntables = " +
				"['public.a']\n[[router]]\ntables = ['public.b']\n",
			want: []string{`postrider.toml:2: replication.tables has "public.c", which no rule set is for: add it to tables of a [[router]]`},
		},
		"a table in two": {
			file: "[replication]\ntables = ['public.a', 'public.b']\n[[router]]\ntables = " +
				"['public.a']\n[[router]]\ntables = ['public.b', 'public.a']\n",
			want: []string{`postrider.toml:6: router[2].tables has "public.a", which is in router[1].tables already`},
		},
		"two that take the rest": {
			file: "[[router]]\nnull_key = 'publish'\n[[router]]\n",
			want: []string{"router[2].tables is empty, as in router[1]: only one rule set may take the " +
				"tables that no other names"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, tt.file)
			_, err := LoadValid(Source{}, "replication", "router")
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestLoad_ExpandsVariablesInSecretsAndURLsOnly(t *testing.T) {
	write(t, `
[postgres]
url = "postgres://me:${PW}@db/x?application_name=$${PW}"
[sink.kafka]
client_id = "${PW}"
[sink.kafka.sasl]
password_file = "${CREDENTIALS_DIRECTORY}/kafka"
[registry]
urls = ["https://${REGISTRY}", "https://b/$${PW}"]
`)
	env := []string{"PW=geheim", "CREDENTIALS_DIRECTORY=/run/credentials", "REGISTRY=a"}
	l, err := Load(Source{Env: env})
	require.NoError(t, err)
	url, err := l.Config.Postgres.URL.Reveal()
	require.NoError(t, err)
	require.Equal(t, "postgres://me:geheim@db/x?application_name=${PW}", url)
	require.Equal(t, "${PW}", l.Config.Sink.Kafka.ClientID)
	require.Equal(t, "/run/credentials/kafka", l.Config.Sink.Kafka.SASL.Password.Path())
	require.Equal(t, []string{"https://a", "https://b/${PW}"}, l.Config.Registry.URLs)

	l, err = Load(Source{Env: append(env, "POSTRIDER_REGISTRY_URLS=https://${REGISTRY},https://c")})
	require.NoError(t, err)
	require.Equal(t, []string{"https://a", "https://c"}, l.Config.Registry.URLs)
	_, err = Load(Source{Env: env[:2]})
	require.ErrorContains(t, err, "registry.urls: environment variable REGISTRY is not set")
}

func TestLoad_LetsAHigherLayerReplaceASecretFileByAValue(t *testing.T) {
	write(t, "[postgres]\nurl_file = '/nowhere'\n")
	l, err := Load(Source{Env: []string{"POSTRIDER_POSTGRES_URL=postgres://db/x"}})
	require.NoError(t, err)
	url, err := l.Config.Postgres.URL.Reveal()
	require.NoError(t, err)
	require.Equal(t, "postgres://db/x", url)
	require.Equal(t, "env POSTRIDER_POSTGRES_URL", l.Origin("postgres.url"))
}

// systemd removes the credentials of a unit that has ended, which is when recover and check are run.
func TestLoad_TakesTheFileBehindACredentialThatIsGone(t *testing.T) {
	write(t, "[postgres]\nurl_file = '/run/credentials/none.service/postgres_url'\n")
	l, err := Load(Source{})
	require.NoError(t, err)
	err = l.Validate("postgres")
	require.ErrorContains(t, err, "no such file")
	require.ErrorContains(t, err, "systemd keeps it only while the unit runs")
	require.ErrorContains(t, err, "POSTRIDER_POSTGRES_URL_FILE=/etc/postrider/postgres_url")

	file := filepath.Join(t.TempDir(), "postgres_url")
	require.NoError(t, os.WriteFile(file, []byte("postgres://db/x\n"), 0o600))
	l, err = Load(Source{Env: []string{"POSTRIDER_POSTGRES_URL_FILE=" + file}})
	require.NoError(t, err)
	require.NoError(t, l.Validate("postgres"))
	url, err := l.Config.Postgres.URL.Reveal()
	require.NoError(t, err)
	require.Equal(t, "postgres://db/x", url)

	_, err = secret.File("/nowhere").Reveal()
	require.ErrorContains(t, err, "no such file")
	require.NotContains(t, err.Error(), "systemd")
}

func TestLoad_WarnsOfUnknownVariablesOfOurs(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Load(Source{Env: []string{
		"POSTRIDER_PORT=tcp://10.0.0.1:80", "POSTRIDER_SINK_KAFKA_BROKER=a:1",
		"POSTRIDER_TEST_POSTGRES=x", "PATH=/bin",
	}})
	require.NoError(t, err)
	require.Len(t, l.Warnings, 2)
	require.Contains(t, l.Warnings[0], "POSTRIDER_PORT is not a key")
	require.NotContains(t, l.Warnings[0], "10.0.0.1")
	require.Contains(t, l.Warnings[1], "did you mean POSTRIDER_SINK_KAFKA_BROKERS?")
}

func TestLoad_WarnsOfARetentionThatIsNotUsed(t *testing.T) {
	t.Chdir(t.TempDir())
	for retention, warnings := range map[string]int{"": 0, "POSTRIDER_PRUNE_RETENTION=24h": 1} {
		l, err := Load(Source{Env: []string{"POSTRIDER_PRUNE_ON_DELIVERY=true", retention}})
		require.NoError(t, err)
		require.Len(t, l.Warnings, warnings)
		if warnings == 1 {
			require.Contains(t, l.Warnings[0], "prune.retention is not used")
		}
	}
}

func TestLoad_FindsTheFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	l, err := Load(Source{})
	require.NoError(t, err, "the environment may have it all")
	require.Empty(t, l.Path)

	other := filepath.Join(dir, "other.toml")
	require.NoError(t, os.WriteFile(other, []byte("[log]\nlevel = 'warn'\n"), 0o600))
	for _, src := range []Source{{Path: other}, {Env: []string{"POSTRIDER_CONFIG=" + other}}} {
		l, err = Load(src)
		require.NoError(t, err)
		require.Equal(t, other, l.Path)
		require.Empty(t, l.Warnings)
		require.Equal(t, "warn", l.Config.Log.Level)
	}

	_, err = Load(Source{Path: "gone.toml"})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "gone.toml")
}

func TestLoadValid_AddsWhatThePackagesSay(t *testing.T) {
	write(t, `
[replication]
tables = ["outbox"]
messages = 7

[relay]
in_flight_messages = 0
drain_timeout = "0s"

[http]
listen = "nonsense"

[log]
level = "loud"
`)
	_, err := LoadValid(Source{})
	require.ErrorContains(t, err, "postrider.toml:4: replication.messages: expected a list of "+
		"strings")
	require.NotContains(t, err.Error(), "schema-qualified", "a section with a key that cannot be "+
		"read is not judged further")
	require.ErrorContains(t, err, "postrider.toml:7: relay.in_flight_messages = 0")
	require.ErrorContains(t, err, "postrider.toml:8: relay.drain_timeout = 0s: must be at least 1s")
	require.ErrorContains(t, err, `postrider.toml:11: http.listen is "nonsense"`)
	require.ErrorContains(t, err, `postrider.toml:14: log.level is "loud"`)
	require.ErrorContains(t, err, "sink.kafka.brokers: is empty")

	_, err = LoadValid(Source{}, "postgres")
	require.Error(t, err, "the file itself is still wrong")
}

func TestLoadValid_JudgesTheNamedSectionsAlone(t *testing.T) {
	write(t, "[postgres]\nurl = 'postgres://localhost/x'\n")
	_, err := LoadValid(Source{}, "postgres", "replication")
	require.NoError(t, err)
	_, err = LoadValid(Source{})
	require.ErrorContains(t, err, "sink.kafka.brokers")
}

func TestLoadValid_AsksForNoBrokersOfAnotherSink(t *testing.T) {
	write(t, "[postgres]\nurl = 'postgres://localhost/x'\n[sink]\nkind = 'stdout'\n")
	_, err := LoadValid(Source{})
	require.NoError(t, err)
}

func TestLoadValid_SaysWhereItLookedForAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := LoadValid(Source{})
	require.ErrorContains(t, err, "no configuration file was found: looked for postrider.toml and "+
		"/etc/postrider/postrider.toml")
}
