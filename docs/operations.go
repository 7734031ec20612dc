// Package docs holds the pages for people. The relay carries the one that is needed in the night, so that a runbook is there when the
// network is not.
package docs

import (
	_ "embed"
	"regexp"
	"strings"
)

//go:embed OPERATIONS.md
var operations string

// Section returns the part of OPERATIONS.md under a heading, with those below it, as Markdown; empty if there is none. The heading is
// given as it stands there, or as the end of a link to it: "PostriderSlotLost", "rows-that-are-there-already".
func Section(heading string) string {
	var section strings.Builder
	level, fenced := 0, false
	for line := range strings.Lines(operations) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if n := depth(line); n > 0 && !fenced {
			if level > 0 && n <= level {
				break
			}
			if level == 0 && heading != "" && anchor(line[n:]) == anchor(heading) {
				level = n
			}
		}
		if level > 0 {
			section.WriteString(line)
		}
	}
	return section.String()
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
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
}
