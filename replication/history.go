package replication

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// Identity is a database cluster, a branch of its history, and the end of that.
type Identity struct {
	SystemID      string
	Timeline      int32
	ServerVersion string
	WrittenLSN    pglogrepl.LSN // the server's own position: everything before it is on its disk
	History       []Switch      // to Timeline, oldest first; empty: Timeline is 1, or it is not known
}

// Switch is where the history of a server left a timeline for a newer one.
type Switch struct {
	Timeline int32         // that was left
	LSN      pglogrepl.LSN // WAL of that timeline from here on is not part of the history
	Reason   string        // in the history file: where recovery ended
}

// Place is a position in the WAL with its history: LSNs are used again after a failover.
type Place struct {
	SystemID string
	Timeline int32
	LSN      pglogrepl.LSN
}

// Descent is how a server's history relates to an earlier Place. Only with Continued everything
// before the Place is still there.
type Descent int

const (
	Continued    Descent = iota // the history contains the place
	Forked                      // a server without everything was promoted: fork < place
	Restored                    // an operator chose to recover to an earlier point: fork < place
	Rewound                     // on the timeline of the place the server has written less
	OlderBranch                 // the server is on a timeline before that of the place
	OtherCluster                // another system identifier
	Diverged                    // the transaction that ended at the place is not in the history
	NotKnown                    // a newer timeline, and where it begins is not known
)

// String is the value of a log field or label.
func (d Descent) String() string {
	return [...]string{"continued", "forked", "restored", "rewound", "older_branch",
		"other_cluster", "diverged", "not_known"}[d]
}

// Continues compares the server's history with an earlier place. fork is the position from which
// on WAL of the place's timeline is not part of the history; zero: none, or not known. It never
// returns Diverged, for which the transaction has to be looked at.
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

// chosen reports whether a person chose where recovery ended. These words are part of the file
// format since PostgreSQL 9; a promoted standby writes "no recovery target specified".
func (s Switch) chosen() bool {
	return slices.ContainsFunc(
		[]string{"before ", "after ", "at restore point ", "reached consistency"},
		func(prefix string) bool { return strings.HasPrefix(s.Reason, prefix) })
}

// parseHistory reads a timeline history file. Each line has timeline, LSN and reason with tabs
// between them; # begins a comment.
func parseHistory(file []byte) ([]Switch, error) {
	var history []Switch
	for line := range bytes.Lines(file) {
		text, _, _ := strings.Cut(string(line), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		first, rest, _ := strings.Cut(text, "\t")
		at, reason, _ := strings.Cut(rest, "\t")
		timeline, err := strconv.ParseInt(first, 10, 32)
		lsn, lsnErr := pglogrepl.ParseLSN(strings.TrimSpace(at))
		if err != nil || lsnErr != nil {
			return nil, fmt.Errorf("%w: timeline history has the line %q", ErrProtocol, text)
		}
		history = append(history, Switch{int32(timeline), lsn, strings.TrimSpace(reason)})
	}
	return history, nil
}
