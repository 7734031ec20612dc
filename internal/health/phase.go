package health

import (
	"fmt"

	"github.com/postrider/postrider/relay"
)

// judgePhase is the verdict of the phase alone. Halted, BackingOff, Paused and the lack of a relay
// are conditions.
func judgePhase(f *facts) Verdict {
	r := f.Relay
	switch r.Phase {
	case relay.Streaming:
		return Verdict{State: OK, Reason: "streaming for " + Duration(f.Now.Sub(r.Since))}
	case relay.Standby:
		reader, show := "another process", "postrider slot list"
		if f.slot.ActivePID != 0 {
			reader = fmt.Sprintf("process %d of the database", f.slot.ActivePID)
		}
		if f.slot.Name != "" {
			show = "postrider slot show " + f.slot.Name
		}
		return Verdict{
			State: Standby, Reason: reader + " holds the slot; this one takes over when it releases it",
			WAL: keptElsewhere, Next: show + "   # nothing has to be done",
		}
	case relay.Snapshotting:
		return Verdict{
			State: Degraded, Reason: snapshotText(r.Snapshot), WAL: f.kept(),
			Next: "postrider status --watch   # new rows follow when it is complete",
		}
	case relay.Draining:
		if !r.Paused.Since.IsZero() {
			return Verdict{
				State: Degraded, Reason: fmt.Sprintf("about to pause: waits for %d messages in flight",
					r.InFlight), WAL: f.kept(),
				Next: "postrider status --watch   # postrider resume takes it back",
			}
		}
		return Verdict{
			State: Degraded, Reason: fmt.Sprintf("stopping: waits for %d messages in flight", r.InFlight),
			WAL:  "what is not acknowledged by the end is kept, and published again by the next start",
			Next: "postrider status --watch   # it ends within relay.drain_timeout",
		}
	case relay.Stopped:
		return Verdict{State: Degraded, Reason: "stopped", WAL: f.kept(), Next: "postrider run"}
	case relay.Starting:
		return Verdict{
			State: Degraded, Reason: "the first session is not open yet", WAL: f.kept(),
			Next: "postrider check   # if it stays so",
		}
	}
	return Verdict{
		State: Degraded, Reason: "the relay is " + string(r.Phase), WAL: f.kept(),
		Next: "postrider check",
	}
}

func snapshotText(s relay.Snapshot) string {
	return fmt.Sprintf("publishing rows that were in the tables already: %s, %d of about %d rows "+
		"(%d %%), %.0f rows/s",
		s.Table, s.Rows, s.EstimatedRows, s.Percent(), s.RowsPerSecond)
}
