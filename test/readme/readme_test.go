// Package readme runs what README.md tells people to type.
package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// blocks returns the contents of the fenced blocks of a language.
func blocks(t *testing.T, language string) (found []string) {
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text,
		-1) {
		found = append(found, string(m[1]))
	}
	return found
}

func run(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p, code := parts.RunRelay(t, parts.RelayConfig{Dir: dir}, args...)
	return p.Stdout.String(), p.Log.String(), code
}

// numbers stand for themselves in a comparison of outputs.
var numbers = regexp.MustCompile(`[0-9][0-9,]*(\.[0-9]+)?`)

// shape is a line without its numbers and its widths.
func shape(line string) string {
	line = regexp.MustCompile(`KiB|MiB`).ReplaceAllString(line, "B")
	return strings.Join(strings.Fields(numbers.ReplaceAllString(line, "0")), " ")
}

// requirePrinted runs a command that README.md shows, and wants each line that it shows to be
// printed but for the numbers. It returns what went to stdout.
func requirePrinted(t *testing.T, shown string) (stdout string) {
	t.Helper()
	command, output, _ := strings.Cut(shown, "\n")
	args, ok := strings.CutPrefix(command, "$ go run . ")
	require.True(t, ok, command)

	stdout, stderr, code := run(t, ".", strings.Fields(args)...)
	require.Zero(t, code, stderr)
	printed := map[string]bool{}
	for _, line := range strings.Split(stderr+stdout, "\n") {
		printed[shape(line)] = true
	}
	for _, line := range strings.Split(strings.TrimSpace(output), "\n") {
		if strings.Contains(line, "slot lag") {
			continue // a look every five seconds: on a fast machine the demo may be over before
		}
		require.True(t, printed[shape(line)], "README.md shows %q, the command printed:\n%s%s",
			line, stderr, stdout)
	}
	return stdout
}

func TestREADME_TheCommandsPrintWhatItShows(t *testing.T) {
	shown := blocks(t, "console")
	require.Len(t, shown, 3)
	require.Equal(t, "$ go test ./...\n", shown[1], "which is what runs this test")
	demo := requirePrinted(t, shown[0])
	require.Contains(t, demo,
		"audit: written 5000, delivered 5000, lost 0, duplicated 0, out of order 0")
	bench := requirePrinted(t, shown[2])
	require.Contains(t, bench,
		"audit: written 20000, delivered 20000, lost 0, duplicated 0, out of order 0")
}

func TestREADME_TheConfigurationIsValidAndTheCommandsRun(t *testing.T) {
	configs, commands := blocks(t, "toml"), blocks(t, "sh")
	require.Len(t, configs, 1)
	require.Len(t, commands, 2)
	require.Equal(t, "go build -o postrider .\n", commands[0], "as test/parts does")

	broker := parts.Kafka(t)
	broker.CreateTopic(t, "outbox.event.order", 1, nil)
	db := parts.Postgres(t, parts.AnyVersion)
	dir := t.TempDir()
	text := strings.NewReplacer(
		"postgres://postrider@db:5432/shop", db.DSN(),
		`"kafka-1:9092"`, `"`+strings.Join(broker.Brokers(), `", "`)+`"`,
	).Replace(configs[0])
	slot := parts.Unique("readme")
	text += "\n[slot]\nname = \"" + slot + "\"\n[http]\nlisten = \"\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "postrider.toml"), []byte(text), 0o600))

	stdout, stderr, code := run(t, dir, "init", "--print-sql")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "CREATE PUBLICATION")
	_, stderr, code = run(t, dir, "init")
	require.Zero(t, code, stderr)

	for _, line := range strings.Split(strings.TrimSpace(commands[1]), "\n") {
		line, _, _ = strings.Cut(line, "#")
		args := strings.Fields(line)
		require.Equal(t, "./postrider", args[0])
		switch args[1] {
		case "tail", "run": // go on until a signal
			p := parts.StartRelay(t, parts.RelayConfig{Dir: dir}, args[1:]...)
			p.AwaitLog(t, "streaming started")
			require.NoError(t, p.Signal(syscall.SIGINT))
			require.Zero(t, p.Wait(t), line)
		default:
			stdout, stderr, code := run(t, dir, args[1:]...)
			require.Zero(t, code, "%s\n%s%s", line, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"status"}, {"slot", "list"}, {"config", "print"}} {
		stdout, stderr, code := run(t, dir, args...)
		if args[0] != "status" { // without a relay, status may report that something is wrong
			require.Zero(t, code, "%v\n%s%s", args, stdout, stderr)
		}
		require.NotEmpty(t, stdout)
	}
}
