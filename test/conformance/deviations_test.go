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
	Name    string   `toml:"name"`    // what Debezium does
	Cases   []string `toml:"cases"`   // patterns of ids; * stands for anything
	Error   string   `toml:"error"`   // a regular expression for the class and message that Debezium failed with: further cases of the kind are meant too
	Blocked bool     `toml:"blocked"` // Debezium's producer waits forever
	Varies  bool     `toml:"varies"`  // Debezium had several outcomes, and ours is none of them
	Members []string `toml:"members"` // what may differ; nothing else may
	Instead string   `toml:"instead"` // what postrider does
	Why     string   `toml:"why"`

	pattern *regexp.Regexp
}

func loadDeviations(t *testing.T, file string) []*deviation {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var f struct{ Deviation []*deviation }
	require.NoError(t, toml.NewDecoder(strings.NewReader(string(raw))).DisallowUnknownFields().Decode(&f), file)
	for _, d := range f.Deviation {
		require.NotEmpty(t, d.Name)
		require.NotEmpty(t, d.Instead, d.Name)
		require.NotEmpty(t, d.Why, d.Name)
		require.NotEmpty(t, d.Members, d.Name)
		if d.Error != "" {
			d.pattern, err = regexp.Compile(d.Error)
			require.NoError(t, err, d.Name)
		}
	}
	return f.Deviation
}

// covers tells whether the deviation is meant for a case.
func (d *deviation) covers(g *golden) bool {
	switch {
	case d.Blocked && g.Blocked, d.Varies && len(g.SeenOutcomes) > 0:
		return true
	case d.pattern != nil && g.Error != nil && d.pattern.MatchString(g.Error.Class+": "+g.Error.Message):
		return true
	}
	return slices.ContainsFunc(d.Cases, func(pattern string) bool { return matches(pattern, g.ID) })
}

func matches(pattern, id string) bool {
	ok, err := path.Match(pattern, id)
	return err == nil && ok
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
	v := verdict{differences: differences, unexplained: differences}
	if len(differences) == 0 {
		return v
	}
	for _, d := range deviations {
		if !d.covers(g) {
			continue
		}
		other := slices.DeleteFunc(slices.Clone(differences), func(x difference) bool {
			return slices.Contains(d.Members, x.member) && g.mayDeviate(x.member)
		})
		if len(other) == 0 {
			return verdict{differences: differences, deviation: d}
		}
		v.unexplained = other
	}
	return v
}

// mayDeviate tells whether a member may be another on purpose. Where records go and what they are called must not be, unless
// Debezium itself fails or varies.
func (g *golden) mayDeviate(member string) bool {
	switch member {
	case memberTopic, memberPartition, memberKey, memberHeaders:
		return g.Error != nil || g.Blocked || g.varies(member)
	case memberRun:
		return false
	}
	return true
}

// requireUsed fails for a deviation that no case of the repository needs any more.
func (s *suite) requireUsed(t *testing.T) {
	t.Helper()
	for _, d := range s.deviations {
		used := map[string]bool{} // ids
		for id, v := range s.verdicts {
			if v.deviation == d {
				used[id] = true
			}
		}
		if len(used) == 0 {
			t.Errorf("deviations.toml: %q is not needed any more: remove it", d.Name)
			continue
		}
		for _, pattern := range d.Cases {
			needed := false
			for id := range used {
				needed = needed || matches(pattern, id)
			}
			if !needed {
				t.Errorf("deviations.toml: %q: no case of %q deviates: remove it", d.Name, pattern)
			}
		}
	}
}

// requireFewDeviations holds the list to one case in twenty.
func (s *suite) requireFewDeviations(t *testing.T) {
	t.Helper()
	n := 0
	for _, v := range s.verdicts {
		if v.deviation != nil {
			n++
		}
	}
	require.LessOrEqual(t, n*20, len(s.cases), "more than one case in twenty deviates")
}

// row is a deviation's line of the page.
func (d *deviation) row(ids []string) string {
	cases := strings.Join(ids, ", ")
	if len(ids) > 8 {
		cases = fmt.Sprintf("%d, like %s", len(ids), strings.Join(ids[:3], ", "))
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", d.Name, d.Instead, d.Why, cases)
}
