package config

import "strings"

// nearest finds the known name that was probably meant, or nothing.
func nearest(name string, known []string) string {
	best, bestDistance := "", len(name)/3+1
	for _, k := range known {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if leafOf(k) == leafOf(name) {
			d = min(d, 1) // the right key in the wrong section
		}
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

func leafOf(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// distance is the Damerau-Levenshtein distance (adjacent transpositions count one) of two short strings.
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
