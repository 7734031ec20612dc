package slot

import "time"

// RenewEvery makes a monitor that does not run yet replace its connection more often.
func (m *Monitor) RenewEvery(d time.Duration) { m.renew = d }

// The least periods of the waits.
const (
	ProbeMin         = probeMin
	FreeInterval     = freeInterval
	UnlockedInterval = unlockedInterval
)

// Spans is how many facts about relations a remembers.
func (a *Assigner) Spans() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.spans {
		n += len(of)
	}
	return n
}
