package cli

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/postrider/postrider/test/parts"
)

// meters is a goroutine of the metrics library of sarama, which reads for audit. It has no end.
const meters = "github.com/rcrowley/go-metrics.(*meterArbiter).tick"

func TestMain(m *testing.M) { parts.Main(m, goleak.IgnoreAnyFunction(meters)) }
