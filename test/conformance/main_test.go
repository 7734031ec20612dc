// Package conformance compares postrider with what Debezium's PostgreSQL connector and its Outbox Event Router wrote to Kafka.
//
// testdata/golden holds recordings of the real Debezium: statements, the connector's configuration, and every record with its
// bytes. A case is run as a user would move it: its configuration goes through the translation that import-debezium does, its statements
// through a real PostgreSQL and the replication stream, the rows through the router and the Kafka sink to a broker. What lies in the topics
// then is compared byte for byte: topic, partition, key, value, headers in order and timestamp.
//
// POSTRIDER_GOLDEN=DIR runs the recordings of another directory. Where postrider does something else on purpose, deviations.toml says
// what and why; docs/CONFORMANCE.md is written by this suite (-update).
package conformance

import (
	"flag"
	"testing"

	"github.com/postrider/postrider/test/parts"
)

var update = flag.Bool("update", false, "write docs/CONFORMANCE.md anew")

func TestMain(m *testing.M) {
	parts.Main(m)
}
