package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMaskURL_HidesPasswords(t *testing.T) {
	tests := map[string]string{
		"postgres://me:geheim@db:5432/shop":                    "postgres://me:********@db:5432/shop",
		"postgres://me@db/shop":                                "postgres://me@db/shop",
		"postgres://me:geheim@db1:1,db2:2/shop":                "postgres://me:********@db1:1,db2:2/shop",
		"postgres://me:ge%40heim@db/shop?sslmode=disable":      "postgres://me:********@db/shop?sslmode=disable",
		"postgres://db/shop?user=me&password=geheim":           "postgres://db/shop?user=me&password=********",
		"postgres://me:ge/heim@db/shop":                        "postgres://********",
		"postgres://me:1/heim@db/shop":                         "postgres://********",
		"postgres://me:1#heim@db/shop":                         "postgres://********",
		"postgres://me:ge@heim@db/shop":                        "postgres://********",
		"postgres://me:ge?heim@db/shop":                        "postgres://********",
		"postgres://me:geheim":                                 "postgres://********",
		"postgres://db:5432/shop":                              "postgres://db:5432/shop",
		"postgres://me:geheim@db/shop?options=%zz&password=ge": "postgres://me:********@db/shop?options=********&password=********",
		"https://pages.example/postrider?auth=geheim&geheim":   "https://pages.example/postrider?auth=********&********",
		"https://pages.example/#token=geheim":                  "https://pages.example/#********",
		"kafka-1:9092":                                         "kafka-1:9092",
		"outbox.event.${routedByValue}":                        "outbox.event.${routedByValue}",
		"https://user:geheim@registry/subjects":                "https://user:********@registry/subjects",
	}
	for in, want := range tests {
		require.Equal(t, want, MaskURL(in), in)
	}
}

const canary = "c4n4ry"

func TestSecrets_AreInNoOutput(t *testing.T) {
	files := map[string]string{
		"url":          "[postgres]\nurl = 'postgres://me:c4n4ry@db/x'\n",
		"keywords":     "[postgres]\nurl = 'host=db password=c4n4ry'\n",
		"password":     "[sink.kafka.sasl]\npassword = 'c4n4ry'\nusername = 'me'\n",
		"variable":     "[postgres]\nurl = 'postgres://me:${PW}@db/x'\n",
		"wrong type":   "[sink.kafka.sasl]\npassword = ['c4n4ry']\n",
		"not quoted":   "[sink.kafka.sasl]\npassword = c4n4ry\n",
		"open string":  "[postgres]\nurl = \"postgres://me:c4n4ry@db/x\n",
		"wrong escape": "[postgres]\nurl = \"postgres://me:c4n4ry\\q@db/x\"\n",
		"duplicate": "[postgres]\nurl = 'postgres://me:c4n4ry@db/x'\nurl = " +
			"'postgres://me:c4n4ry@db/x'\n",
		"misspelt":          "[sink.kafka.sasl]\npasswrod = 'c4n4ry'\n",
		"special character": "[postgres]\nurl = 'postgres://me:c4/n4@rc4n4ry@db/x'\n",
		"password as port":  "[postgres]\nurl = 'postgres://me:c4n4ry'\n",
		"both":              "[postgres]\nurl = 'postgres://me:c4n4ry@db/x'\nurl_file = 'x'\n",
	}
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			write(t, text)
			src := Source{
				Env:   []string{"PW=" + canary, "POSTRIDER_SINK_KAFKA_SASL_PASSWRD=" + canary},
				Flags: []Flag{{Key: "sink.kafka.sasl.password", Value: canary, Name: "--set"}},
			}
			var out bytes.Buffer
			_, err := LoadValid(src)
			fmt.Fprintf(&out, "%v\n%+v\n", err, err)
			if l, err := Load(src); err == nil {
				require.NoError(t, l.Print(&out))
				require.NoError(t, json.NewEncoder(&out).Encode(l.Values()))
				fmt.Fprintf(&out, "%v %+v %#v\n%v\n", l.Config, l.Config, l.Config, l.Warnings)
				require.NoError(t, json.NewEncoder(&out).Encode(l.Config))
				require.NotEmpty(t, l.Warnings)
			} else {
				fmt.Fprintf(&out, "%v\n%+v\n", err, err)
			}
			require.NotEmpty(t, out.String())
			require.False(t, strings.Contains(out.String(), canary), "around the canary: %q",
				around(out.String(), canary))
		})
	}
}

func TestPrint_ShowsValuesWithTheirOrigins(t *testing.T) {
	write(t, "[postgres]\nurl = 'postgres://me:geheim@db/x'\n[sink.kafka.sasl]\npassword_file = "+
		"'/run/pw'\n")
	l, err := Load(Source{Env: []string{"POSTRIDER_LOG_LEVEL=debug"}})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, l.Print(&out))
	text := out.String()
	require.Regexp(t, `(?m)^url = "postgres://me:\*{8}@db/x" +# postrider.toml:2$`, text)
	require.Regexp(t, `(?m)^connect_timeout = "10s" +# default$`, text)
	require.Regexp(t, `(?m)^password_file = "/run/pw" +# postrider.toml:4$`, text)
	require.Regexp(t, `(?m)^level = "debug" +# env POSTRIDER_LOG_LEVEL$`, text)
	require.Regexp(t, `(?m)^#route.by.field = +# default$`, text)
	require.Regexp(t, `(?m)^route.topic.regex = "\(\?<routedByValue>\.\*\)" +# default$`, text)
}

func around(text, word string) string {
	i := max(strings.Index(text, word), 0)
	return text[max(i-60, 0):min(i+60, len(text))]
}

// Every key that takes text, by construction: a new one is masked until somebody has
// thought of it and put it into the list of those that are shown.
func TestSecrets_OfEveryKeyThatTakesText(t *testing.T) {
	c := Default()
	var texts int
	for _, k := range newIndex(&c).keys {
		if k.kind != text && k.kind != list && k.kind != secretText {
			continue
		}
		texts++
		for _, value := range []string{canary, "https://me:" + canary + "@host/?auth=" + canary + "#" +
			canary, "curl -H 'Authorization: Bearer " + canary + "'",
			"-----BEGIN PRIVATE KEY-----\n" + canary + "\n-----END PRIVATE KEY-----\n",
			"-----BEGIN PRIVATE KEY----- " + canary, "MIIE\n" + canary, "user:" + canary + "@host:9092"} {
			d := Default()
			for _, field := range newIndex(&d).keys {
				if field.name != k.name {
					continue
				}
				require.NoError(t, field.setText(value))
				recognised := strings.Contains(value, "://") || strings.Contains(value, "BEGIN") ||
					strings.HasSuffix(k.name, fileSuffix) && strings.Contains(value, "\n") ||
					k.name == "sink.kafka.brokers" && strings.Contains(value, "@")
				if recognised || !Shown(k.name) {
					shown, _ := InCommand(k.name, value)
					require.Equal(t, NotShown, shown, "%s = %s", k.name, value)
					require.NotContains(t, field.String(), canary, "%s = %s", k.name, value)
				}
				if recognised || !Shown(k.name) { // a value of a wrong type is reported, and not shown
					for _, wrong := range []any{value, []any{value, int64(1)}, map[string]any{"x": value}} {
						if err := field.setValue(wrong); err != nil {
							require.NotContains(t, err.Error(), canary, k.name)
						}
					}
				}
			}
		}
	}
	require.Greater(t, texts, 60)
	for _, name := range shown {
		require.Contains(t, newIndex(&c).byName, name, "a key that is shown and is not there")
	}
	require.False(t, Shown("section.of_a_key_that_nobody_has_thought_of"))
	require.False(t, Shown("alerts.command"))
}
