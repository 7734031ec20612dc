package topics

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) {
	parts.Main(m, goleak.IgnoreAnyFunction(sleepingBreaker), goleak.IgnoreAnyFunction(meters))
}

// quick is a configuration whose retries and time-outs suit a test.
func quick(brokers ...string) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = brokers
	cfg.DialTimeout = 2 * time.Second
	cfg.ProduceTimeout = time.Second
	cfg.ReadTimeout = 2 * time.Second
	cfg.WriteTimeout = 2 * time.Second
	cfg.DeliveryTimeout = 30 * time.Second
	cfg.RetryBackoff = 5 * time.Millisecond
	return cfg
}

// unhurried is quick, but nothing times out because the machine is busy.
func unhurried(brokers ...string) kafka.Config {
	cfg := quick(brokers...)
	cfg.DialTimeout, cfg.ProduceTimeout, cfg.ReadTimeout, cfg.WriteTimeout = 10*time.Second, 10*time.Second, 20*time.Second, 20*time.Second
	return cfg
}

// real is a configuration for a real broker, which is slower than one in memory.
func real(b *parts.Broker) kafka.Config {
	cfg := unhurried(b.Brokers()...)
	cfg.RetryBackoff = 50 * time.Millisecond
	return cfg
}

const (
	// sleepingBreaker: when a leader could not be looked up three times, sarama's circuit breaker
	// sleeps for 10 s before it may be closed again. Nothing can end that sleep, and nothing waits
	// for it.
	sleepingBreaker = "github.com/eapache/go-resiliency/breaker.(*Breaker).timer"
	// meters counts sarama's requests for as long as the process lives.
	meters = "github.com/rcrowley/go-metrics.(*meterArbiter).tick"
)
