package watch

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot/monitor"
)

// content is what the screen shows: the parts of the status page, or the report of a relay without
// parts or of the database.
type content struct {
	at       time.Time
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

	report *status.Report // set if the relay has no parts: all but this and at is zero
	err    error          // set if neither relay nor database answers
}

// load gets the parts that a tab shows. The others stay as they are in before. The slot tells
// whether it is this relay that answers, so every tab needs it.
func load(ctx context.Context, l *config.Loaded, before content, t tab) content {
	c := before
	c.report, c.err = nil, nil
	into := map[string]any{
		"verdict": &c.verdict, "build": &c.build, "pipeline": &c.pipeline, "slot": &c.slot,
		"history": &c.history, "topics": &c.topics, "events": &c.events, "errors": &c.errors,
		"check": &c.check, "config": &c.config,
	}
	for _, part := range append([]string{"slot", "verdict", "build", "pipeline"}, tabParts[t]...) {
		if status.GetJSON(ctx, l.Config.HTTP, "/api/"+part, into[part]) != nil {
			return loadReport(ctx, l)
		}
	}
	if r := (status.Report{Slot: c.slot.Slot}); !r.About(l.Config.Slot.Name) {
		return loadReport(ctx, l)
	}
	c.at = time.Now()
	return c
}

// loadReport is for a relay that does not answer, is one without parts, or has another slot.
func loadReport(ctx context.Context, l *config.Loaded) content {
	r, err := status.Status(ctx, l)
	if err != nil {
		return content{at: time.Now(), err: err}
	}
	return content{at: time.Now(), report: &r}
}
