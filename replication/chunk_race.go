//go:build race

package replication

// scrub overwrites a free buffer, so that a read after Release is found.
func scrub(bytes []byte) {
	for i := range bytes {
		bytes[i] = '#'
	}
}
