package config

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad gives the loader any file, any environment and any flag. Whatever is wrong comes back
// as Problems, and whatever was right can be printed; neither shows a secret.
func FuzzLoad(f *testing.F) {
	example, err := os.ReadFile("../../config.example.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example), "POSTRIDER_SLOT_NAME", "a", "relay.in_flight_bytes", "1GiB")
	f.Add("[slot]\nname = 'x'\n[[router]]\ntables=['a.b']\n[[router]]\n",
		"POSTRIDER_SINK_KAFKA_BROKERS", "a:1,b", "router[0].topic_case", "lower")
	f.Add("[sink.kafka]\nversion = '9.9'\n[postgres]\nurl='${X}'", "X", "postgres://u:p@h/d",
		"postgres.url", "host=a password='b c'")
	f.Add("slot.name='a'\n\"slot.name\"='b'\n[router]\nroute.topic.regex='(('", "", "", "log.level",
		"loud")
	f.Add("[format]\nkey='json'\nkey.decimal.format='NUMERIC'", "", "", "", "")
	f.Fuzz(func(t *testing.T, file, name, value, key, flag string) {
		if strings.Contains(file+value+flag, "_file") || strings.Contains(key, "_file") ||
			strings.Contains(name, "_FILE") {
			t.Skip() // it would read any file of this machine, and a device would not end
		}
		path := filepath.Join(t.TempDir(), "postrider.toml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		src := Source{
			Path: path, Env: []string{name + "=" + value},
			Flags: []Flag{{Key: key, Value: flag, Name: "--set"}},
		}
		l, err := LoadValid(src)
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 || err.Error() == "" {
				t.Fatalf("%T %v is no list of problems", err, err)
			}
			return
		}
		if err := l.Print(io.Discard); err != nil {
			t.Fatal(err)
		}
	})
}
