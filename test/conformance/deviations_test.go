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

// deviation is where postrider does something else than Debezium on purpose. It is meant for the cases that fulfil one of its conditions, so that
// further recordings of the kind are covered too.
type deviation struct {
	Name    string   `toml:"name"`    // what Debezium does
	Cases   []string `toml:"cases"`   // patterns of ids; * stands for anything
	Error   text     `toml:"error"`   // class and message that Debezium failed with
	Ours    text     `toml:"ours"`    // what postrider failed with
	Topic   text     `toml:"topic"`   // of a record of Debezium's
	Blocked bool     `toml:"blocked"` // Debezium's producer waits forever
	Varies  bool     `toml:"varies"`  // Debezium had several outcomes, and ours is none of them
	Members []string `toml:"members"` // what may differ; nothing else may
	Instead string   `toml:"instead"` // what postrider does
	Why     string   `toml:"why"`
}

// text is a condition on a text: a regular expression that is found in it. The empty one is never fulfilled.
type text struct{ *regexp.Regexp }

func (p *text) UnmarshalText(b []byte) (err error) {
	p.Regexp, err = regexp.Compile(string(b))
	return err
}

func (p text) in(s string) bool { return p.Regexp != nil && p.MatchString(s) }

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
	}
	return f.Deviation
}

// covers tells whether the deviation is meant for a case, which postrider failed with failure if that is not nil.
func (d *deviation) covers(g *golden, failure error) bool {
	return d.Blocked && g.Blocked ||
		d.Varies && len(g.SeenOutcomes) > 0 ||
		g.Error != nil && d.Error.in(g.Error.Class+": "+g.Error.Message) ||
		failure != nil && d.Ours.in(failure.Error()) ||
		slices.ContainsFunc(g.Records, func(r record) bool { return d.Topic.in(r.Topic) }) ||
		d.names(g)
}

// names tells whether the case stands in the list itself.
func (d *deviation) names(g *golden) bool {
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

// judge holds the differences of a case, which postrider failed with failure if that is not nil, to the list.
func judge(g *golden, differences []difference, failure error, deviations []*deviation) verdict {
	v := verdict{differences: differences, unexplained: differences}
	if len(differences) == 0 {
		return v
	}
	for _, d := range deviations {
		if !d.covers(g, failure) {
			continue
		}
		other := slices.DeleteFunc(slices.Clone(differences), func(x difference) bool {
			return slices.Contains(d.Members, x.member) && (g.mayDeviate(x.member) || d.names(g))
		})
		if len(other) == 0 {
			return verdict{differences: differences, deviation: d}
		}
		v.unexplained = other
	}
	return v
}

// mayDeviate tells whether a member may be another by a general rule. Where records go and what they are called must not be, unless Debezium
// itself fails or varies in this very case.
func (g *golden) mayDeviate(member string) bool {
	switch member {
	case memberTopic, memberPartition, memberKey, memberHeaders:
		return g.Error != nil || g.Blocked || g.varies(member)
	}
	return true
}

// requireUsed fails for a deviation that the cases it names do not need any more. Further recordings may still need others.
func (s *suite) requireUsed(t *testing.T) {
	t.Helper()
	for _, d := range s.deviations {
		for _, pattern := range d.Cases {
			named, needed := 0, 0
			for g, v := range s.verdicts {
				if matches(pattern, g.ID) {
					named++
					if v.deviation == d {
						needed++
					}
				}
			}
			if named > 0 && needed == 0 {
				t.Errorf("deviations.toml: %q: no case of %q deviates: remove it", d.Name, pattern)
			}
		}
	}
	for _, g := range s.cases {
		v := s.verdicts[g]
		for _, d := range s.deviations {
			// Where it says how Debezium fails, it must not be that postrider does the same by now.
			if len(v.differences) == 0 && (d.Blocked && g.Blocked || g.Error != nil && d.Error.in(g.Error.Class+": "+g.Error.Message)) {
				t.Errorf("deviations.toml: %q: %s does not deviate: remove it, or say more exactly what it is about", d.Name, g.ID)
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

// row is a deviation's line of the page. Without ids it is known from recordings that are not in the repository.
func (d *deviation) row(ids []string) string {
	cases := strings.Join(ids, ", ")
	switch {
	case len(ids) == 0:
		cases = "others"
	case len(ids) > 8:
		cases = fmt.Sprintf("%d, like %s", len(ids), strings.Join(ids[:3], ", "))
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", d.Name, d.Instead, d.Why, cases)
}
