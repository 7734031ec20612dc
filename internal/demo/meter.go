package demo

import (
	"slices"
	"sync"
	"time"
)

// meter measures the time from a writer's commit to the consumer's receipt. An event that is
// received before its writer has the answer to its commit takes no time.
type meter struct {
	mu        sync.Mutex
	waiting   map[event]time.Time // one side is known: commit, or receipt
	latencies []time.Duration     // of all events
	looked    int                 // latencies[looked:] came since the last call of recent
	records   int64               // received, duplicates included
}

type event struct {
	key    string
	number uint64
}

func newMeter() *meter { return &meter{waiting: map[event]time.Time{}} }

func (m *meter) committed(e event, at time.Time) { m.pair(e, at, -1) }

func (m *meter) received(e event, at time.Time) { m.pair(e, at, 1) }

// pair adds a latency when both sides are known: at minus that of the other side, times sign.
func (m *meter) pair(e event, at time.Time, sign time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	other, ok := m.waiting[e]
	if !ok {
		m.waiting[e] = at
		return
	}
	delete(m.waiting, e)
	m.latencies = append(m.latencies, max(0, sign*at.Sub(other)))
}

func (m *meter) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records++
}

func (m *meter) counted() (records int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records, nil
}

// recent returns the quantiles of the latencies since its last call.
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
