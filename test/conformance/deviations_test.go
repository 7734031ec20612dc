package conformance

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"
)

// deviation is where postrider does something else than Debezium on purpose.
type deviation struct {
	Name    string   `toml:"name"`
	Cases   []string `toml:"cases"`   // patterns of ids; * stands for anything
	Error   string   `toml:"error"`   // a regular expression for what Debezium failed with: further cases of the kind are meant too; empty: not asked
	Blocked bool     `toml:"blocked"` // Debezium's producer waits forever
	Members []string `toml:"members"` // what of the records, or the error, may differ; nothing else may
	Instead string   `toml:"instead"` // what postrider does
	Why     string   `toml:"why"`

	pattern *regexp.Regexp
}

func loadDeviations(t *testing.T, file string) []*deviation {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var f struct{ Deviation []*deviation }
	d := toml.NewDecoder(strings.NewReader(string(raw))).DisallowUnknownFields()
	require.NoError(t, d.Decode(&f))
	for _, d := range f.Deviation {
		require.NotEmpty(t, d.Instead, d.Name)
		require.NotEmpty(t, d.Why, d.Name)
		require.NotEmpty(t, d.Members, d.Name)
		if d.Error != "" {
			d.pattern = regexp.MustCompile(d.Error)
		}
	}
	return f.Deviation
}

// covers tells whether the deviation is meant for a case.
func (d *deviation) covers(g *golden) bool {
	if d.Blocked && g.Blocked {
		return true
	}
	if d.pattern != nil && g.Error != nil && d.pattern.MatchString(g.Error.Class+": "+g.Error.Message) {
		return true
	}
	return slices.ContainsFunc(d.Cases, func(p string) bool {
		ok, err := path.Match(p, g.ID)
		return err == nil && ok
	})
}

// verdict on one case.
type verdict struct {
	differences []difference
	deviation   *deviation   // that explains them; nil: equal, or failing
	unexplained []difference // none: equal, or a listed deviation
}

func (v verdict) String() string {
	switch {
	case len(v.unexplained) > 0:
		return "failing"
	case v.deviation != nil:
		return "deviating"
	}
	return "equal"
}

func judge(g *golden, differences []difference, deviations []*deviation) verdict {
	v := verdict{differences: differences}
	if len(differences) == 0 {
		return v
	}
	v.unexplained = differences
	for _, d := range deviations {
		if !d.covers(g) {
			continue
		}
		other := slices.DeleteFunc(slices.Clone(differences), func(x difference) bool { return slices.Contains(d.Members, x.member) })
		if len(other) == 0 {
			return verdict{differences: differences, deviation: d}
		}
		v.unexplained = other
	}
	return v
}

// requireStale fails for a deviation that no case of the repository needs any more.
func requireStale(t *testing.T, deviations []*deviation, verdicts map[string]verdict) {
	t.Helper()
	for _, d := range deviations {
		used := false
		for _, v := range verdicts {
			used = used || v.deviation == d
		}
		require.True(t, used, "deviations.toml: %q is not needed any more: remove it", d.Name)
		for _, pattern := range d.Cases {
			matched := false
			for id, v := range verdicts {
				if ok, _ := path.Match(pattern, id); ok && v.deviation == d {
					matched = true
				}
			}
			require.True(t, matched, "deviations.toml: %q: no case of %q deviates: remove it", d.Name, pattern)
		}
	}
}

// report is docs/CONFORMANCE.md's table.
func (s *suite) report(areas []string, cases []*golden, deviations []*deviation) string {
	var b strings.Builder
	b.WriteString("| area | cases | equal | deviating | failing |\n|---|---|---|---|---|\n")
	line := func(name string, of func(*golden) bool) {
		n := map[string]int{}
		for _, g := range cases {
			if of(g) {
				n["all"]++
				n[s.verdicts[g.ID].String()]++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, n["all"], n["equal"], n["deviating"], n["failing"])
	}
	for _, area := range areas {
		line(area, func(g *golden) bool { return g.area == area })
	}
	line("**all**", func(*golden) bool { return true })
	b.WriteString("\n## Deviations\n\n| what | cases | members | instead | why |\n|---|---|---|---|---|\n")
	for _, d := range deviations {
		var ids []string
		for _, g := range cases {
			if s.verdicts[g.ID].deviation == d {
				ids = append(ids, g.ID)
			}
		}
		count := fmt.Sprint(len(ids))
		if len(ids) <= 6 {
			count = strings.Join(ids, ", ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.Name, count, strings.Join(d.Members, ", "), d.Instead, d.Why)
	}
	return b.String()
}

const (
	reportBegin = "<!-- written by test/conformance -->\n"
	reportEnd   = "<!-- end -->\n"
)

// requireReport compares the page with the report, or writes it.
func requireReport(t *testing.T, file, report string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(raw), reportBegin)
	require.True(t, found, "%s has no place for the report", file)
	old, after, found := strings.Cut(rest, reportEnd)
	require.True(t, found, "%s has no place for the report", file)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+reportBegin+report+reportEnd+after), 0o644)) //nolint:gosec // a page of the documentation
		return
	}
	require.Equal(t, old, report, "%s is out of date: go test ./test/conformance -update", file)
}
