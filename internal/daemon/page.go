package daemon

import (
	"context"
	"maps"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot/monitor"
)

// page has the data of the status page, each part as the JSON of /api/NAME. All of it comes from
// memory.
type page struct {
	d       *Daemon
	history history.History
	check   pageCheck

	mu     sync.Mutex                      // guards what follows
	before map[string]metrics.TopicReading // of the last sample
	at     time.Time                       // of the last sample
	rates  map[string]topicRate
	// the positions at the time of the last observation: beside those of the server, which are
	// seconds old, newer ones of the relay would show WAL that waits nowhere
	observed status.Pipeline
}

// take keeps the positions of an observation.
func (p *page) take(o monitor.Observation, st relay.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := o.Slot
	if s.ObservedAt.Equal(p.observed.At) { // nothing new
		return
	}
	server := max(s.CurrentWALLSN, st.ReceivedLSN)
	p.observed = status.Pipeline{
		At: s.ObservedAt, Server: status.LSN(server), Received: status.LSN(st.ReceivedLSN),
		Acked: status.LSN(st.AckedLSN), Confirmed: status.LSN(s.ConfirmedFlushLSN),
		Restart: status.LSN(s.RestartLSN),
		Distances: status.Distances{
			Received: between(server, st.ReceivedLSN), Acked: between(st.ReceivedLSN, st.AckedLSN),
			Confirmed: between(st.AckedLSN, s.ConfirmedFlushLSN),
			Restart:   between(s.ConfirmedFlushLSN, s.RestartLSN),
		},
	}
}

type topicRate struct{ messages, bytes float64 } // per second

func (p *page) parts() []httpserver.Part {
	return []httpserver.Part{
		{Name: "verdict", Get: func() any { return p.d.Verdict() }},
		{Name: "pipeline", Get: p.pipeline},
		{Name: "slot", Get: func() any { return p.d.Observation() }},
		{Name: "history", Get: p.pastHour},
		{Name: "topics", Get: p.topics},
		{Name: "events", Get: func() any { return status.Events{Events: p.d.Relay.Recent()} }},
		{Name: "errors", Get: p.errors},
		{Name: "check", Get: func() any { return p.check.get(time.Now()) }},
		{Name: "config", Get: p.config},
		{Name: "build", Get: p.build},
	}
}

// sample is called each history.Interval.
func (p *page) sample(now time.Time) {
	st, o := p.d.Relay.State(), p.d.Observation()
	published := 0.0
	rates, before := map[string]topicRate{}, map[string]metrics.TopicReading{}
	p.mu.Lock()
	seconds := now.Sub(p.at).Seconds()
	for _, t := range p.d.metrics.Topics() {
		published += t.Published
		before[t.Topic] = t
		if was := p.before[t.Topic]; !p.at.IsZero() && seconds > 0 {
			rates[t.Topic] = topicRate{
				(t.Published - was.Published) / seconds, (t.Bytes - was.Bytes) / seconds,
			}
		}
	}
	p.before, p.rates, p.at = before, rates, now
	p.mu.Unlock()
	reading := history.Reading{
		At: now, Published: published, Failed: p.d.metrics.Failed(), InFlight: st.InFlight,
		LagBytes: o.Slot.LagBytes, RetainedBytes: o.Slot.RetainedBytes, WAL: o.Rates.WAL5m,
		Drain: o.Rates.Drain5m,
	}
	reading.Latency.Bounds, reading.Latency.Counts = p.d.metrics.Latency()
	p.history.Add(reading)
}

func (p *page) pipeline() any {
	st, o := p.d.Relay.State(), p.d.Observation()
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.observed
	v.Phase, v.Since, v.Paused, v.NextAttempt = st.Phase, st.Since, st.Paused, st.NextAttempt
	v.Error, v.Sessions, v.Snapshot, v.Published = st.Error, st.Sessions, st.Snapshot, st.Published
	v.InFlight, v.InFlightBytes, v.OldestUnacked = st.InFlight, st.InFlightBytes, st.OldestUnacked
	v.Rates.WAL, v.Rates.Drain, v.Rate = o.Rates.WAL5m, o.Rates.Drain5m, st.Rate
	for _, r := range p.rates {
		v.Rates.Published += r.messages
		v.Rates.PublishedBytes += r.bytes
	}
	return v
}

// between is the distance in bytes, nil if one position is unknown. It is never negative: a new
// session has received less than the slot has confirmed.
func between(ahead, behind pglogrepl.LSN) *int64 {
	if ahead == 0 || behind == 0 {
		return nil
	}
	if ahead < behind {
		return new(int64(0))
	}
	return new(int64(ahead - behind))
}

func (p *page) pastHour() any {
	return status.History{Interval: history.Interval.Seconds(), Samples: p.history.Samples()}
}

func (p *page) topics() any {
	readings, failed, seen := p.d.metrics.Topics(), p.d.Relay.Refused(), p.check.topics()
	unpublished := maps.Clone(failed)
	for _, t := range readings {
		delete(unpublished, t.Topic)
	}
	for name := range unpublished {
		readings = append(readings, metrics.TopicReading{Topic: name})
	}
	rows := make([]status.Topic, len(readings))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range readings {
		r := seen[t.Topic]
		r.Topic, r.Published, r.Bytes, r.Failed = t.Topic, t.Published, t.Bytes, failed[t.Topic]
		r.PerSecond, r.BytesPerSecond = p.rates[t.Topic].messages, p.rates[t.Topic].bytes
		if t.Last > 0 {
			r.LastPublished = time.UnixMilli(int64(t.Last * 1e3)).UTC()
		}
		rows[i] = r
	}
	return status.Topics{Topics: rows}
}

func (p *page) errors() any {
	rows := []status.Error{}
	for _, f := range p.d.Relay.Failures() {
		rows = append(rows, status.Error{
			Failure: f, Runbook: "docs/RUNBOOKS.md#when-a-session-ends-or-the-relay-halts",
		})
	}
	return status.Errors{Errors: rows}
}

func (p *page) config() any {
	l := p.d.loaded.Load()
	return status.Config{File: l.Path, Values: l.Values()}
}

func (p *page) build() any {
	b := build.Current()
	return status.Build{
		Version: b.Version, Commit: b.Revision, Modified: b.Modified, GoVersion: b.Go,
		OS: runtime.GOOS, Arch: runtime.GOARCH, PID: os.Getpid(), StartedAt: p.d.started,
		ServerVersion: p.d.Observation().Server.Version,
	}
}

// checkPause is the time between two checks for the page. They run only while a page is open.
const checkPause = time.Minute

// pageCheck keeps the result of the last check, and starts another in the background when it is
// requested and the last one is old.
type pageCheck struct {
	run func(ctx context.Context) ([]check.Finding, []kafka.TopicReport)

	mu      sync.Mutex      // guards what follows
	ctx     context.Context // nil: the process does not relay yet, or not any more
	running bool
	at      time.Time // when the last one ended
	found   []check.Finding
	reports map[string]status.Topic // what the last check found of each
	pending sync.WaitGroup
}

// start allows checks until end is called, which waits for the running one.
func (c *pageCheck) start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	return func() {
		cancel()
		c.mu.Lock()
		c.ctx = nil
		c.mu.Unlock()
		c.pending.Wait()
	}
}

// get returns the last result. It does not wait for the check that it starts.
func (c *pageCheck) get(now time.Time) check.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil && !c.running && now.Sub(c.at) >= checkPause {
		c.running = true
		ctx := c.ctx
		c.pending.Go(func() { c.once(ctx) })
	}
	return check.Report{
		Running: c.running, At: c.at, OK: !c.at.IsZero() && check.Code(c.found) == exit.OK,
		Findings: append([]check.Finding{}, c.found...),
	}
}

func (c *pageCheck) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	found, topics := c.run(ctx)
	reports := map[string]status.Topic{}
	for _, t := range topics {
		if t.Err == nil {
			reports[t.Name] = status.Topic{Partitions: t.Partitions, ReplicationFactor: t.ReplicationFactor}
		}
	}
	for _, f := range found {
		harm := f.Severity == check.SeverityWarning || f.Severity == check.SeverityError
		if check.AboutTopic(f.Code) && harm {
			r := reports[f.Subject]
			r.Warnings = append(r.Warnings, f.Observed)
			reports[f.Subject] = r
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.at, c.found, c.reports = false, time.Now(), found, reports
}

// topics is what the last check saw of them, by name.
func (c *pageCheck) topics() map[string]status.Topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports // replaced as a whole, never written
}
