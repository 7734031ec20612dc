package ratelimit

import (
	"math"
	"sync"
	"time"
)

const (
	// memory is the time over which a share of waiting is averaged.
	memory = 10 * time.Second
	// limitingShare is the share of waiting from which on a limit counts as what holds messages
	// back: less comes of bursts.
	limitingShare = 0.1
)

// State is what a Limiter reports. It is zero without limits.
type State struct {
	MaxRate Rate `json:"max_rate"` // relay.max_rate
	// Limiting is the key of the limit that holds messages back: relay.max_rate, relay.rate[2].
	// Empty: none does.
	Limiting string `json:"limiting,omitempty"`
	Limit    Rate   `json:"limit,omitzero"` // of Limiting
	// Messages and Bytes count what was published since there are limits.
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

// State returns the present state.
func (l *Limiter) State() State {
	if l == nil {
		return State{}
	}
	now := l.limits.Load()
	if now == nil {
		return State{}
	}
	st := State{MaxRate: now.all, Messages: now.messages.Load(), Bytes: now.bytes.Load()}
	if key := l.waits.limiting(); key != "" {
		for _, limit := range now.list {
			if limit.key == key {
				st.Limiting, st.Limit = key, limit.rate
			}
		}
	}
	return st
}

// waits measures how much of the time is spent waiting.
type waits struct {
	mu    sync.Mutex // guards what follows
	share float64    // of the time until at, weighted by age
	at    time.Time
	now   bool   // a wait is under way
	key   string // of the limit of the last wait
}

func (w *waits) begin(l *limit) { w.turn(true, l.key) }

func (w *waits) end() { w.turn(false, "") }

func (w *waits) turn(waiting bool, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.averageLocked()
	if w.now = waiting; waiting {
		w.key = key
	}
}

// averageLocked moves share to the present.
func (w *waits) averageLocked() {
	now, is := time.Now(), 0.0
	if w.now {
		is = 1
	}
	if w.at.IsZero() {
		w.at = now
	}
	old := math.Exp(-now.Sub(w.at).Seconds() / memory.Seconds())
	w.share, w.at = old*w.share+(1-old)*is, now
}

// limiting returns the key of the limit that is waited for; empty: hardly any time is.
func (w *waits) limiting() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.averageLocked(); w.share < limitingShare {
		return ""
	}
	return w.key
}
