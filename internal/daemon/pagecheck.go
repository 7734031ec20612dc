package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink/kafka"
)

// checkPause is the time between two checks for the page. They run only while a page is open.
const checkPause = time.Minute

// pageCheck keeps the result of the last check, and starts another in the background when it is
// requested and the last one is old.
type pageCheck struct {
	run func(ctx context.Context) ([]check.Finding, []kafka.TopicReport)

	mu      sync.Mutex
	ctx     context.Context // nil: the process does not relay yet, or not any more
	running bool
	at      time.Time // when the last one ended
	found   []check.Finding
	reports map[string]checkedTopic
	pending sync.WaitGroup
}

type checkedTopic struct {
	partitions, replicas int
	warnings             []string
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
	findings := c.found
	if findings == nil {
		findings = []check.Finding{}
	}
	return check.Report{Running: c.running, At: c.at, OK: !c.at.IsZero() &&
		check.Code(c.found) == exit.OK, Findings: findings}
}

func (c *pageCheck) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	found, topics := c.run(ctx)
	reports := map[string]checkedTopic{}
	for _, t := range topics {
		if t.Err == nil {
			reports[t.Name] = checkedTopic{partitions: t.Partitions, replicas: t.ReplicationFactor}
		}
	}
	for _, f := range found {
		if check.AboutTopic(f.Code) && (f.Severity == check.SeverityWarning ||
			f.Severity == check.SeverityError) {
			r := reports[f.Subject]
			r.warnings = append(r.warnings, f.Observed)
			reports[f.Subject] = r
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.at, c.found, c.reports = false, time.Now(), found, reports
}

// topics is what the last check saw of them, by name.
func (c *pageCheck) topics() map[string]checkedTopic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports // replaced as a whole, never written
}
