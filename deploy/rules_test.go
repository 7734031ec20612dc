// Package deploy holds what is given to Prometheus and Grafana to what the relay exports and the pages say.
package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/postrider/postrider/internal/health"
)

const rulesFile = "prometheus/postrider.rules.yml"

type rule struct {
	Record      string            `yaml:"record"`
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// String names the rule for people: there can be several of one alert.
func (r rule) String() string { return r.Alert + " " + r.Labels["severity"] + " " + r.Labels["cause"] }

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(b, into), path)
}

// readRules are the alerts, and the expressions of what they take from recording rules, by name.
func readRules(t *testing.T) (alerts []rule, recorded map[string]string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	readYAML(t, rulesFile, &file)
	recorded = map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				recorded[r.Record] = r.Expr
				continue
			}
			alerts = append(alerts, r)
		}
	}
	require.NotEmpty(t, alerts)
	return alerts, recorded
}

// seriesOfRule goes through recording rules to what the relay exports.
func (c catalogue) seriesOfRule(t *testing.T, expr string, recorded map[string]string) []string {
	t.Helper()
	for name, of := range recorded {
		expr = strings.ReplaceAll(expr, name, "("+of+")")
	}
	return c.seriesOf(t, expr)
}

func TestRules_AreValid(t *testing.T) {
	promtool(t, "check", "rules", rulesFile)
}

func ruleTests(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("prometheus/*_test.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

func TestRules_FireWhenTheyShould(t *testing.T) {
	for _, path := range ruleTests(t) {
		t.Run(filepath.Base(path), func(t *testing.T) { promtool(t, "test", "rules", path) })
	}
}

type ruleTest struct {
	Name        string `yaml:"name"`
	InputSeries []struct {
		Series string `yaml:"series"`
	} `yaml:"input_series"`
	Checks []struct {
		Alertname string `yaml:"alertname"`
		Expected  []struct {
			Labels map[string]string `yaml:"exp_labels"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// A rule that is not expected to fire anywhere proves nothing, and neither does one that is silent because its series are not there.
func TestRules_AreTestedToFireAndNotToFire(t *testing.T) {
	var tests []ruleTest
	for _, path := range ruleTests(t) {
		var file struct {
			RuleFiles []string   `yaml:"rule_files"`
			Tests     []ruleTest `yaml:"tests"`
		}
		readYAML(t, path, &file)
		require.Equal(t, []string{filepath.Base(rulesFile)}, file.RuleFiles, path)
		tests = append(tests, file.Tests...)
	}
	alerts, recorded := readRules(t)
	known := readCatalogue(t)
	for _, r := range alerts {
		fires, silent := false, false
		series := known.seriesOfRule(t, r.Expr, recorded)
		for _, test := range tests {
			present := slices.ContainsFunc(test.InputSeries, func(in struct {
				Series string `yaml:"series"`
			},
			) bool {
				name, _, _ := strings.Cut(in.Series, "{")
				return slices.Contains(series, name)
			})
			for _, check := range test.Checks {
				if check.Alertname != r.Alert {
					continue
				}
				expected := false
				for _, e := range check.Expected {
					expected = expected || e.Labels["severity"] == r.Labels["severity"] && e.Labels["cause"] == r.Labels["cause"]
				}
				fires = fires || expected
				silent = silent || !expected && present
			}
		}
		require.True(t, fires, "no test expects %s to fire", r)
		require.True(t, silent, "no test with one of its series expects %s not to fire", r)
	}
}

func TestRules_UseOnlySeriesThatExist(t *testing.T) {
	alerts, recorded := readRules(t)
	known := readCatalogue(t)
	for _, r := range alerts {
		known.seriesOfRule(t, r.Expr, recorded)
	}
	for _, expr := range recorded {
		known.seriesOfRule(t, expr, recorded)
	}
}

var severities = []string{string(health.Info), string(health.Warning), string(health.Critical)}

func TestRules_SayWhatItIsAndWhatToType(t *testing.T) {
	page, err := os.ReadFile("../docs/RUNBOOKS.md")
	require.NoError(t, err)
	alerts, _ := readRules(t)
	named := map[string]bool{}
	for _, r := range alerts {
		named[r.Alert] = true
		require.Contains(t, severities, r.Labels["severity"], r)
		for _, annotation := range []string{"summary", "description", "next"} {
			require.NotEmpty(t, r.Annotations[annotation], "%s has no %s", r, annotation)
		}
		require.Equal(t, "docs/RUNBOOKS.md#"+health.Runbook(r.Alert), r.Annotations["runbook_url"], r)
		require.True(t, regexp.MustCompile("(?m)^### "+r.Alert+"$").Match(page), "docs/RUNBOOKS.md has no runbook for %s", r.Alert)
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Postrider\w+)$`).FindAllStringSubmatch(string(page), -1) {
		require.True(t, named[m[1]], "docs/RUNBOOKS.md has a runbook for %s, and no rule", m[1])
	}
	for _, name := range health.Names() {
		require.True(t, named[name], "condition %s of package health has no rule", name)
	}
}

// Page and pager must not differ in when it is time.
func TestRules_HaveTheThresholdsOfHealth(t *testing.T) {
	c := health.DefaultConfig()
	want := []struct {
		alert, cause string
		severity     health.Severity
		threshold    float64       // the last number that something is compared with; negative: not of health.Config
		hold         time.Duration // zero: not of health.Config
	}{
		{"PostriderLagHigh", "", health.Warning, c.UnackedWarning.Seconds(), 0},
		{"PostriderLagHigh", "", health.Critical, c.UnackedCritical.Seconds(), 0},
		{"PostriderBacklog", "", health.Warning, float64(c.LagWarning), 0},
		{"PostriderLagGrowing", "", health.Warning, float64(c.RetainedWarning), 0},
		{"PostriderSlotNearLoss", "left", health.Warning, c.SafeWarning, 0},
		{"PostriderSlotNearLoss", "left", health.Critical, c.SafeCritical, 0},
		{"PostriderTimeToLoss", "", health.Warning, c.LossWarning.Seconds(), 0},
		{"PostriderTimeToLoss", "", health.Critical, c.LossCritical.Seconds(), 0},
		{"PostriderTimeToDiskFull", "", health.Warning, c.LossWarning.Seconds(), 0},
		{"PostriderTimeToDiskFull", "", health.Critical, c.LossCritical.Seconds(), 0},
		{"PostriderSlotInactive", "", health.Warning, -1, c.InactiveWarning},
		{"PostriderSlotInactive", "", health.Critical, -1, c.InactiveCritical},
		{"PostriderHeldByTransaction", "retained", health.Warning, float64(c.RetainedWarning), 0},
		{"PostriderHeldByTransaction", "holder", health.Warning, c.HeldWarning.Seconds(), 0},
		{"PostriderCatalogXminAge", "", health.Warning, float64(c.XminAgeWarning), 0},
		{"PostriderCatalogXminAge", "", health.Critical, float64(c.XminAgeCritical), 0},
		{"PostriderClockSkew", "", health.Warning, c.SkewWarning.Seconds(), 0},
		{"PostriderOtherSlot", "", health.Warning, float64(c.OtherRetained), 0},
	}
	alerts, _ := readRules(t)
	compared := regexp.MustCompile(`[<>] ([0-9.]+)`)
	for _, w := range want {
		i := slices.IndexFunc(alerts, func(r rule) bool {
			return r.Alert == w.alert && r.Labels["severity"] == string(w.severity) && r.Labels["cause"] == w.cause
		})
		require.GreaterOrEqual(t, i, 0, "no rule %s %s %s", w.alert, w.severity, w.cause)
		r := alerts[i]
		if w.hold != 0 {
			hold, err := time.ParseDuration(r.For)
			require.NoError(t, err, r)
			require.Equal(t, w.hold, hold, r)
		}
		if w.threshold < 0 {
			continue
		}
		var numbers []float64
		for _, m := range compared.FindAllStringSubmatch(r.Expr, -1) {
			n, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			numbers = append(numbers, n)
		}
		require.Contains(t, numbers, w.threshold, "%s: %s", r, r.Expr)
	}
}

func TestScrapeConfiguration_IsValid(t *testing.T) {
	promtool(t, "check", "config", "prometheus/scrape.yml")
}
