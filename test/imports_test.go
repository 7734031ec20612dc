// Package test holds what concerns the whole repository; the tests of the built binary lie below it.
package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/postrider/postrider"

// everywhere may be imported by any package but each other and themselves.
var everywhere = []string{"internal/metrics", "internal/secret"}

// allowed lists, for each package, which others of ours its code may import, and no more than it
// does import; a name ending in /... stands for all below it too. A package stands below those
// that import it. replication and sink never meet: router speaks both their vocabularies. relay and
// slot never meet: internal/daemon connects them. Tests are free.
var allowed = map[string][]string{
	"":             {"internal/cli", "internal/postgres"}, // the latter with the tag statements
	"internal/cli": {"..."},
	"internal/auditor": {
		"internal/audit", "internal/audit/topics", "internal/config", "internal/daemon",
		"internal/deadletter", "internal/exit", "internal/postgres", "internal/terminal",
		"relay", "replication", "router", "sink", "sink/kafka", "sink/kafka/producer", "slot",
	},
	"internal/trace": {
		"internal/audit", "internal/catalog", "internal/check", "internal/config",
		"internal/deadletter", "internal/exit", "internal/postgres", "internal/registry", "internal/status",
		"internal/terminal", "internal/units", "relay", "replication", "router", "router/connect",
		"sink", "sink/kafka", "sink/kafka/producer", "sink/kafka/topicreader", "slot",
	},
	"internal/daemon": {
		"docs", "internal/alerts", "internal/backfill", "internal/build", "internal/catalog",
		"internal/check", "internal/config", "internal/deadletter", "internal/exit",
		"internal/health", "internal/history", "internal/httpserver", "internal/logging",
		"internal/memory", "internal/postgres", "internal/prune", "internal/ratelimit",
		"internal/registry",
		"internal/status", "internal/terminal", "internal/trace", "internal/writeback", "relay",
		"replication", "router", "sink", "sink/kafka", "sink/kafka/producer",
		"sink/kafka/topicreader", "sink/stdout", "slot", "slot/monitor", "slot/partition",
	},
	"internal/bench": {
		"internal/audit", "internal/audit/topics", "internal/demo", "internal/embedded",
		"internal/embedded/child", "internal/postgres", "replication", "sink", "sink/kafka", "slot",
	},
	"internal/demo": {
		"internal/audit", "internal/audit/topics", "internal/postgres", "sink/kafka",
	},
	"internal/watch": {
		"internal/check", "internal/config", "internal/exit", "internal/health",
		"internal/history", "internal/status", "internal/terminal", "slot", "slot/monitor",
	},
	"internal/check": {
		"internal/alerts", "internal/backfill", "internal/catalog", "internal/config",
		"internal/exit", "internal/health", "internal/httpserver", "internal/memory",
		"internal/postgres", "internal/registry", "internal/status", "internal/terminal", "internal/writeback",
		"replication", "router", "router/connect", "sink", "sink/kafka", "slot", "slot/monitor",
	},
	"internal/status": {
		"internal/build", "internal/config", "internal/exit", "internal/health",
		"internal/history", "internal/httpserver", "internal/postgres", "internal/ratelimit",
		"internal/terminal", "internal/writeback", "relay", "replication", "slot", "slot/monitor",
	},
	"internal/check/checktest": {"internal/check", "internal/embedded", "test/parts/testdb"},
	"internal/status/statustest": {
		"internal/health", "internal/status", "relay", "slot", "slot/monitor",
	},
	"internal/exit": {
		"internal/backfill", "internal/config", "internal/deadletter", "internal/postgres",
		"internal/prune", "internal/terminal", "relay", "replication", "router", "router/connect",
		"sink", "sink/kafka", "slot", "slot/monitor",
	},
	"internal/logging": {"internal/config", "internal/terminal"},
	"internal/config": {
		"internal/alerts", "internal/backfill", "internal/deadletter", "internal/health",
		"internal/httpserver", "internal/postgres", "internal/prune", "internal/ratelimit",
		"internal/registry", "internal/suggest", "internal/units", "internal/writeback", "relay", "replication", "router",
		"sink/kafka", "slot", "slot/monitor",
	},
	"internal/alerts":     {"internal/health"},
	"internal/health":     {"relay", "sink", "slot", "slot/monitor"},
	"internal/catalog":    {"internal/postgres", "router"},
	"internal/httpserver": {},
	"relay": {
		"internal/deadletter", "internal/postgres", "internal/ratelimit", "replication", "router",
		"router/connect", "sink",
	},
	"internal/registry": {
		"internal/credentials", "internal/tlsfiles", "router", "router/avro", "router/connect",
		"router/jsonschema", "router/protobuf",
	},
	"router/avro":          {"router/connect"},
	"internal/ratelimit":   {"internal/units", "sink"},
	"internal/deadletter":  {"internal/ratelimit", "replication", "router", "sink"},
	"slot":                 {"internal/postgres", "replication"},
	"router":               {"replication", "router/connect", "router/javaregex", "sink"},
	"replication":          {"internal/postgres"},
	"sink":                 {},
	"sink/kafka":           {"internal/credentials", "internal/terminal", "internal/tlsfiles", "sink"},
	"internal/credentials": {"internal/tlsfiles"},
	"internal/tlsfiles":    {},
	"sink/memory":          {"sink"},
	"sink/stdout":          {"sink"},
	"sink/sinktest":        {"sink"},
	"internal/postgres":    {"internal/credentials", "internal/tlsfiles"},
	"internal/metrics":     {},
	"internal/secret":      {},
	"internal/audit":       {"sink"},
	"internal/debezium": {
		"internal/config", "internal/postgres", "internal/suggest", "internal/units", "replication", "router",
		"router/javaregex",
	},
	"outbox":                     {},
	"internal/build":             {},
	"internal/history":           {},
	"internal/memory":            {},
	"internal/terminal":          {},
	"internal/embedded":          {"internal/embedded/child"},
	"internal/embedded/child":    {},
	"sql":                        {},
	"docs":                       {},
	"deploy":                     {},
	"test":                       {},
	"test/...":                   {"..."},
	"router/connect":             {},
	"router/connect/connecttest": {"router/connect"},
	"router/jsonschema":          {"router/connect"},
	"router/protobuf":            {"router/connect"},
	"router/javaregex":           {},
	"slot/monitor": {
		"internal/postgres", "internal/ratelimit", "slot", "slot/partition",
	},
	"slot/partition": {"internal/postgres", "replication", "slot"},
	"internal/backfill": {
		"internal/postgres", "internal/ratelimit", "replication", "router", "sink", "slot",
		"slot/partition",
	},
	"sink/kafka/topicreader": {"sink", "sink/kafka"},
	"sink/kafka/producer":    {"sink", "sink/kafka", "sink/kafka/topicreader"},
	"internal/audit/topics":  {"sink", "sink/kafka"},
	"internal/prune":         {"internal/postgres", "slot"},
	"internal/writeback":     {"internal/deadletter", "internal/postgres", "internal/prune", "slot"},
	"internal/suggest":       {},
	"inbox":                  {},
	"inbox/kgoinbox":         {"inbox"},
	"inbox/saramainbox":      {"inbox"},
	"inbox/inboxtest":        {"inbox", "sql", "test/parts"},
	"internal/units":         {},
}

type listedPackage struct {
	ImportPath string
	Imports    []string
}

func TestImports_PointDown(t *testing.T) {
	packages := listPackages(t)
	require.NotEmpty(t, packages)
	for _, p := range packages {
		name := local(p.ImportPath)
		rule, known := ruleFor(name)
		if !known {
			t.Errorf("package %s stands in no line of the table of allowed imports: add it, and say in the commit what it may know of the others", p.ImportPath)
			continue
		}
		for _, path := range p.Imports {
			if !ours(path) {
				continue
			}
			imported := local(path)
			switch {
			case slices.Contains(rule, imported) || matches(rule, imported):
			case slices.Contains(everywhere, imported) && !slices.Contains(everywhere, name):
			default:
				t.Errorf("package %s may not import %s", name, imported)
			}
		}
	}
}

func TestImports_UseEveryPermission(t *testing.T) {
	packages := listPackages(t)
	for name, rule := range allowed {
		var imported []string
		known := false
		for _, p := range packages {
			if of := local(p.ImportPath); of == name || matches([]string{name}, of) {
				known = true
				for _, path := range p.Imports {
					if ours(path) {
						imported = append(imported, local(path))
					}
				}
			}
		}
		require.True(t, known, "the table has a line for %s, which is no package", name)
		for _, permission := range rule {
			require.True(t, slices.ContainsFunc(imported, func(path string) bool {
				return path == permission || matches([]string{permission}, path)
			}), "package %s does not import %s: remove it from the table", name, permission)
		}
	}
}

// TestImports_KeepTheServersOutOfTheRelay looks at what the relay is made of, however indirectly: demo's
// servers and the tests' parts must not creep into it.
func TestImports_KeepTheServersOutOfTheRelay(t *testing.T) {
	for _, name := range []string{"relay", "slot", "sink/kafka/producer", "internal/config"} {
		out, err := exec.Command("go", "list", "-deps", module+"/"+name).Output()
		require.NoError(t, err)
		for _, path := range strings.Fields(string(out)) {
			require.False(t, path == module+"/internal/embedded" || strings.HasPrefix(path, module+"/test") || strings.HasSuffix(path, "/kfake") || path == "testing",
				"package %s depends on %s", name, path)
		}
	}
}

// TestImports_KeepSaramaForTheAuditor: what franz-go wrote is read back by a client that shares no code
// with it, and nothing else depends on two clients (docs/decisions/0029).
func TestImports_KeepSaramaForTheAuditor(t *testing.T) {
	const sarama = "github.com/IBM/sarama"
	users := []string{"internal/audit/topics", "inbox/saramainbox"}
	for _, p := range listPackages(t) {
		require.Equal(t, slices.Contains(users, local(p.ImportPath)), slices.Contains(p.Imports, sarama), "%s imports %s", p.ImportPath, sarama)
	}
	for _, name := range []string{"relay", "sink/...", "internal/backfill", "internal/deadletter", "internal/daemon"} {
		out, err := exec.Command("go", "list", "-deps", module+"/"+name).Output()
		require.NoError(t, err)
		require.NotContains(t, strings.Fields(string(out)), sarama, "%s depends on it", name)
	}
}

func TestRule_FindsWhatIsForbidden(t *testing.T) {
	for _, edge := range [][2]string{{"replication", "sink"}, {"relay", "slot"}, {"slot", "relay"}, {"relay", "internal/config"}, {"sink/kafka", "router"}, {"sink/kafka", "sink/kafka/producer"}, {"relay", "internal/embedded"}} {
		rule, known := ruleFor(edge[0])
		require.True(t, known)
		require.False(t, slices.Contains(rule, edge[1]) || matches(rule, edge[1]), "%s -> %s", edge[0], edge[1])
	}
	rule, known := ruleFor("test/faults")
	require.True(t, known)
	require.True(t, matches(rule, "sink/kafka"))
	_, known = ruleFor("new")
	require.False(t, known)
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags", "statements", "-json=ImportPath,Imports",
		module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var packages []listedPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}

func ruleFor(name string) ([]string, bool) {
	if rule, ok := allowed[name]; ok {
		return rule, true
	}
	for pattern, rule := range allowed {
		if below, ok := strings.CutSuffix(pattern, "/..."); ok && strings.HasPrefix(name, below+"/") {
			return rule, true
		}
	}
	return nil, false
}

func matches(rule []string, name string) bool {
	return slices.ContainsFunc(rule, func(pattern string) bool {
		if pattern == "..." {
			return true
		}
		below, ok := strings.CutSuffix(pattern, "/...")
		return ok && (name == below || strings.HasPrefix(name, below+"/"))
	})
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func local(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }
