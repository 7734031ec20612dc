package health

import (
	"fmt"

	"github.com/postrider/postrider/relay"
)

// judgePhase returns the verdict of the phase alone. Halted, BackingOff, Paused and the lack of a
// relay are conditions.
func judgePhase(f *facts) Verdict {
	r := f.Relay
	v := Verdict{State: Degraded, WAL: f.kept(), Next: "postrider check"}
	switch r.Phase {
	case relay.Streaming:
		v = Verdict{State: OK, Reason: "streaming for " + Duration(f.Now.Sub(r.Since))}
		if r.Rate.Limiting != "" {
			v.Reason += fmt.Sprintf(", at %s, which is %s; %s", r.Rate.Limiting, r.Rate.Limit,
				f.caughtUp())
		}
	case relay.Standby:
		reader, show := "another process", "postrider slot list"
		if f.slot.ActivePID != 0 {
			reader = fmt.Sprintf("process %d of the database", f.slot.ActivePID)
		}
		if f.slot.Name != "" {
			show = "postrider slot show " + f.slot.Name
		}
		v.State, v.WAL, v.Next = Standby, keptElsewhere, show+"   # nothing has to be done"
		v.Reason = reader + " streams from the slot; this relay takes over when it disconnects"
	case relay.Snapshotting:
		v.Reason = snapshotText(r.Snapshot)
		v.Next = "postrider status --watch   # new rows follow when it is complete"
	case relay.Draining:
		waits := fmt.Sprintf(": waits for %d messages in flight", r.InFlight)
		if !r.Paused.Since.IsZero() {
			v.Reason = "about to pause" + waits
			v.Next = "postrider status --watch   # postrider resume cancels the pause"
			break
		}
		v.Reason = "stopping" + waits
		v.WAL = "what is not acknowledged by the end is kept, and published again by the next start"
		v.Next = "postrider status --watch   # it ends within relay.drain_timeout"
	case relay.Stopped:
		v.Reason, v.Next = "stopped", "postrider run"
	case relay.Starting:
		v.Reason, v.Next = "the first session is not open yet", "postrider check   # if it stays so"
	default:
		v.Reason = "the relay is " + string(r.Phase)
	}
	return v
}

func snapshotText(s relay.Snapshot) string {
	return fmt.Sprintf("publishing rows that were in the tables already: %s, %d of about %d rows "+
		"(%d %%), %.0f rows/s",
		s.Table, s.Rows, s.EstimatedRows, s.Percent(), s.RowsPerSecond)
}
