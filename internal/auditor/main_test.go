package auditor

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) {
	// Of sarama's metrics: one goroutine for the process.
	parts.Main(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
