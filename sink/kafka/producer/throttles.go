package producer

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
)

// throttles is a hook of the client that records how long brokers throttle it, since a quota is
// exceeded. The client sends such a broker nothing more until then. Safe for concurrent use.
type throttles struct {
	mu       sync.Mutex
	byBroker map[int32]throttle // the one of each broker that ends last
}

type throttle struct{ from, until time.Time }

var _ kgo.HookBrokerThrottle = (*throttles)(nil)

// OnBrokerThrottle is called by the client's goroutines, one per connection. A broker that answers
// only after the delay, as before Kafka 2.0, lets nothing wait any more.
func (ts *throttles) OnBrokerThrottle(broker kgo.BrokerMetadata, d time.Duration, follows bool) {
	now := time.Now()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if until := now.Add(d); follows && until.After(ts.byBroker[broker.NodeID].until) {
		ts.byBroker[broker.NodeID] = throttle{now, until}
	}
}

// explain reports whether a partition has waited since then because its leader, broker, throttles
// the client.
func (ts *throttles) explain(broker int32, since, now time.Time) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byBroker[broker].explains(since, now)
}

// explainAny is explain for any broker.
func (ts *throttles) explainAny(since, now time.Time) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.byBroker {
		if t.explains(since, now) {
			return true
		}
	}
	return false
}

// explains reports whether the wait would be no stall without the throttle.
func (t throttle) explains(since, now time.Time) bool {
	from, until := t.from, t.until
	if from.Before(since) {
		from = since
	}
	if until.After(now) {
		until = now
	}
	return now.Sub(since)-max(until.Sub(from), 0) < sink.StalledAfter
}
