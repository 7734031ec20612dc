package ratelimit

import (
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/sink"
)

const (
	// burst is the part of a second's worth that passes at once after a silence.
	burst = 0.1
	// leastWait is how long a wait lasts at least, so that messages go in batches. What comes due
	// meanwhile is a fifth of the burst, and passes next.
	leastWait = 20 * time.Millisecond
	// beatInterval is the time between two reports of a wait.
	beatInterval = time.Second
)

// Limiter counts messages and makes those who publish wait. A message that exceeds a limit passes,
// and the next one waits until it is paid for: so a message of any size passes, and on average
// never more than the limit. A nil Limiter sets no limit. Its methods are safe for concurrent use.
type Limiter struct {
	metrics *metrics.Set
	limits  atomic.Pointer[limits] // nil: there are none
	waits   waits

	mu sync.Mutex // held by Set
}

// limits are those of one configuration.
type limits struct {
	all      Rate
	topics   []TopicRate
	list     []limit
	replaced chan struct{} // closed when others are set

	messages, bytes atomic.Uint64 // counted, also by earlier limits without a gap
}

// limit is a relay.max_rate or an entry of [[relay.rate]].
type limit struct {
	key         string
	rate        Rate
	topics      []string      // empty: all
	rows, bytes *rate.Limiter // nil: no limit
	waited      prometheus.Counter
}

// New returns a limiter that exports its limits and waits with set.
func New(all Rate, topics []TopicRate, set *metrics.Set) *Limiter {
	l := &Limiter{metrics: set}
	l.Set(all, topics)
	return l
}

// Set replaces the limits, and ends every wait for those before. Equal limits change nothing.
func (l *Limiter) Set(all Rate, topics []TopicRate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.limits.Load()
	if was != nil && was.equal(all, topics) {
		return
	}
	now := &limits{all: all, topics: topics, replaced: make(chan struct{})}
	now.add(l.metrics, "relay.max_rate", all, nil)
	for i, t := range topics {
		now.add(l.metrics, fmt.Sprintf("relay.rate[%d]", i+1), t.Rate, t.Topics)
	}
	now.export(l.metrics)
	if len(now.list) == 0 {
		now = nil
	} else if was != nil {
		now.messages.Store(was.messages.Load())
		now.bytes.Store(was.bytes.Load())
	}
	l.limits.Store(now)
	if was != nil {
		close(was.replaced)
	}
}

func (ls *limits) equal(all Rate, topics []TopicRate) bool {
	return ls.all == all && slices.EqualFunc(ls.topics, topics, func(a, b TopicRate) bool {
		return a.Rate == b.Rate && slices.Equal(a.Topics, b.Topics)
	})
}

func (ls *limits) add(set *metrics.Set, key string, r Rate, topics []string) {
	if r == (Rate{}) {
		return
	}
	ls.list = append(ls.list, limit{key: key, rate: r, topics: topics, rows: perSecond(r.Rows),
		bytes: perSecond(r.Bytes), waited: set.RateWaited.WithLabelValues(key)})
}

func perSecond(n int64) *rate.Limiter {
	if n == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(n), int(min(max(1, burst*float64(n)), math.MaxInt32)))
}

func (ls *limits) export(set *metrics.Set) {
	var rows, bytes []metrics.OptionalSample
	for _, l := range ls.list {
		if l.rate.Rows > 0 {
			rows = append(rows, metrics.Sample(float64(l.rate.Rows), l.key))
		}
		if l.rate.Bytes > 0 {
			bytes = append(bytes, metrics.Sample(float64(l.rate.Bytes), l.key))
		}
	}
	set.RateLimitRows.Replace(rows...)
	set.RateLimitBytes.Replace(bytes...)
}

// Delay is how long to wait after a message. The zero Delay is none.
type Delay struct {
	until  time.Time
	limit  *limit
	limits *limits
}

// Due reports whether there is anything to wait for.
func (d Delay) Due() bool { return d.limit != nil }

// Longer returns the delay that ends later.
func (d Delay) Longer(o Delay) Delay {
	if o.until.After(d.until) {
		return o
	}
	return d
}

// On reports whether there are limits.
func (l *Limiter) On() bool { return l != nil && l.limits.Load() != nil }

// Count counts a message, and returns how long to wait before the next one.
func (l *Limiter) Count(m *sink.Message) Delay {
	if l == nil {
		return Delay{}
	}
	if now := l.limits.Load(); now != nil {
		return now.count(m.Topic, m.Size())
	}
	return Delay{}
}

func (ls *limits) count(topic string, size int) Delay {
	ls.messages.Add(1)
	ls.bytes.Add(uint64(size)) //nolint:gosec // not negative
	now, longest, d := time.Now(), time.Duration(0), Delay{}
	for i := range ls.list {
		l := &ls.list[i]
		if !l.appliesTo(topic) {
			continue
		}
		wait := max(reserve(l.rows, now, 1), reserve(l.bytes, now, size))
		if wait > longest {
			longest, d = wait, Delay{until: now.Add(wait), limit: l, limits: ls}
		}
	}
	return d
}

func (l *limit) appliesTo(topic string) bool {
	return len(l.topics) == 0 || slices.ContainsFunc(l.topics, func(pattern string) bool {
		matches, _ := path.Match(pattern, topic) // topics have no slashes
		return matches
	})
}

// reserve takes n from a limiter, in pieces, since none may be larger than the burst.
func reserve(l *rate.Limiter, now time.Time, n int) (wait time.Duration) {
	for l != nil && n > 0 {
		piece := min(n, l.Burst())
		wait = l.ReserveN(now, piece).DelayFrom(now)
		n -= piece
	}
	return wait
}

// Wait waits until the delay is over, the limits are replaced, or lifted is closed, which may be
// nil. Each second it calls beat, unless that is nil. The error is the cause of ctx.
func (l *Limiter) Wait(ctx context.Context, lifted <-chan struct{}, d Delay, beat func()) error {
	if !d.Due() {
		return nil
	}
	l.waits.begin(d.limit)
	defer l.waits.end()
	began := time.Now()
	for until := maxTime(d.until, began.Add(leastWait)); ; {
		timer := time.NewTimer(min(time.Until(until), beatInterval))
		over := false
		select {
		case <-timer.C:
		case <-d.limits.replaced:
			over = true
		case <-lifted:
			over = true
		case <-ctx.Done():
			over = true
		}
		timer.Stop()
		now := time.Now()
		d.limit.waited.Add(now.Sub(began).Seconds())
		began = now
		if beat != nil {
			beat()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if over || !now.Before(until) {
			return nil
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
