package kafka

import (
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// quick is a configuration whose retries and time-outs suit a test.
func quick(brokers ...string) Config {
	cfg := DefaultConfig()
	cfg.Brokers = brokers
	cfg.DialTimeout = 2 * time.Second
	cfg.ProduceTimeout = time.Second
	cfg.ReadTimeout = 2 * time.Second
	cfg.WriteTimeout = 2 * time.Second
	cfg.DeliveryTimeout = 30 * time.Second
	cfg.RetryBackoff = 5 * time.Millisecond
	return cfg
}
