// Package e2e tests the built binary as a user runs it: a child process between a real PostgreSQL and a real Kafka.
//
// Servers are shared by the tests; each test has a database, a slot and topics of its own. Nothing here waits for a time: tests wait
// until the slot is confirmed beyond what they wrote, and then read the topics to their ends.
package e2e

import (
	"testing"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) {
	parts.Main(m)
}
