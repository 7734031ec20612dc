package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// targetLabels are those that Prometheus puts on every series it scrapes.
var targetLabels = []string{"namespace", "job", "instance"}

// catalogue is what a query may ask for.
type catalogue struct {
	labels map[string][]string // of each series that a relay exports, by its name
	values map[string][]string // of labels that have a fixed set of them: a misspelt one would select nothing, for ever and silently
}

func readCatalogue(t *testing.T) catalogue {
	t.Helper()
	return catalogue{labels: exportedLabels(t), values: fixedValues(t)}
}

func exportedLabels(t *testing.T) map[string][]string {
	t.Helper()
	golden, err := os.ReadFile("../internal/metrics/testdata/series.golden")
	require.NoError(t, err)
	labels := map[string][]string{"up": nil}
	for _, m := range regexp.MustCompile(`(?m)^(\w+) (postrider_\w+)\{(.*)\}$`).FindAllStringSubmatch(string(golden), -1) {
		kind, name, own := m[1], m[2], strings.Split(m[3], ",")
		if kind == "histogram" {
			labels[name+"_sum"], labels[name+"_count"], labels[name+"_bucket"] = own, own, append(own, "le")
			continue
		}
		labels[name] = own
	}
	require.Greater(t, len(labels), 50)

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		labels[f.GetName()] = nil
		if f.GetMetric()[0].GetSummary() != nil {
			labels[f.GetName()+"_sum"], labels[f.GetName()+"_count"] = nil, nil
		}
	}
	for name := range labels {
		labels[name] = append(slices.Clone(labels[name]), targetLabels...)
	}
	return labels
}

func fixedValues(t *testing.T) map[string][]string {
	t.Helper()
	reg := prometheus.NewRegistry()
	s := metrics.New(reg, "orders")
	s.Phase.Set("streaming")
	s.SlotWALStatus.Set("reserved")
	s.HealthState.Set("ok")
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string][]string{"holder": {monitor.BlockerTransaction, monitor.BlockerPrepared, monitor.BlockerStandby}, "reason": {"slot_in_use"}}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if name := l.GetName(); name != "slot" && !slices.Contains(values[name], l.GetValue()) {
					values[name] = append(values[name], l.GetValue())
				}
			}
		}
	}
	for _, label := range []string{"phase", "status", "state", "result"} {
		require.Greater(t, len(values[label]), 2, label)
	}
	return values
}

var (
	labelList = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
	selector  = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)\b\s*(\{[^}]*\})?\s*(\()?`)
	matcher   = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	window    = regexp.MustCompile(`\[[^\]]*\]|\boffset \w+`)
	keywords  = []string{"and", "or", "unless", "bool", "by", "without", "on", "ignoring"}
)

// seriesOf is the series that a query asks for. It fails the test if one of them does not exist, or has no such label or value of a label.
// The syntax is promtool's matter.
func (c catalogue) seriesOf(t *testing.T, expr string) []string {
	t.Helper()
	var found, lists []string
	rest := labelList.ReplaceAllStringFunc(window.ReplaceAllString(expr, " "), func(list string) string {
		for _, label := range strings.Split(labelList.FindStringSubmatch(list)[1], ",") {
			if label = strings.TrimSpace(label); label != "" {
				lists = append(lists, label)
			}
		}
		return " "
	})
	labels := slices.Clone(targetLabels)
	for _, m := range selector.FindAllStringSubmatch(rest, -1) {
		name, matchers, call := m[1], m[2], m[3] != ""
		if call || slices.Contains(keywords, name) {
			continue
		}
		own, ok := c.labels[name]
		require.True(t, ok, "there is no series %s: %s", name, expr)
		for _, pair := range matcher.FindAllStringSubmatch(matchers, -1) {
			label, value := pair[1], pair[2]
			require.Contains(t, own, label, "%s has no label %s: %s", name, label, expr)
			if fixed := c.values[label]; fixed != nil && !strings.HasPrefix(value, "$") {
				for _, v := range strings.Split(value, "|") {
					require.Contains(t, fixed, v, "label %s never has this value: %s", label, expr)
				}
			}
		}
		found, labels = append(found, name), append(labels, own...)
	}
	for _, label := range lists {
		require.Contains(t, labels, label, "no series of this query has label %s: %s", label, expr)
	}
	require.NotEmpty(t, found, expr)
	return found
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), parts.Promtool(t), args...).CombinedOutput()
	require.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
}

// checkSyntax has promtool read queries as recording rules.
func checkSyntax(t *testing.T, queries []string) {
	t.Helper()
	type recording struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	rules := make([]recording, len(queries))
	for i, q := range queries {
		rules[i] = recording{"query" + strings.Repeat("x", i), q} // promtool takes no two of one name
	}
	file, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "queries", "rules": rules}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "queries.yml")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	promtool(t, "check", "rules", path)
}
