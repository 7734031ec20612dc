package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// areas are the files of the recordings, in their order.
func (s *suite) areas() []string {
	var areas []string
	for _, g := range s.cases {
		if len(areas) == 0 || areas[len(areas)-1] != g.area {
			areas = append(areas, g.area)
		}
	}
	return areas
}

// table counts the verdicts and lists the deviations.
func (s *suite) table() string {
	var b strings.Builder
	b.WriteString("| Area | Cases | Equal | Deviating | Failing |\n|---|--:|--:|--:|--:|\n")
	line := func(name string, belongs func(*golden) bool) {
		n := map[string]int{}
		for _, g := range s.cases {
			if belongs(g) {
				n["all"]++
				n[s.verdicts[g].String()]++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, n["all"], n["equal"], n["deviating"], n["failing"])
	}
	for _, area := range s.areas() {
		line(area, func(g *golden) bool { return g.area == area })
	}
	line("**all**", func(*golden) bool { return true })
	b.WriteString("\n## Deviations\n\n| Debezium | postrider | Why | Cases |\n|---|---|---|---|\n")
	for _, d := range s.deviations {
		var ids []string
		for _, g := range s.cases {
			if s.verdicts[g].deviation == d {
				ids = append(ids, g.ID)
			}
		}
		b.WriteString(d.row(ids))
	}
	return b.String()
}

const (
	tableBegin = "<!-- written by test/conformance -->\n"
	tableEnd   = "<!-- end -->\n"
)

// requirePage compares the page with the table, or writes it.
func (s *suite) requirePage(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(raw), tableBegin)
	require.True(t, found, "%s has no place for the table", file)
	old, after, found := strings.Cut(rest, tableEnd)
	require.True(t, found, "%s has no place for the table", file)
	table := s.table()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+tableBegin+table+tableEnd+after), 0o644)) //nolint:gosec // a page of the documentation
		return
	}
	require.Equal(t, old, table, "%s is out of date: go test ./test/conformance -update", file)
}
