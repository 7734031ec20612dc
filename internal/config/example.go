package config

import (
	"regexp"
	"strings"
)

// exampleKey matches a line of config.example.toml that shows a key. A # directly before the name
// marks a key without a default: the value is a sample.
var exampleKey = regexp.MustCompile(`^(#?)("?)([A-Za-z0-9_.-]+)"? = (.+)$`)

var exampleSection = regexp.MustCompile(`^\[([a-z.]+)\]`)

// exampleEntry is a key as config.example.toml shows it.
type exampleEntry struct {
	name    string // in full
	comment string // the lines above it, joined
	sample  bool   // not the default
	line    int
}

// readExample lists the keys, and the comments above sections by their names.
func readExample(example string) (keys []exampleEntry, sections map[string]string) {
	sections = map[string]string{}
	section := ""
	var comment []string
	for i, line := range strings.Split(example, "\n") {
		if m := exampleSection.FindStringSubmatch(line); m != nil {
			section = m[1]
			sections[section] = strings.Join(comment, " ")
			comment = nil
			continue
		}
		if m := exampleKey.FindStringSubmatch(line); m != nil {
			keys = append(keys, exampleEntry{
				name: section + "." + m[3], comment: strings.Join(comment, " "), sample: m[1] == "#", line: i +
					1,
			})
			comment = nil
			continue
		}
		words, isComment := strings.CutPrefix(line, "#")
		if !isComment || strings.TrimSpace(words) == "" {
			comment = nil
			continue
		}
		comment = append(comment, strings.TrimSpace(words))
	}
	return keys, sections
}

// Descriptions are the comments of config.example.toml, by full name of the key.
func Descriptions(example string) map[string]string {
	keys, _ := readExample(example)
	descriptions := make(map[string]string, len(keys))
	for _, k := range keys {
		descriptions[k.name] = k.comment
	}
	return descriptions
}
