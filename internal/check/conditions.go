package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot/monitor"
)

// requirements are the limits behind each condition, for Finding.Required.
func requirements(c health.Config) map[string]string {
	limit := func(before string, d time.Duration, key string) string {
		return before + " " + health.Duration(d) + " (health." + key + ")"
	}
	size := func(bytes int64, what, key string) string {
		return "less than " + health.Bytes(bytes) + " " + what + " (health." + key + ")"
	}
	loss := limit("more than", c.LossWarning, "loss_warning")
	return map[string]string{
		health.SlotLost: "a slot that keeps what is not delivered",
		health.SlotNearLoss: fmt.Sprintf("more than %.0f %% of max_slot_wal_keep_size left "+
			"(health.safe_warning)", 100*c.SafeWarning),
		health.TimeToLoss:        loss,
		health.TimeToDiskFull:    loss,
		health.NotReady:          "a relay that streams, or stands by",
		health.Stuck:             "acknowledgements for what is in flight",
		health.StandbyGate:       "standbys that receive what the relay is to be sent",
		health.PublicationBroken: "a publication that publishes every row",
		health.PhantomEvents:     "a database that has everything that was published",
		health.Paused:            "a relay that relays",
		health.SlotInactive: limit("a session that reads the slot within", c.InactiveWarning,
			"inactive_warning"),
		health.HeldByTransaction: limit("no transaction older than", c.HeldWarning, "held_warning") +
			": it keeps WAL for every slot of the server",
		health.OtherSlot: size(c.OtherRetained, "for a slot that no session reads",
			"other_slot_warning"),
		health.Backlog: size(c.LagWarning, "behind the server", "lag_warning"),
		health.LagHigh: limit("less than", c.UnackedWarning, "unacked_warning"),
		health.CatalogXminAge: fmt.Sprintf("less than %d transactions (health.catalog_xmin_warning)",
			c.XminAgeWarning),
		health.ObservationOld: "an observation each monitor.interval",
		health.ClockSkew:      limit("less than", c.SkewWarning, "clock_skew_warning"),
		health.SlotExtended:   "wal_status reserved",
	}
}

// observed makes findings of an observation: the conditions, in the words of the status, and what
// is well. Beside a relay the verdict on its page has the conditions.
func (c *checker) observed(o monitor.Observation) []Finding {
	var fs findings
	shown := map[string]bool{}
	if !c.beside {
		required := requirements(c.loaded.Config.Health)
		for _, condition := range c.conditions(o) {
			shown[condition.Name] = true
			fs.add(conditionFinding(condition, required[condition.Name]))
		}
	}
	if !shown[health.HeldByTransaction] {
		fs.add(found("transactions", "", oldestTransaction(o, time.Now())))
	}
	if o.CatalogXminAge != nil && !shown[health.CatalogXminAge] {
		fs.add(found("catalog_xmin", o.Slot.Name,
			fmt.Sprintf("%d transactions old", *o.CatalogXminAge)))
	}
	if o.Clock != nil && !shown[health.ClockSkew] {
		fs.add(found("clock", "", fmt.Sprintf("the server's and ours are %.3f s apart, give or take "+
			"%.3f s", o.Clock.Skew, o.Clock.Error)))
	}
	for _, n := range o.Notes {
		why, grant, _ := strings.Cut(n.Text, ": GRANT ")
		fs.add(found("monitor_rights", n.Value, why).info(
			"the right to look at it; the relay itself works without", "GRANT "+grant))
	}
	return fs
}

// conditions are those of the relay that answers for this slot, which has rates and its own state,
// else those of the observation. It leaves out what check reports itself, and that no relay runs
// yet.
func (c *checker) conditions(o monitor.Observation) []health.Condition {
	without := []string{health.PublicationBroken, health.SlotLost}
	var all []health.Condition
	cfg := c.loaded.Config
	if c.own {
		all = slices.Clone(c.relay.Verdict.Conditions)
	} else {
		without = append(without, health.NotReady)
		all = health.Judge(health.Input{Now: time.Now(), Observation: o,
			Sink: status.SinkOf(cfg.Sink).String(), Config: cfg.Health}).Conditions
	}
	return slices.DeleteFunc(all, func(c health.Condition) bool {
		return slices.Contains(without, c.Name)
	})
}

// conditionFinding is no error: the relay starts in spite of every condition.
func conditionFinding(c health.Condition, required string) Finding {
	f := found(c.Name, c.Cause, c.Reason).warn(required, c.Next)
	f.WAL = c.WAL
	if c.Severity == health.Info {
		f.Severity = SeverityInfo
	}
	return f
}

// oldestTransaction names the transaction that holds restart_lsn back, if only for a while.
func oldestTransaction(o monitor.Observation, now time.Time) string {
	for _, b := range o.Blockers {
		if !b.Restart {
			continue
		}
		name := fmt.Sprintf("pid %d", b.PID)
		switch {
		case b.Kind == monitor.BlockerPrepared:
			name = fmt.Sprintf("prepared transaction %q", b.GID)
		case b.Application != "":
			name += fmt.Sprintf(" (%q)", b.Application)
		}
		return fmt.Sprintf("the oldest is %s, open for %s", name, health.Duration(now.Sub(b.Since)))
	}
	return "none is open for long"
}
