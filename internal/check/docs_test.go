package check

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
)

// anchors are the headings of a page as links name them.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	require.NoError(t, err)
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, strings.ReplaceAll(anchor, " ", "-"))
	}
	return found
}

func requireHeading(t *testing.T, docs string) {
	t.Helper()
	page, anchor, ok := strings.Cut(docs, "#")
	require.True(t, ok, docs)
	require.Contains(t, anchors(t, page), anchor, "%s links to a heading that is not there", docs)
}

func TestCheck_LinksToHeadingsThatExist(t *testing.T) {
	for _, g := range checkGroups {
		for _, code := range g.codes {
			requireHeading(t, docsOf(code))
		}
	}
	for _, name := range health.Names() {
		requireHeading(t, docsOf(name))
	}
}

// The page has the groups of the table, in its order, and nothing that check does not look at.
func TestCheckPage_HasTheGroupsOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/CHECK.md")
	require.NoError(t, err)
	var sections []checkGroup
	for _, m := range regexp.MustCompile(`(?m)^(##|###) (.+)$`).FindAllStringSubmatch(string(text),
		-1) {
		if m[1] == "##" {
			sections = append(sections, checkGroup{name: m[2]})
			continue
		}
		last := &sections[len(sections)-1]
		last.codes = append(last.codes, m[2])
	}
	require.Len(t, sections, len(checkGroups))
	for i, g := range checkGroups {
		require.Equal(t, g.name, sections[i].name)
		require.ElementsMatch(t, g.codes, sections[i].codes, g.name)
	}
}

func TestCheckPage_LinksToHeadingsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/CHECK.md")
	require.NoError(t, err)
	links := regexp.MustCompile(`\]\(([A-Z-]*\.?m?d?#[^)]+)\)`).FindAllStringSubmatch(string(text),
		-1)
	require.NotEmpty(t, links)
	for _, m := range links {
		page, anchor, _ := strings.Cut(m[1], "#")
		if page == "" {
			page = "CHECK.md"
		}
		requireHeading(t, "docs/"+page+"#"+anchor)
	}
}

// Every code that stands in the source stands in a group, and so on the page.
func TestCheck_GroupsEveryCode(t *testing.T) {
	var known []string
	for _, g := range checkGroups {
		known = append(known, g.codes...)
	}
	slices.Sort(known)
	require.Equal(t, slices.Compact(slices.Clone(known)), known, "a code stands in one group")
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	literal := regexp.MustCompile(`(?:\b(?:found|sinkFinding|errorFinding|connectionFinding|` +
		`readable|listen|compacted)\(|used\(ctx, |\t\t\{|code(?:, id)? = )"([a-z]+(?:_[a-z]+)*)"`)
	found := map[string]bool{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range literal.FindAllStringSubmatch(string(source), -1) {
			found[m[1]] = true
		}
	}
	for code := range found {
		require.Contains(t, known, code)
	}
	for _, code := range known {
		require.True(t, found[code], "%s stands in a group, and nothing finds it", code)
	}
}

func TestCheck_SaysWhatEachConditionIsMeasuredBy(t *testing.T) {
	required := requirements(health.DefaultConfig())
	for _, name := range health.Names() {
		require.NotEmpty(t, required[name], name)
	}
	require.Len(t, required, len(health.Names()))
}
