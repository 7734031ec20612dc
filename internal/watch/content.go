package watch

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot/monitor"
)

// content is what a tab shows: its parts of the status page, or the report of a relay without
// parts or of the database. It does not change: the next refresh has a content of its own.
type content struct {
	at       time.Time
	tab      tab // that it was loaded for: the parts of others are zero
	verdict  health.Verdict
	pipeline status.Pipeline
	slot     monitor.Observation
	history  status.History
	topics   status.Topics
	events   status.Events
	errors   status.Errors
	check    check.Report
	config   status.Config
	build    status.Build

	report *status.Report // set if the relay has no parts: all but this, at and tab is zero
	err    error          // set if neither relay nor database answers
}

// load gets the parts that a tab shows. The slot tells whether it is this relay that answers, so
// every tab needs it. answers are those to earlier calls.
func load(ctx context.Context, l *config.Loaded, answers *status.Answers, t tab) content {
	c := content{tab: t}
	into := map[string]any{
		"verdict": &c.verdict, "build": &c.build, "pipeline": &c.pipeline, "slot": &c.slot,
		"history": &c.history, "topics": &c.topics, "events": &c.events, "errors": &c.errors,
		"check": &c.check, "config": &c.config,
	}
	for _, part := range append([]string{"slot", "verdict", "build", "pipeline"}, tabParts[t]...) {
		if status.GetJSON(ctx, l.Config.HTTP, "/api/"+part, into[part]) != nil {
			return loadReport(ctx, l, answers, t)
		}
	}
	r, err := status.FromDaemon(ctx, l.Config.HTTP)
	if err != nil || !answers.About(ctx, &r, l.Config) {
		return loadReport(ctx, l, answers, t)
	}
	c.at = time.Now()
	return c
}

// changeHints replaces what to type next.
func (c *content) changeHints(change func(hint string) string) {
	c.verdict.ChangeHints(change)
	for i := range c.check.Findings {
		c.check.Findings[i].Fix = change(c.check.Findings[i].Fix)
	}
	if c.report != nil {
		c.report.Verdict.ChangeHints(change)
	}
	if f := (*exit.Error)(nil); errors.As(c.err, &f) {
		f.Next = change(f.Next)
	}
}

// loadReport is for a relay that does not answer, is one without parts, or has another slot.
func loadReport(
	ctx context.Context, l *config.Loaded, answers *status.Answers, t tab,
) content {
	r, err := status.Status(ctx, l, answers)
	if err != nil {
		return content{at: time.Now(), tab: t, err: err}
	}
	return content{at: time.Now(), tab: t, report: &r}
}
