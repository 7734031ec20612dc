package trace

import (
	"context"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
)

// Relay is what the running relay reports.
type Relay struct {
	State  relay.State
	Recent []relay.Published // a sample of the events that were acknowledged last
}

// OfDaemon queries the relay on this machine; nil: it does not answer, or it is of another slot or
// database.
func OfDaemon(ctx context.Context, cfg config.Config) *Relay {
	r, err := status.FromDaemon(ctx, cfg.HTTP)
	if err != nil || !r.About(ctx, cfg) {
		return nil
	}
	var recent status.Events
	if err := status.GetJSON(ctx, cfg.HTTP, "/api/events", &recent); err != nil {
		recent.Events = nil // a sample: nothing depends on it
	}
	return &Relay{State: r.Relay, Recent: recent.Events}
}

// acknowledged marks the events that are in the relay's sample. An event without a row, which was
// deleted or may not be read, is found by it too.
func (s *search) acknowledged() {
	if s.relay == nil {
		return
	}
	for i := range s.relay.Recent {
		p := &s.relay.Recent[i]
		if p.Topic == s.cfg.DeadLetter.Topic { // its dead letter, which is no publication
			continue
		}
		for _, e := range s.events {
			if e.acknowledged == nil && p.EventID == e.ID && p.Topic == e.topic && e.ID != "" {
				e.acknowledged = p
			}
		}
		if len(s.events) == 0 && s.ID != "" && s.Topic == "" && p.EventID == s.ID {
			e := &event{hash: -1, partition: -1, topic: p.Topic, since: p.CommitTime.Add(-clockMargin),
				acknowledged: p, headers: s.idHeaders()}
			e.ID, e.Route = p.EventID, &Route{Topic: p.Topic}
			s.events = append(s.events, e)
		}
	}
}
