package health

import (
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/metrics"
)

const (
	// A condition that somebody is told of only after a while is no line in the log either before it has held for this long: each session
	// that ends would have two more.
	loggedAfter = 5 * time.Second
	// A condition that comes back within this time is the same: one that is there in every other look would fill the log.
	overAfter = 10 * time.Second
)

// Watcher remembers the conditions from one verdict to the next: since when each holds, and which the log has. Make one for a process.
type Watcher struct {
	metrics *metrics.Set
	log     zerolog.Logger

	mu       sync.Mutex
	episodes map[string]*episode // by name
}

// episode is the time for which a condition holds.
type episode struct {
	first  time.Time // seen
	last   time.Time // seen
	began  time.Time // the earliest that its data have said, or first
	logged Severity  // with which the log has it; empty: it does not
}

// NewWatcher makes a watcher that exports each verdict and logs what begins and ends.
func NewWatcher(set *metrics.Set, log zerolog.Logger) *Watcher {
	return &Watcher{metrics: set, log: log, episodes: map[string]*episode{}}
}

// Update takes the verdict of now, to be called each second or so. It exports it, logs each condition that begins, becomes graver or
// milder, or ends, and returns the verdict with Since of every condition. It does not block.
func (w *Watcher) Update(now time.Time, v Verdict) Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.export(v)
	for _, c := range v.Conditions {
		e := w.episodes[c.Name]
		if e == nil {
			e = &episode{first: now, began: now}
			w.episodes[c.Name] = e
		}
		e.last, e.began = now, e.since(c)
		if e.logged != c.Severity && (c.For == 0 || now.Sub(e.first) >= loggedAfter) {
			message := "condition began"
			if e.logged != "" {
				message = "condition changed"
			}
			e.logged = c.Severity
			w.write(message, e.since(c), c)
		}
	}
	for _, name := range Names() { // in their order, so that the log has one
		if e := w.episodes[name]; e != nil && now.Sub(e.last) >= overAfter {
			delete(w.episodes, name)
			if e.logged != "" {
				w.log.Info().Str("condition", name).Float64("duration", e.last.Sub(e.first).Seconds()).Msg("condition ended")
			}
		}
	}
	return w.fillLocked(v)
}

// Fill returns the verdict with Since of every condition that the last Update had, for verdicts between two of them. Any goroutine may
// call it.
func (w *Watcher) Fill(v Verdict) Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fillLocked(v)
}

// fillLocked leaves the slice of the caller alone.
func (w *Watcher) fillLocked(v Verdict) Verdict {
	v.Conditions = slices.Clone(v.Conditions)
	for i, c := range v.Conditions {
		if e := w.episodes[c.Name]; e != nil {
			v.Conditions[i].Since = e.since(c)
		}
	}
	return v
}

// since is when the condition began: the earliest that was said or seen of it, for each attempt to open a session begins a phase
// of its own.
func (e *episode) since(c Condition) time.Time {
	if c.Since.IsZero() || e.began.Before(c.Since) {
		return e.began
	}
	return c.Since
}

func (w *Watcher) write(message string, since time.Time, c Condition) {
	event := w.log.Info()
	switch c.Severity {
	case Warning:
		event = w.log.Warn()
	case Critical:
		event = w.log.Error()
	}
	event = event.Str("condition", c.Name).Str("severity", string(c.Severity)).Time("since", since).Str("reason", c.Reason)
	if c.Cause != "" {
		event = event.Str("culprit", c.Cause)
	}
	event.Str("wal", c.WAL).Str("next", c.Next).Msg(message)
}

func (w *Watcher) export(v Verdict) {
	w.metrics.HealthState.Set(v.State)
	samples := make([]metrics.OptionalSample, len(v.Conditions))
	for i, c := range v.Conditions {
		samples[i] = metrics.Sample(1, c.Name, string(c.Severity))
	}
	w.metrics.HealthCondition.Replace(samples...)
}
