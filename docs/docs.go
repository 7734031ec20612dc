// Package docs holds the pages for people. The relay carries those that are needed in the night,
// so that a runbook is there when the network is not.
package docs

import (
	"cmp"
	"embed"
	"regexp"
	"strings"
)

//go:embed RUNBOOKS.md SLOTS.md EXIT-CODES.md CHECK.md TROUBLESHOOTING.md
var carried embed.FS

// Section returns the part of a page under a heading, with the headings below it, as Markdown;
// empty if there is none. link has the form of a link to it, "docs/CHECK.md#wal_level". Without a
// page, RUNBOOKS.md and SLOTS.md are searched, as for links to OPERATIONS.md, which both were
// once. The case of letters does not matter.
func Section(link string) string {
	page, heading, found := strings.Cut(strings.TrimPrefix(link, "docs/"), "#")
	if !found {
		page, heading = "OPERATIONS.md", page
	}
	if page == "OPERATIONS.md" {
		return cmp.Or(section("RUNBOOKS.md", heading), section("SLOTS.md", heading))
	}
	return section(page, heading)
}

func section(page, heading string) string {
	text, err := carried.ReadFile(page)
	if err != nil || heading == "" {
		return "" // no such page
	}
	var found strings.Builder
	level, fenced := 0, false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if n := depth(line); n > 0 && !fenced {
			if level > 0 && n <= level {
				break
			}
			// a group of checks may have the name of one of them, which is meant then
			if anchor(line[n:]) == anchor(heading) {
				level = n
				found.Reset()
			}
		}
		if level > 0 {
			found.WriteString(line)
		}
	}
	return found.String()
}

// depth is the level of a heading, 0 for any other line.
func depth(line string) int {
	n := len(line) - len(strings.TrimLeft(line, "#"))
	if n > 0 && strings.HasPrefix(line[n:], " ") {
		return n
	}
	return 0
}

var dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)

// anchor is what links to a heading end with.
func anchor(heading string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)),
		""), " ", "-")
}
