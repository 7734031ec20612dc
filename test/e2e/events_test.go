package e2e

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
)

// ledger numbers the events of each key and compares what was committed with what arrived.
type ledger struct {
	tally *audit.Tally

	mu   sync.Mutex
	next map[string]uint64 // last number of a key that was committed
}

func newLedger() *ledger { return &ledger{tally: audit.New(), next: map[string]uint64{}} }

// draft is the events of one transaction. The keys of a draft belong to it until it is committed or given up.
type draft struct {
	of     *ledger
	events map[string]uint64 // by key: the last number
}

func (l *ledger) draft() *draft { return &draft{of: l, events: map[string]uint64{}} }

// payload is the next event of a key.
func (d *draft) payload(key string) string {
	if _, ok := d.events[key]; !ok {
		d.of.mu.Lock()
		d.events[key] = d.of.next[key]
		d.of.mu.Unlock()
	}
	d.events[key]++
	return fmt.Sprintf(`{"key": %q, "number": %d}`, key, d.events[key])
}

// committed enters the events of the draft.
func (d *draft) committed() {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	for key, last := range d.events {
		for n := d.of.next[key] + 1; n <= last; n++ {
			d.of.tally.Wrote(key, n)
		}
		d.of.next[key] = last
	}
}

// received enters records. Those of a partition must be in order.
func (l *ledger) received(t testing.TB, records []*kgo.Record) {
	t.Helper()
	for _, r := range records {
		var event struct {
			Key    string `json:"key"`
			Number uint64 `json:"number"`
		}
		require.NoError(t, json.Unmarshal(r.Value, &event), "%s", r.Value)
		require.Equal(t, event.Key, string(r.Key))
		require.Equal(t, partitionOf(r.Topic, r.Key), r.Partition)
		l.tally.Received(event.Key, event.Number)
	}
}

// requireExact wants every committed event exactly once and in order, and at least this many.
func (l *ledger) requireExact(t testing.TB, atLeast int) {
	t.Helper()
	v := l.tally.Verdict()
	require.True(t, v.Clean(), "%+v", v)
	require.Equal(t, v.Written, v.Delivered)
	require.GreaterOrEqual(t, v.Written, int64(atLeast))
}
