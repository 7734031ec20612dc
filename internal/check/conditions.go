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
	loss := "more than " + health.Duration(c.LossWarning) + " (health.loss_warning)"
	return map[string]string{
		health.SlotLost: "a slot that keeps what is not delivered",
		health.SlotNearLoss: fmt.Sprintf(
			"more than %.0f %% of max_slot_wal_keep_size left (health.safe_warning)",
			100*c.SafeWarning),
		health.TimeToLoss:        loss,
		health.TimeToDiskFull:    loss,
		health.NotReady:          "a relay that streams, or stands by",
		health.Stuck:             "acknowledgements for what is in flight",
		health.StandbyGate:       "standbys that receive what the relay is to be sent",
		health.PublicationBroken: "a publication that brings every row",
		health.PhantomEvents:     "a database that has everything that was published",
		health.Paused:            "a relay that relays",
		health.SlotInactive: "a session that reads the slot within " +
			health.Duration(c.InactiveWarning) + " (health.inactive_warning)",
		health.HeldByTransaction: "no transaction older than " + health.Duration(c.HeldWarning) +
			" (health.held_warning): it keeps WAL for every slot of the server",
		health.OtherSlot: "less than " + health.Bytes(c.OtherRetained) +
			" for a slot that nobody reads (health.other_slot_warning)",
		health.Backlog: "less than " + health.Bytes(c.LagWarning) +
			" behind the server (health.lag_warning)",
		health.LagHigh: "less than " + health.Duration(c.UnackedWarning) +
			" (health.unacked_warning)",
		health.CatalogXminAge: fmt.Sprintf(
			"less than %d transactions (health.catalog_xmin_warning)", c.XminAgeWarning),
		health.ObservationOld: "an observation each monitor.interval",
		health.ClockSkew: "less than " + health.Duration(c.SkewWarning) +
			" (health.clock_skew_warning)",
		health.SlotExtended: "wal_status reserved",
	}
}

// observed makes findings of an observation: the conditions, in the words of the status, and what
// is well. Beside a relay the verdict on its page has the conditions.
func (c *checker) observed(o monitor.Observation) []Finding {
	var findings []Finding
	shown := map[string]bool{}
	if !c.beside {
		required := requirements(c.loaded.Config.Health)
		for _, condition := range c.conditions(o) {
			shown[condition.Name] = true
			findings = append(findings, conditionFinding(condition, required[condition.Name]))
		}
	}
	ok := func(condition, code, subject, observed string) {
		if !shown[condition] {
			findings = append(findings, okFinding(code, subject, observed))
		}
	}
	ok(health.HeldByTransaction, "transactions", "", oldestTransaction(o, time.Now()))
	if o.CatalogXminAge != nil {
		ok(health.CatalogXminAge, "catalog_xmin", o.Slot.Name,
			fmt.Sprintf("%d transactions old", *o.CatalogXminAge))
	}
	if o.Clock != nil {
		ok(health.ClockSkew, "clock", "",
			fmt.Sprintf("the server's and ours are %.3f s apart, give or take %.3f s",
				o.Clock.Skew, o.Clock.Error))
	}
	for _, n := range o.Notes {
		why, grant, _ := strings.Cut(n.Text, ": GRANT ")
		findings = append(findings, infoFinding("monitor_rights", n.Value, why,
			"the right to look at it; the relay itself works without", "GRANT "+grant))
	}
	return findings
}

// conditions are those of the relay that answers, which has rates and knows what it waits for,
// else those of the observation. It leaves out what check reports itself, and that no relay runs
// yet.
func (c *checker) conditions(o monitor.Observation) []health.Condition {
	cfg := c.loaded.Config
	without := []string{health.PublicationBroken, health.SlotLost}
	var found []health.Condition
	if c.relay != nil {
		found = c.relay.Verdict.Conditions
	} else {
		without = append(without, health.NotReady)
		found = health.Judge(health.Input{
			Now: time.Now(), Observation: o, Sink: status.SinkOf(cfg.Sink).String(),
			Config: cfg.Health,
		}).Conditions
	}
	return slices.DeleteFunc(slices.Clone(found), func(c health.Condition) bool {
		return slices.Contains(without, c.Name)
	})
}

// conditionFinding is no error: the relay starts in spite of every condition.
func conditionFinding(c health.Condition, required string) Finding {
	f := warningFinding(c.Name, c.Cause, c.Reason, required, c.Next)
	f.WAL = c.WAL
	if c.Severity == health.Info {
		f.Severity = SeverityInfo
	}
	return f
}

// oldestTransaction names the transaction that holds restart_lsn back, if only for a while.
func oldestTransaction(o monitor.Observation, now time.Time) string {
	for _, h := range o.Blockers {
		if !h.Restart {
			continue
		}
		who := fmt.Sprintf("pid %d", h.PID)
		switch {
		case h.Kind == monitor.BlockerPrepared:
			who = fmt.Sprintf("prepared transaction %q", h.GID)
		case h.Application != "":
			who += fmt.Sprintf(" (%q)", h.Application)
		}
		return fmt.Sprintf("the oldest is %s, open for %s", who, health.Duration(now.Sub(h.Since)))
	}
	return "none is open for long"
}
