package replication

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// Identity tells one database cluster, and one branch of its history, from another, and how far
// that has come.
type Identity struct {
	SystemID      string
	Timeline      int32
	ServerVersion string
	WrittenLSN    pglogrepl.LSN // the server's own position: everything before it is on its disk
	// the timelines before Timeline, the oldest first; empty on the first one, or if the server
	// could not tell
	History []Switch
}

// Switch is where the history of a server left a timeline for a newer one.
type Switch struct {
	Timeline int32 // that was left
	// what was written to that timeline from here on is not part of the history
	LSN    pglogrepl.LSN
	Reason string // as the server noted it: where recovery ended
}

// Place is a position in the WAL with the history it belongs to: LSNs are used again after a
// failover or a restore, and mean something else.
type Place struct {
	SystemID string
	Timeline int32
	LSN      pglogrepl.LSN
}

// Descent says how a server's history relates to a place that was known before.
type Descent int

// The ways in which it can. Only after Continued everything before the place is still there.
const (
	Continued Descent = iota // the history leads through the place
	// a server was promoted that did not have everything: the fork lies before the place
	Forked
	// the same, but an operator chose where: recovery to an earlier point
	Restored
	// the place is of the server's own timeline, and the server has not come so far
	Rewound
	OlderBranch  // the server is on a timeline before that of the place
	OtherCluster // another system identifier
	// the history leads through the position, but not through the transaction that ended there
	Diverged
	NotKnown // a newer timeline, and the server cannot tell where it begins
)

func (d Descent) String() string {
	return [...]string{"continued", "forked", "restored", "rewound", "older_branch",
		"other_cluster", "diverged", "not_known"}[d]
}

// Continues reports whether the history of the server leads through a place that was known before.
// Unless it does, fork is the position from which on what was read there is not part of it; zero
// where that is not known.
func (id Identity) Continues(p Place) (d Descent, fork pglogrepl.LSN) {
	switch {
	case p.SystemID != id.SystemID:
		return OtherCluster, 0
	case p.Timeline > id.Timeline:
		return OlderBranch, 0
	case p.Timeline == id.Timeline && p.LSN > id.WrittenLSN:
		return Rewound, id.WrittenLSN
	case p.Timeline == id.Timeline:
		return Continued, 0
	}
	var left Switch // where the history left that of the place, at the latest
	for _, s := range id.History {
		if s.Timeline <= p.Timeline {
			left = s
		}
	}
	switch {
	case left == Switch{} && p.LSN > id.WrittenLSN:
		return Forked, id.WrittenLSN // at the latest
	case left == Switch{}:
		return NotKnown, 0
	case left.Timeline < p.Timeline:
		return Forked, 0 // the history never was on the timeline of the place
	case p.LSN <= left.LSN:
		return Continued, 0
	case left.chosen():
		return Restored, left.LSN
	}
	return Forked, left.LSN
}

// chosen reports whether recovery ended where a person wanted, not where there was no more WAL.
// These words are part of the file format since PostgreSQL 9; a promoted standby writes "no
// recovery target specified".
func (s Switch) chosen() bool {
	for _, prefix := range []string{"before ", "after ", "at restore point ",
		"reached consistency"} {
		if strings.HasPrefix(s.Reason, prefix) {
			return true
		}
	}
	return false
}

// parseHistory reads a timeline history file: lines of timeline, LSN and reason with tabs between,
// and comments.
func parseHistory(file []byte) ([]Switch, error) {
	var history []Switch
	for line := range bytes.Lines(file) {
		text, _, _ := strings.Cut(string(line), "#")
		fields := strings.SplitN(strings.TrimSpace(text), "\t", 3)
		if fields[0] == "" {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("%w: timeline history has the line %q", ErrProtocol, text)
		}
		timeline, err := strconv.ParseInt(fields[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: timeline history has the line %q", ErrProtocol, text)
		}
		lsn, err := pglogrepl.ParseLSN(strings.TrimSpace(fields[1]))
		if err != nil {
			return nil, fmt.Errorf("%w: timeline history has the line %q", ErrProtocol, text)
		}
		s := Switch{Timeline: int32(timeline), LSN: lsn}
		if len(fields) == 3 {
			s.Reason = strings.TrimSpace(fields[2])
		}
		history = append(history, s)
	}
	return history, nil
}
