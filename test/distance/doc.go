// Package distance measures the relay far from its servers: over a link with a delay, a rate and
// losses, with TLS to both. The relay is in a network namespace of its own, so that all of TCP is
// real, and a program in between passes packets on. It needs Linux and root.
//
//	go test ./test/distance -run TestDistance -measure -v -timeout 0
//
// prints the table in docs/PERFORMANCE.md. Without -measure one link of 5 ms that loses packets is
// tried for a moment.
//
// Its files are tests: link_test.go is the link, distance_test.go the measurement.
package distance
