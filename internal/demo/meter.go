package demo

import (
	"slices"
	"sync"
	"time"
)

// meter measures from the moment a writer saw its commit succeed to the moment the consumer had the event. Either may be
// noticed first; an event that was received before its writer noticed the commit took no time.
type meter struct {
	mu        sync.Mutex
	waiting   map[event]time.Time // one side is known: commit, or receipt
	latencies []time.Duration     // of all events
	looked    int                 // latencies[looked:] came since the last look
	records   int64               // received, duplicates included
}

type event struct {
	key    string
	number uint64
}

func newMeter() *meter { return &meter{waiting: map[event]time.Time{}} }

func (m *meter) committed(key string, number uint64, at time.Time) {
	m.pair(event{key, number}, func(received time.Time) time.Duration { return received.Sub(at) }, at)
}

func (m *meter) received(key string, number uint64, at time.Time) {
	m.pair(event{key, number}, func(committed time.Time) time.Duration { return at.Sub(committed) }, at)
}

func (m *meter) pair(e event, latency func(other time.Time) time.Duration, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	other, ok := m.waiting[e]
	if !ok {
		m.waiting[e] = at
		return
	}
	delete(m.waiting, e)
	m.latencies = append(m.latencies, max(0, latency(other)))
}

func (m *meter) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records++
}

func (m *meter) counted() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records
}

// recent gives the quantiles of what came since it was last called.
func (m *meter) recent() (p50, p99 time.Duration) {
	m.mu.Lock()
	fresh := slices.Clone(m.latencies[m.looked:])
	m.looked = len(m.latencies)
	m.mu.Unlock()
	slices.Sort(fresh)
	return Quantile(fresh, .5), Quantile(fresh, .99)
}

func (m *meter) sorted() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.latencies)
	slices.Sort(all)
	return all
}

// Quantile of a sorted list; zero of an empty one.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
