package config

import (
	"slices"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/slot"
)

// Requirements is what the relay needs of the server.
func (c Config) Requirements() slot.Requirements {
	return slot.Requirements{Slot: c.Slot, Publication: c.Replication.Publication, Tables: c.Replication.Tables}
}

// KeyColumns are the columns that the table's router uses.
func (c Config) KeyColumns(table string) backfill.KeyColumns {
	r := backfill.KeyColumns{ID: router.DefaultConfig().FieldID, OrderBy: c.Snapshot.OrderBy}
	rules, err := router.Divide(c.Router, c.Replication.Tables, c.Replication.Messages)
	if err != nil {
		return r // the router says so
	}
	for _, rule := range rules {
		if slices.Contains(rule.Tables, table) {
			r.ID, r.Timestamp = rule.FieldID, rule.FieldTimestamp
		}
	}
	return r
}

// Rule is the rule set of a table; false: none is for it, or the router reports what is wrong with them.
func (c Config) Rule(table string) (router.Config, bool) {
	rules, err := router.Divide(c.Router, c.Replication.Tables, c.Replication.Messages)
	if err != nil {
		return router.Config{}, false
	}
	i := slices.IndexFunc(rules, func(r router.Config) bool { return slices.Contains(r.Tables, table) })
	if i < 0 {
		return router.Config{}, false
	}
	return rules[i], true
}
