package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func readExampleFile(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../config.example.toml")
	require.NoError(t, err)
	return string(b)
}

func TestExample_EqualsDefaults(t *testing.T) {
	l, err := Load(Source{Path: "../../config.example.toml"})
	require.NoError(t, err)
	require.Equal(t, normal(Default()), normal(l.Config))
}

// normal makes empty lists equal to absent ones.
func normal(c Config) map[string]string {
	values := map[string]string{}
	for _, k := range keysOf(&c) {
		values[k.name] = k.String()
	}
	return values
}

// The file says so at its top.
func TestExample_IsValidButForTheBrokers(t *testing.T) {
	src := Source{Path: "../../config.example.toml"}
	_, err := LoadValid(src)
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, 1)
	require.Equal(t, "sink.kafka.brokers", problems[0].Key)
	require.Contains(t, problems[0].Origin, "config.example.toml:")

	src.Flags = []Flag{{Key: "sink.kafka.brokers", Value: "localhost:9092", Name: "--set"}}
	_, err = LoadValid(src)
	require.NoError(t, err)
}

func TestExample_ShowsEveryKeyOnceWithAReason(t *testing.T) {
	c := Default()
	defaults := normal(c)
	shown := map[string]int{}
	entries, sections := readExample(readExampleFile(t))
	for _, e := range entries {
		shown[e.name]++
		value, known := defaults[e.name]
		if !known {
			t.Errorf("line %d: %s is not a key", e.line, e.name)
			continue
		}
		if e.sample != (value == "") {
			t.Errorf("line %d: %s: a # stands before the keys without a default, and only there "+
				"(default: %q)", e.line, e.name, value)
		}
		if !strings.HasSuffix(e.comment, ".") {
			t.Errorf("line %d: %s has no description", e.line, e.name)
		}
	}
	for _, k := range keysOf(&c) {
		if shown[k.name] != 1 {
			t.Errorf("%s (%s) stands in config.example.toml %d times", k.name, k.String(), shown[k.name])
		}
		require.NotEmpty(t, sections[k.section], "[%s] has no description", k.section)
	}
}

func TestExample_SamplesCanBeUsed(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#("?[a-z])`).ReplaceAllString(readExampleFile(t), "$1")
	path := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))

	l, err := Load(Source{Path: path, Env: []string{"POSTRIDER_PASSWORD=x", "KAFKA_PASSWORD=y",
		"KAFKA_CLIENT_SECRET=z", "REGISTRY_PASSWORD=r", "REGISTRY_CLIENT_SECRET=s"}})
	require.NoError(t, err)
	for _, k := range keysOf(&l.Config) {
		require.NotEqual(t, originDefault, l.Origin(k.name), k.name)
	}
}

func TestSchema_DescribesEveryKey(t *testing.T) {
	b, err := Schema(readExampleFile(t))
	require.NoError(t, err)
	var root map[string]any
	require.NoError(t, json.Unmarshal(b, &root))
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", root["$schema"])

	c := Default()
	for _, k := range keysOf(&c) {
		// A key with dots of its own is a name in quotes, and as nested tables too.
		first, _, dotted := strings.Cut(k.leaf, ".")
		leaves := [][]string{{k.leaf}}
		if dotted && !newIndex(&c).isParent(k.section+"."+first) {
			leaves = append(leaves, strings.Split(k.leaf, "."))
		}
		for _, leaf := range leaves {
			node := root
			for _, part := range append(strings.Split(k.section, "."), leaf...) {
				if of, several := node["oneOf"].([]any); several {
					require.Equal(t, of[0], of[1].(map[string]any)["items"])
					node = of[0].(map[string]any)
				}
				require.Equal(t, false, node["additionalProperties"], "above %s", k.name)
				properties := node["properties"].(map[string]any)
				require.Contains(t, properties, part, k.name)
				node = properties[part].(map[string]any)
			}
			require.NotEmpty(t, node["description"], k.name)
			require.NotEmpty(t, node["type"], k.name)
		}
	}
}
