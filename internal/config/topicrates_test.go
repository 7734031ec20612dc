package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/ratelimit"
)

func TestTopicRates_AreReadFromSectionsTextAndWhatIsPrinted(t *testing.T) {
	want := []ratelimit.TopicRate{
		{Topics: []string{"orders", "it's"}, Rate: ratelimit.Rate{Rows: 5}},
		{Topics: []string{"a.*"}, Rate: ratelimit.Rate{Bytes: 1 << 20}},
	}
	sections := "[[relay.rate]]\ntopics = ['orders', \"it's\"]\nmax_rate = '5 rows/s'\n[[relay.rate]]\ntopics = ['a.*']\nmax_rate = '1MiB/s'\n[relay]\ndedup = 'none'\n"
	line := `[{ topics = ["orders", "it's"], max_rate = "5 rows/s" }, { topics = ["a.*"], max_rate = "1MiB/s" }]`
	path := filepath.Join(t.TempDir(), "postrider.toml")
	for name, src := range map[string]Source{
		sections:                   {Path: path},
		"[relay]\nrate = " + line:  {Path: path},
		"[relay]\n# a flag\n":      {Path: path, Flags: []Flag{{Key: "relay.rate", Value: line, Name: "--set"}}},
		"[relay]\n# environment\n": {Path: path, Env: []string{"POSTRIDER_RELAY_RATE=" + line}},
	} {
		require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		l, err := Load(src)
		require.NoError(t, err, name)
		require.Equal(t, want, l.Config.Relay.Rates, name)
		require.Equal(t, line, newIndex(&l.Config).byName["relay.rate"].String(), name)
	}
}

func TestTopicRates_SayWhatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "postrider.toml")
	for text, problem := range map[string]string{
		"rate = 'x'":              `expected a list of tables, each a [[relay.rate]] with topics and max_rate, got the string "x"`,
		"rate = ['x']":            "expected a list of tables, each a [[relay.rate]] with topics and max_rate, got a list",
		"rate = {topics = ['a']}": "expected a list of tables, each a [[relay.rate]] with topics and max_rate, got a table",
		"rate = [{max_rate = '5 rows/s'}, {topcs = ['a']}]":         `entry 2: unknown key "topcs"; it has topics and max_rate`,
		"rate = [{topics = 'a'}]":                                   `entry 1: topics: expected a list of strings, got the string "a"; write ["a"]`,
		"rate = [{topics = ['a'], max_rate = 5}]":                   `entry 1: max_rate: expected a rate such as "5000 rows/s", got the integer 5`,
		"rate = [{topics = ['a'], max_rate = '5 rows'}]":            `entry 1: max_rate: expected a rate such as "5000 rows/s"`,
		"rate = [{max_rate = '5 rows/s'}]":                          "entry 1: topics is empty",
		"rate = [{topics = ['a', 'b c'], max_rate = '5 rows/s'}]":   `entry 1: topics: "b c" has the character ' '`,
		"rate = [{topics = ['a']}]":                                 "entry 1: max_rate is not set",
		"rate = [{topics = ['a'], max_rate = 'none'}]":              "entry 1: max_rate is not set",
		"max_rate = '0 rows/s'":                                     `"none" sets no limit, and postrider pause stops the relay`,
		"rate = []\n[[relay.rate]]\ntopics = ['a']\nmax_rate = 'x'": "already",
	} {
		require.NoError(t, os.WriteFile(path, []byte("[relay]\n"+text), 0o600))
		_, err := LoadValid(Source{Path: path}, "relay")
		require.ErrorContains(t, err, problem, text)
	}
	for _, text := range []string{"orders", "[", "1\nx = 2"} {
		_, err := Load(Source{Env: []string{"POSTRIDER_RELAY_RATE=" + text}})
		require.Error(t, err, text)
	}
}
