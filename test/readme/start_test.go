package readme

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// newcomer types what docs/GETTING-STARTED.md says, with the addresses of the test's servers.
type newcomer struct {
	dir     string
	broker  *parts.Broker
	address *strings.Replacer
	printed strings.Builder
	stop    func() // ends the relay
}

func TestGettingStarted_EveryCommandRunsInItsOrder(t *testing.T) {
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	dsn, err := url.Parse(server.DSN())
	require.NoError(t, err)
	n := &newcomer{dir: t.TempDir(), broker: parts.ExclusiveKafka(t, parts.KafkaConfig{})}
	n.address = strings.NewReplacer("127.0.0.1:5432", dsn.Host, "postgres://postgres@", "postgres://"+dsn.User.String()+"@",
		"127.0.0.1:9092", n.broker.Brokers()[0])

	page, err := os.ReadFile("../../docs/GETTING-STARTED.md")
	require.NoError(t, err)
	fenced := regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(fenced), 8)
	for _, block := range fenced {
		text := n.address.Replace(block[2])
		switch block[1] {
		case "toml":
			text += "\n[http]\nlisten = \"\"\n" // other tests may have the address
			require.NoError(t, os.WriteFile(filepath.Join(n.dir, "postrider.toml"), []byte(text), 0o600))
		case "text":
			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				require.Contains(t, n.printed.String(), line)
			}
		case "sh":
			for _, line := range commands(text) {
				n.types(t, line)
			}
		}
	}
}

// commands splits what is typed. A command goes on over lines while a double quote is open.
func commands(text string) (all []string) {
	open := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if open {
			all[len(all)-1] += "\n" + line
		} else {
			all = append(all, line)
		}
		if strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 == 1 {
			open = !open
		}
	}
	return all
}

func (n *newcomer) types(t *testing.T, line string) {
	t.Helper()
	words := shellWords(t, line)
	switch words[0] {
	case "go": // the binary is built as test/parts does
		require.Equal(t, "go build -o postrider .", line)
	case "psql":
		n.psql(t, words[1:])
	case "kafka-console-consumer.sh":
		n.printed.WriteString(n.broker.KafkaTool(t, words[0], words[1:]...))
	case "./postrider":
		if words[1] == "run" { // until the end of the test
			n.run(t)
			return
		}
		if words[1] == "slot" {
			n.stop() // Ctrl-C in the second terminal
		}
		stdout, stderr, code := run(t, n.dir, words[1:]...)
		require.Zero(t, code, "%s\n%s%s", line, stdout, stderr)
		n.printed.WriteString(stdout)
	default:
		t.Fatalf("who runs %q?", line)
	}
}

// psql stands for the program of that name, which not every machine has.
func (n *newcomer) psql(t *testing.T, args []string) {
	t.Helper()
	require.Len(t, args, 4)
	require.Equal(t, "-X", args[0])
	sql := args[3]
	if args[2] == "-f" {
		b, err := os.ReadFile("../../" + args[3])
		require.NoError(t, err)
		sql = string(b)
	}
	_, err := parts.Connect(t, args[1]).Exec(t.Context(), sql)
	require.NoError(t, err, sql)
}

// run starts the relay, and returns when it streams. stop ends it, as the page says before the slot is dropped.
func (n *newcomer) run(t *testing.T) {
	t.Helper()
	relay := parts.StartRelay(t, parts.RelayConfig{Dir: n.dir}, "run")
	relay.AwaitLog(t, "streaming started")
	n.stop = func() { relay.Stop(t) }
}

// shellWords divides a line as a shell does, as far as the page needs it.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+line).Output()
	require.NoError(t, err, line)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
