package kafka

import (
	"sync"

	"github.com/rcrowley/go-metrics"
)

// silence keeps sarama's FetchRequest, which counts in the default registry whatever registry it is given, from starting a goroutine there.
var silence = sync.OnceFunc(func() { metrics.DefaultRegistry = noMetrics{} })

// noMetrics is a registry for sarama that records nothing.
type noMetrics struct{}

var _ metrics.Registry = noMetrics{}

func (noMetrics) GetOrRegister(_ string, metric any) any {
	switch metric.(type) {
	case func() metrics.Meter, metrics.Meter:
		return metrics.NilMeter{}
	case func() metrics.Counter, metrics.Counter:
		return metrics.NilCounter{}
	case func() metrics.Histogram, metrics.Histogram:
		return metrics.NilHistogram{}
	default:
		return metric
	}
}

func (noMetrics) Each(func(string, any))            {}
func (noMetrics) Get(string) any                    { return nil }
func (noMetrics) GetAll() map[string]map[string]any { return nil }
func (noMetrics) Register(string, any) error        { return nil }
func (noMetrics) RunHealthchecks()                  {}
func (noMetrics) Unregister(string)                 {}
func (noMetrics) UnregisterAll()                    {}
