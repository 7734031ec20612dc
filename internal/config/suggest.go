package config

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/suggest"
)

// didYouMean is a hint at the known name that was probably meant; empty if there is none.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// nearest prefers the right key in another section.
func nearest(name string, known []string) string {
	leaf := func(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
	at := slices.IndexFunc(known, func(k string) bool { return leaf(k) == leaf(name) })
	if at >= 0 {
		return known[at]
	}
	return suggest.Nearest(name, known, len(name)/3)
}
