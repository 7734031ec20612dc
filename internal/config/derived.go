package config

import (
	"cmp"
	"slices"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/slot"
)

// Requirements are the relay's requirements of the server.
func (c Config) Requirements() slot.Requirements {
	return slot.Requirements{
		Slot: c.Slot, Publication: c.Replication.Publication, Tables: c.Replication.Tables,
	}
}

// KeyColumns are the columns that the table's router uses.
func (c Config) KeyColumns(table string) backfill.KeyColumns {
	r := backfill.KeyColumns{ID: router.DefaultConfig().FieldID, OrderBy: c.Snapshot.OrderBy}
	if rule, found := c.Rule(table); found {
		r.ID, r.Timestamp = rule.FieldID, rule.FieldTimestamp
	}
	return r
}

// Rule is the rule set of a table; false: no rule set is for it, or the rule sets are not valid.
func (c Config) Rule(table string) (router.Config, bool) {
	rules, err := router.Divide(c.Router, c.Replication.Tables, c.Replication.Messages)
	if err != nil {
		return router.Config{}, false
	}
	for _, r := range rules {
		if slices.Contains(r.Tables, table) {
			return r, true
		}
	}
	return router.Config{}, false
}

// OwnTopics are the topics of the relay itself. No event is published to one of them, whatever its
// row asks for: a forged position would make the relay leave out rows.
func (c Config) OwnTopics() []string {
	own := []string{c.DeadLetter.Topic, c.Relay.PositionTopic, c.Snapshot.Topic}
	return slices.DeleteFunc(own, func(topic string) bool { return topic == "" })
}

// HeartbeatTopic is where heartbeats go.
func (c Config) HeartbeatTopic() string {
	return cmp.Or(c.Relay.HeartbeatTopic, router.HeartbeatTopic(c.Router[0].TopicPrefix))
}
