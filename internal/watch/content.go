package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
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

// load gets the parts that a tab shows. The others stay as they are in before.
func load(ctx context.Context, l *config.Loaded, before content, t tab) content {
	c := before
	c.report, c.err = nil, nil
	parts := map[string]any{"verdict": &c.verdict, "build": &c.build, "pipeline": &c.pipeline}
	switch t {
	case tabOverview:
		parts["slot"], parts["history"] = &c.slot, &c.history
	case tabSlots:
		parts["slot"] = &c.slot
	case tabTopics:
		parts["topics"] = &c.topics
	case tabEvents:
		parts["events"] = &c.events
	case tabErrors:
		parts["errors"] = &c.errors
	case tabCheck:
		parts["check"] = &c.check
	case tabConfig:
		parts["config"] = &c.config
	}
	for name, into := range parts {
		if err := loadPart(ctx, l.Config.HTTP, name, into); err != nil {
			return loadReport(ctx, l)
		}
	}
	c.at = time.Now()
	return c
}

func loadPart(ctx context.Context, c httpserver.Config, name string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, status.DaemonTimeout)
	defer cancel()
	code, body, err := status.Get(ctx, c, "/api/"+name)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("ask the relay: %s/api/%s answered %d", c.LocalURL(), name, code)
	}
	return json.Unmarshal(body, into)
}

// loadReport is for a relay that does not answer, or is one without parts.
func loadReport(ctx context.Context, l *config.Loaded) content {
	r, err := status.Status(ctx, l)
	if err != nil {
		return content{at: time.Now(), err: err}
	}
	return content{at: time.Now(), report: &r}
}
