// Package suggest finds the name that a misspelt one was probably meant to be.
package suggest

import "strings"

// Nearest returns the first known name with the least distance from name, in any case of letters;
// empty if none has a distance of limit or less.
func Nearest(name string, known []string, limit int) string {
	best, least := "", limit+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the Damerau-Levenshtein distance (adjacent transpositions count one) of two short
// strings.
func distance(a, b string) int {
	var before []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
