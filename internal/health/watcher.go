package health

import (
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/metrics"
)

const (
	// loggedAfter is how long a condition with a For has to be present before it is logged. Without
	// it, each session that ends would add two lines.
	loggedAfter = 5 * time.Second
	// overAfter is how long a condition has to be absent to end. Without it, one that is in every
	// other verdict would fill the log.
	overAfter = 10 * time.Second
)

// Watcher keeps, from verdict to verdict, since when conditions are present and which are logged.
// A process has one.
type Watcher struct {
	metrics *metrics.Set
	log     zerolog.Logger

	mu        sync.Mutex           // guards incidents
	incidents map[string]*incident // by name
}

// incident is a period during which a condition is present.
type incident struct {
	first  time.Time // first verdict
	last   time.Time // last verdict
	began  time.Time // the earliest Since, or first
	logged Severity  // of the last log line; empty: none
}

// NewWatcher returns a watcher that exports verdicts and logs conditions.
func NewWatcher(set *metrics.Set, log zerolog.Logger) *Watcher {
	return &Watcher{metrics: set, log: log, incidents: map[string]*incident{}}
}

// Update exports the present verdict, logs each condition that begins, changes its severity or
// ends, and returns the verdict with Since of every condition. Call it about once a second. It
// does not block.
func (w *Watcher) Update(now time.Time, v Verdict) Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.export(v)
	for _, c := range v.Conditions {
		e := w.incidents[c.Name]
		if e == nil {
			e = &incident{first: now, began: now}
			w.incidents[c.Name] = e
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
	for _, name := range Names() { // in order
		if e := w.incidents[name]; e != nil && now.Sub(e.last) >= overAfter {
			delete(w.incidents, name)
			if e.logged != "" {
				w.log.Info().Str("condition", name).Float64("duration",
					e.last.Sub(e.first).Seconds()).Msg("condition ended")
			}
		}
	}
	return w.fillLocked(v)
}

// Fill returns the verdict with Since of every condition that was in the last Update. It is safe
// for concurrent use.
func (w *Watcher) Fill(v Verdict) Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fillLocked(v)
}

// fillLocked does not change the slice of the caller.
func (w *Watcher) fillLocked(v Verdict) Verdict {
	v.Conditions = slices.Clone(v.Conditions)
	for i, c := range v.Conditions {
		if e := w.incidents[c.Name]; e != nil {
			v.Conditions[i].Since = e.since(c)
		}
	}
	return v
}

// since returns the earliest known beginning of the condition. Its own Since may be later: each
// attempt to open a session begins a new phase.
func (i *incident) since(c Condition) time.Time {
	if c.Since.IsZero() || i.began.Before(c.Since) {
		return i.began
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
	event = event.Str("condition", c.Name).Str("severity", string(c.Severity)).Time("since", since).
		Str("reason", c.Reason)
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
