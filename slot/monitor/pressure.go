package monitor

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/slot"
)

// The durations are in seconds.
const (
	// awayFor is how long a slot may be inactive before that counts: a relay reconnects sooner.
	awayFor = 10
	// holdsFor is the age from which a transaction counts as a blocker of restart_lsn.
	holdsFor = 30
	// confirmsNothingFor is how long confirmed_flush_lsn may stand still.
	confirmsNothingFor = 30
	// fallsBehindFor is how long the lag may grow.
	fallsBehindFor = 60
	// RestartStep is the longest step of restart_lsn with a reader that keeps up and no transaction
	// older than holdsFor: two logs of running transactions, and one transaction.
	RestartStep = 75
	// foreseeable limits a cause that may end by itself: after lasting t it is expected to last at
	// most foreseeable*t longer. A COPY that wrote 5 GB in t thus gives no time for a limit of 50 GB,
	// which is 9t away.
	foreseeable = 8
)

// pressure is a reason why the slot keeps more and more WAL.
type pressure struct {
	rate    float64 // bytes per second by which the retained WAL grows
	lasted  float64 // seconds
	lasting bool    // it does not end by itself
	text    string
}

// reaches reports whether the cause is expected to last for so many seconds.
func (p pressure) reaches(seconds float64) bool {
	return p.lasting || seconds <= foreseeable*p.lasted
}

// findPressure returns the strongest pressure at the rate wal. There is none while the reader
// keeps up and nothing holds restart_lsn back.
func findPressure(o Observation, wal float64) (worst pressure, found bool) {
	add := func(p pressure) {
		switch {
		case !found, p.rate > worst.rate, p.rate == worst.rate && p.lasting && !worst.lasting,
			p.rate == worst.rate && p.lasting == worst.lasting && p.lasted > worst.lasted:
			worst, found = p, true
		}
	}
	d, now := o.Distance, serverNow(o)
	// a copy follows the slot of the primary: no session reads from it
	if !o.Slot.Active && !o.Slot.Synced {
		away := float64(d.ConfirmedStill)
		if !o.Slot.InactiveSince.IsZero() {
			away = max(away, now.Sub(o.Slot.InactiveSince).Seconds())
		}
		if away >= awayFor {
			add(pressure{wal, away, true, "no session has read from the slot for " + span(away)})
		}
		return worst, found
	}
	for _, b := range o.Blockers {
		if age := now.Sub(b.Since).Seconds(); b.Restart && !b.Since.IsZero() && age >= holdsFor {
			add(pressure{wal, age, !b.Works(), "a transaction has held restart_lsn back for " + span(age)})
		}
	}
	if still := float64(d.ConfirmedStill); still >= confirmsNothingFor {
		add(pressure{wal, still, false, "nothing has been confirmed for " + span(still)})
	}
	if d.LagGrowing >= fallsBehindFor {
		text := fmt.Sprintf("the reader has fallen behind by %s/s for %s", slot.Size(d.LagGrowth),
			span(float64(d.LagGrowing)))
		if o.Pace.limits() {
			text += ", since " + o.Pace.String()
		}
		// A limit lasts until a person raises it.
		add(pressure{d.LagGrowth, float64(d.LagGrowing), o.Pace.limits(), text})
	}
	if still := float64(d.RestartStill); still >= RestartStep {
		add(pressure{wal, still, false, "restart_lsn has not moved for " + span(still)})
	}
	return worst, found
}

// Works reports whether the transaction runs a statement, and may end with it. A login without
// pg_read_all_stats does not see the state of others: a bulk load would count as idle, and its
// loss as certain.
func (b Blocker) Works() bool {
	return b.Kind == BlockerTransaction && !strings.HasPrefix(b.State, "idle")
}
