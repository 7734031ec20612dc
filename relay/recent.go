package relay

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/sink"
)

const (
	recentEvents   = 100
	recentInterval = 20 * time.Millisecond // between events: each costs the sink time
	refusedTopics  = 200                   // at most: the names come from rows

	// repeatInterval is the time after which a failure is logged again.
	repeatInterval = time.Minute
)

// Published is an event that the broker acknowledged, without its content.
type Published struct {
	At             time.Time `json:"at"`
	Topic          string    `json:"topic"`
	Relation       string    `json:"relation"`
	EventID        string    `json:"event_id,omitempty"`
	LSN            string    `json:"lsn"` // commit LSN, in PostgreSQL's text form
	CommitTime     time.Time `json:"commit_time"`
	LatencySeconds float64   `json:"latency_seconds"` // from the commit to the acknowledgement
	Bytes          int       `json:"bytes"`
}

// Failure counts the sessions that ended for one reason.
type Failure struct {
	Reason    string    `json:"reason"` // as in the log, and a heading in docs/RUNBOOKS.md
	Class     string    `json:"class"`
	Count     int       `json:"count"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	Text      string    `json:"text"` // of the last session
	WAL       string    `json:"wal,omitempty"`
	Next      string    `json:"next,omitempty"`
}

// recent has the last events and the failures of this process. The zero value is ready.
type recent struct {
	last   atomic.Int64 // when an event was kept, Unix nanoseconds
	commit atomic.Int64 // of the newest transaction with an event acknowledged, Unix microseconds

	mu       sync.Mutex  // guards what follows
	events   []Published // the oldest first
	failures map[string]Failure
	logged   logged
	refused  map[string]int // messages that the broker refused, by topic
}

// delivered records the commit time, and the event unless one was recorded a moment ago.
func (r *recent) delivered(m *sink.Message, now time.Time, late time.Duration) {
	commit := m.Origin.CommitTime.UnixMicro() // partitions acknowledge in any order
	for was := r.commit.Load(); commit > was && !r.commit.CompareAndSwap(was, commit); {
		was = r.commit.Load()
	}
	last, at := r.last.Load(), now.UnixNano()
	// a difference below zero: the clock was set back
	if d := at - last; d >= 0 && d < int64(recentInterval) || !r.last.CompareAndSwap(last, at) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Cloned, since each string refers to the read buffer.
	r.events = append(r.events[max(0, len(r.events)-recentEvents+1):], Published{
		At: now, Topic: strings.Clone(m.Topic), Relation: strings.Clone(m.Origin.Relation),
		EventID: strings.Clone(m.Origin.EventID), LSN: m.Origin.LSN.String(),
		CommitTime: m.Origin.CommitTime, Bytes: m.Size(), LatencySeconds: late.Seconds(),
	})
}

// lastCommit returns the newest commit time; zero if nothing was acknowledged.
func (r *recent) lastCommit() time.Time {
	if at := r.commit.Load(); at > 0 {
		return time.UnixMicro(at).UTC()
	}
	return time.Time{}
}

// refusedBy counts a refused message, but none that failed with the sink or its connection.
func (r *recent) refusedBy(topic string, err error) {
	if errors.Is(err, sink.ErrClosed) || errors.Is(err, sink.ErrUnreachable) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = map[string]int{}
	}
	if _, known := r.refused[topic]; known || len(r.refused) < refusedTopics {
		r.refused[strings.Clone(topic)]++
	}
}

func (r *recent) failed(f Failure, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures == nil {
		r.failures = map[string]Failure{}
	}
	f.FirstSeen, f.LastSeen, f.Count = now, now, 1
	if before, known := r.failures[f.Reason]; known {
		f.FirstSeen, f.Count = before.FirstSeen, before.Count+1
	}
	r.failures[f.Reason] = f
}

// logged has the failures since a session was opened last, with the time of the last line of each
// that is not older than repeatInterval.
type logged struct {
	sessions int // opened until then
	lines    map[string]time.Time
}

// shouldLog reports whether a failure is to be logged: attempts that fail for one cause, one after
// the other, are logged once a minute. sessions is how many were opened before.
func (r *recent) shouldLog(sessions int, cause string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.logged
	if l.sessions != sessions || l.lines == nil {
		*l = logged{sessions: sessions, lines: map[string]time.Time{}}
	}
	maps.DeleteFunc(l.lines,
		func(_ string, at time.Time) bool { return now.Sub(at) >= repeatInterval })
	if _, known := l.lines[cause]; known {
		return false
	}
	l.lines[cause] = now
	return true
}

// Recent returns a sample of the acknowledged events, newest first: at most 100, 50 a second.
func (r *Relay) Recent() []Published {
	r.recent.mu.Lock()
	defer r.recent.mu.Unlock()
	events := append([]Published{}, r.recent.events...)
	slices.Reverse(events)
	return events
}

// Failures returns why sessions of this process ended, the latest first.
func (r *Relay) Failures() []Failure {
	r.recent.mu.Lock()
	defer r.recent.mu.Unlock()
	latest := func(a, b Failure) int { return b.LastSeen.Compare(a.LastSeen) }
	failures := slices.SortedFunc(maps.Values(r.recent.failures), latest)
	return append([]Failure{}, failures...) // [] in JSON, not null
}

// Refused returns how many messages the broker refused, by topic.
func (r *Relay) Refused() map[string]int {
	r.recent.mu.Lock()
	defer r.recent.mu.Unlock()
	return maps.Clone(r.recent.refused)
}
