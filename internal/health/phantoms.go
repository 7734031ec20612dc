package health

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/relay"
)

// phantomsReported is how long the condition is present after the failover.
const phantomsReported = 24 * time.Hour

// judgePhantoms: consumers have events of transactions that a failover lost.
func judgePhantoms(f *facts) Condition {
	p := f.Relay.Phantoms
	if p == (relay.Phantoms{}) || f.Now.Sub(p.At) > phantomsReported {
		return Condition{}
	}
	count := fmt.Sprintf("%d messages", p.Messages)
	if p.More {
		count = "at least " + count
	}
	where := "an unknown position"
	if p.ForkLSN != 0 {
		where = p.ForkLSN.String()
	}
	return Condition{
		Severity: Warning, Cause: "failover of the database", Since: p.At,
		Reason: fmt.Sprintf("the server that was promoted to timeline %d has no WAL of timeline %d "+
			"behind %s, and it was read up to %s: %s that were published are of transactions that do "+
			"not exist any more",
			p.Timeline, p.TimelineBefore, where, p.ReceivedLSN, count),
		WAL: "nothing is skipped: the relay goes on from the position of the new primary's slot",
		Next: "postrider audit   # compares the topics with the table: what is published and has no " +
			"row there; tell its consumers",
	}
}
