package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot"
)

// requiredOf says what a condition is measured by.
var requiredOf = map[string]func(c health.Config) string{
	health.SlotLost: func(health.Config) string { return "a slot that keeps what is not delivered" },
	health.SlotNearLoss: func(c health.Config) string {
		return fmt.Sprintf("more than %.0f %% of max_slot_wal_keep_size left (health.safe_warning)", 100*c.SafeWarning)
	},
	health.TimeToLoss: func(c health.Config) string {
		return "more than " + health.Duration(c.LossWarning) + " (health.loss_warning)"
	},
	health.TimeToDiskFull: func(c health.Config) string {
		return "more than " + health.Duration(c.LossWarning) + " (health.loss_warning)"
	},
	health.NotReady:          func(health.Config) string { return "a relay that streams, or stands by" },
	health.Stuck:             func(health.Config) string { return "acknowledgements for what is in flight" },
	health.StandbyGate:       func(health.Config) string { return "standbys that receive what the relay is to be sent" },
	health.PublicationBroken: func(health.Config) string { return "a publication that brings every row" },
	health.PhantomEvents:     func(health.Config) string { return "a database that has everything that was published" },
	health.Paused:            func(health.Config) string { return "a relay that relays" },
	health.SlotInactive: func(c health.Config) string {
		return "somebody who reads the slot within " + health.Duration(c.InactiveWarning) + " (health.inactive_warning)"
	},
	health.HeldByTransaction: func(c health.Config) string {
		return "no transaction older than " + health.Duration(c.HeldWarning) + " (health.held_warning): it keeps WAL for every slot of the server"
	},
	health.OtherSlot: func(c health.Config) string {
		return "less than " + health.Bytes(c.OtherRetained) + " for a slot that nobody reads (health.other_slot_warning)"
	},
	health.Backlog: func(c health.Config) string {
		return "less than " + health.Bytes(c.LagWarning) + " behind the server (health.lag_warning)"
	},
	health.LagHigh: func(c health.Config) string {
		return "less than " + health.Duration(c.UnackedWarning) + " (health.unacked_warning)"
	},
	health.CatalogXminAge: func(c health.Config) string {
		return fmt.Sprintf("less than %d transactions (health.catalog_xmin_warning)", c.XminAgeWarning)
	},
	health.ObservationOld: func(health.Config) string { return "an observation each monitor.interval" },
	health.ClockSkew: func(c health.Config) string {
		return "less than " + health.Duration(c.SkewWarning) + " (health.clock_skew_warning)"
	},
	health.SlotExtended: func(health.Config) string { return "wal_status reserved" },
}

// observed makes findings of what is watched, too: the conditions, in the words of the status. Those of a relay that answers are its own: it
// knows rates, and what it waits for. Beside a relay, on its page, they stand in the verdict.
func (c *checker) observed(o slot.Observation) []slot.Finding {
	var findings []slot.Finding
	shown := map[string]bool{}
	if !c.beside {
		for _, condition := range c.conditions(o) {
			shown[condition.Name] = true
			findings = append(findings, conditionFinding(condition, c.loaded.Config.Health))
		}
	}
	ok := func(condition, code, subject, observed string) {
		if !shown[condition] {
			findings = append(findings, slot.Finding{Severity: slot.SeverityOK, Code: code, Subject: subject, Observed: observed})
		}
	}
	ok(health.HeldByTransaction, "transactions", "", oldestHolder(o, time.Now()))
	if o.CatalogXminAge != nil {
		ok(health.CatalogXminAge, "catalog_xmin", o.Slot.Name, fmt.Sprintf("%d transactions old", *o.CatalogXminAge))
	}
	if o.Clock != nil {
		ok(health.ClockSkew, "clock", "", fmt.Sprintf("the server's and ours are %.3f s apart, give or take %.3f s", o.Clock.Skew, o.Clock.Error))
	}
	for _, n := range o.Notes {
		why, grant, _ := strings.Cut(n.Text, ": GRANT ")
		findings = append(findings, slot.Finding{
			Severity: slot.SeverityInfo, Code: "monitor_rights", Subject: n.Value, Observed: why,
			Required: "the right to look at it; the relay itself works without", Fix: "GRANT " + grant,
		})
	}
	return findings
}

// conditions leaves out what check says itself, and better, and that a relay is needed which is not started yet.
func (c *checker) conditions(o slot.Observation) []health.Condition {
	cfg := c.loaded.Config
	without := []string{health.PublicationBroken, health.SlotLost}
	var found []health.Condition
	if c.relay != nil {
		found = c.relay.Verdict.Conditions
	} else {
		without = append(without, health.NotReady)
		found = health.Judge(health.Input{Now: time.Now(), Observation: o, Sink: status.SinkOf(cfg.Sink).String(), Config: cfg.Health}).Conditions
	}
	return slices.DeleteFunc(slices.Clone(found), func(found health.Condition) bool { return slices.Contains(without, found.Name) })
}

// conditionFinding: the relay starts all the same, so nothing of it is an error.
func conditionFinding(c health.Condition, cfg health.Config) slot.Finding {
	f := slot.Finding{Severity: slot.SeverityWarning, Code: c.Name, Subject: c.Cause, Observed: c.Reason, WAL: c.WAL, Fix: c.Next}
	if c.Severity == health.Info {
		f.Severity = slot.SeverityInfo
	}
	if required := requiredOf[c.Name]; required != nil {
		f.Required = required(cfg)
	}
	return f
}

// oldestHolder says who keeps restart_lsn back, if only for a while.
func oldestHolder(o slot.Observation, now time.Time) string {
	for _, h := range o.Holders {
		if !h.Restart {
			continue
		}
		who := fmt.Sprintf("pid %d", h.PID)
		switch {
		case h.Kind == slot.HolderPrepared:
			who = fmt.Sprintf("prepared transaction %q", h.GID)
		case h.Application != "":
			who += fmt.Sprintf(" (%q)", h.Application)
		}
		return fmt.Sprintf("the oldest is %s, open for %s", who, health.Duration(now.Sub(h.Since)))
	}
	return "none is open for long"
}
