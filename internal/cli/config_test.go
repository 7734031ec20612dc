package cli

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
)

const canary = "c4n4ry"

// inDirectory makes a working directory with a configuration file.
func inDirectory(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("postrider.toml", []byte(text), 0o600))
}

func TestConfig_NeverPrintsASecret(t *testing.T) {
	inDirectory(t, `
[postgres]
url = "postgres://me:c4n4ry@localhost/x"
[sink.kafka]
brokers = ["localhost:9092"]
[sink.kafka.sasl]
mechanism = "PLAIN"
username = "me"
password = "${PW}"
`)
	env := []string{"PW=" + canary, "POSTRIDER_POSTGRES_PASSWORD=" + canary}
	for _, args := range [][]string{
		{"config", "print"}, {"config", "print", "--json"}, {"config", "validate"},
		{"config", "validate", "--json"},
		{"config", "print", "--set", "postgres.url=host=x password=" + canary},
		{"config", "print", "--set", "postgres.ulr=postgres://me:" + canary + "@x"},
		{"config", "validate", "--set", "postgres.url=postgres://me:" + canary},
		{"config", "print", "--set", "postgres.url:postgres://me:" + canary + "@db/x"},
		{"healthcheck", "--set", "postgres.url: " + canary},
		{"check", "--set", "=" + canary}, {"check", "--set", canary}, {"run", "--set", " " + canary},
		{"check", "--set", "postgres.url" + canary}, {"check", "--set", "postgres." + canary},
	} {
		r := execute(t, env, args...)
		require.NotEmpty(t, r.stdout+r.stderr, args)
		require.NotContains(t, r.stdout, canary, args)
		require.NotContains(t, r.stderr, canary, args)
	}
}

func TestSet_NamesTheKeyThatHasNoValue(t *testing.T) {
	for set, want := range map[string]string{
		"slot.name": "--set slot.name: expected", "postgres.url_file:/x": "--set postgres.url_file: expected",
		"router[1].null_key publish": "--set router.null_key: expected", "hunter2": "--set: expected",
	} {
		r := execute(t, nil, "check", "--set", set)
		require.Equal(t, exit.Usage, r.code, r.stderr)
		require.Contains(t, r.stderr, want)
	}
}

func TestConfigPrint_ShowsOriginsAsTextAndJSON(t *testing.T) {
	inDirectory(t, "[log]\nlevel = 'warn'\n")
	r := execute(t, []string{"POSTRIDER_SINK_KAFKA_BROKERS=a:1,b:2"}, "config", "print", "--set",
		"log.format=json")
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Regexp(t, `(?m)^level = "warn" +# postrider.toml:2$`, r.stdout)
	require.Regexp(t, `(?m)^format = "json" +# flag --set$`, r.stdout)
	require.Regexp(t, `(?m)^brokers = \["a:1", "b:2"\] +# env POSTRIDER_SINK_KAFKA_BROKERS$`,
		r.stdout)

	r = execute(t, nil, "config", "print", "--json")
	var printed struct {
		File   string
		Values []struct {
			Key               string
			Value             any
			TOML, Origin, Env string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &printed))
	require.Equal(t, "postrider.toml", printed.File)
	values := map[string]any{}
	for _, v := range printed.Values {
		values[v.Key] = v.Value
		if v.Key == "log.level" {
			require.Equal(t, []string{`"warn"`, "postrider.toml:2", "POSTRIDER_LOG_LEVEL"},
				[]string{v.TOML, v.Origin, v.Env})
		}
	}
	for key, want := range map[string]any{ // as JSON has them: a script need not take quotes off
		"log.level": "warn", "sink.kafka.brokers": []any{},
		"replication.tables": []any{"public.outbox"}, "relay.in_flight_messages": 5000.0,
		"relay.in_flight_bytes": "8MiB",
		"relay.drain_timeout":   "20s", "slot.create": true, "health.safe_warning": 0.5,
		"sink.kafka.sasl.password": nil,
	} {
		require.Equal(t, want, values[key], key)
	}
}

func TestConfigValidate_ListsEveryProblem(t *testing.T) {
	inDirectory(t,
		"[log]\nlevle = 'warn'\n[relay]\nin_flight_messages = 0\n[sink]\nkind = 'stdout'\n")
	r := execute(t, nil, "config", "validate")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stderr, "postrider: configuration: 2 problems\n"+
		"  postrider.toml:2: log.levle: unknown key; did you mean log.level?\n"+
		"  postrider.toml:4: relay.in_flight_messages = 0")
	require.Contains(t, r.stderr, "\n  WAL:  ")
	require.Contains(t, r.stderr, "\n  next: ")

	r = execute(t, nil, "config", "validate", "--json")
	require.Equal(t, exit.Config, r.code)
	require.Empty(t, r.stderr)
	var v validation
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v))
	require.False(t, v.Valid)
	require.Len(t, v.Problems, 2)
	require.Equal(t,
		problem{Origin: "postrider.toml:2", Key: "log.levle", Message: "unknown key",
			Hint: "did you mean log.level?"}, v.Problems[0])
}

func TestConfigValidate_IsQuietAboutAValidOne(t *testing.T) {
	inDirectory(t, "[postgres]\nurl = 'postgres://localhost/x'\n[sink.kafka]\nbrokers = ['a:1']\n")
	r := execute(t, []string{"POSTRIDER_PORT=tcp://10.0.0.1:80"}, "config", "validate")
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Equal(t, "postrider.toml: valid\n", r.stdout)
	require.Equal(t,
		"postrider: warning: environment variable POSTRIDER_PORT is not a key and is ignored\n",
		r.stderr)
}

func TestConfigSchemaAndExample_AreMadeOfTheExample(t *testing.T) {
	r := execute(t, nil, "config", "schema")
	require.Equal(t, exit.OK, r.code)
	require.True(t, json.Valid([]byte(r.stdout)))
	require.Contains(t, r.stdout, "Name of the publication")

	example, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	require.Equal(t, string(example), execute(t, nil, "config", "example").stdout)
}

func TestKeyFlags_SetKeysAndBeatSet(t *testing.T) {
	t.Chdir(t.TempDir())
	example, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	a := &app{descriptions: config.Descriptions(string(example))}
	cmd := &cobra.Command{Use: "x"}
	a.globalFlags(cmd)
	a.keyFlags(cmd, "log.level", "relay.drain_timeout")
	require.Equal(t, "Longest wait of a stop for messages in flight, at least 1s (relay.drain_timeout)",
		cmd.Flags().Lookup("relay-drain-timeout").Usage)

	require.NoError(t,
		cmd.ParseFlags([]string{"--log-level", "debug", "--set", "log.level=warn", "--set",
			"log.format=json"}))
	l, err := a.load(cmd, "log")
	require.NoError(t, err)
	require.Equal(t, "debug", l.Config.Log.Level)
	require.Equal(t, "flag --log-level", l.Origin("log.level"))
	require.Equal(t, "flag --set", l.Origin("log.format"))
	require.Equal(t, "default", l.Origin("relay.drain_timeout"))
}
