package relay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
)

// Phantoms are messages of transactions that the database does not have any more: it failed over
// to a standby that had not received them. Consumers still have them.
type Phantoms struct {
	At             time.Time     `json:"at"`       // of the discovery; zero: there are none
	ForkLSN        pglogrepl.LSN `json:"fork_lsn"` // commits at or after it are lost; zero: not known
	ReceivedLSN    pglogrepl.LSN `json:"received_lsn"`
	Messages       int           `json:"messages"` // that were published
	More           bool          `json:"more"`     // there may be older ones, not counted
	Timeline       int32         `json:"timeline"`
	TimelineBefore int32         `json:"timeline_before"`
}

// serverPosition is a server, and how far this process has streamed from it.
type serverPosition struct {
	replication.Place               // as far as WAL was read; empty before the first session
	confirmed         pglogrepl.LSN // last position confirmed to it
}

// checkServer refuses another server than the last one, or one that was put back to an earlier
// state: it uses LSNs again. It accepts a promoted standby, and reports the transactions that are
// lost. It never moves a position.
func (r *Relay) checkServer(id replication.Identity, seed pglogrepl.LSN) error {
	was := r.lastServer
	place := replication.Place{SystemID: id.SystemID, Timeline: id.Timeline, LSN: seed}
	now := serverPosition{place, seed}
	if was.SystemID == "" {
		r.lastServer = now
		return nil
	}
	descent, fork := id.Continues(was.Place)
	changed := replication.ErrIdentityChanged
	switch descent {
	case replication.OtherCluster:
		return fmt.Errorf("system identifier is %s, was %s: %w", id.SystemID, was.SystemID,
			changed)
	case replication.OlderBranch:
		return fmt.Errorf("timeline is %d, was %d: %w", id.Timeline, was.Timeline, changed)
	case replication.Rewound:
		return fmt.Errorf("server was put back to an earlier state: it has written up to %s of "+
			"timeline %d, and was read up to %s before: %w", fork, id.Timeline, was.LSN, changed)
	case replication.Restored:
		lost, _ := r.published.after(fork)
		return fmt.Errorf("server was restored to an earlier point: timeline %d begins at %s, "+
			"but WAL was read up to %s before, and %d messages from after that point were "+
			"published: %w", id.Timeline, fork, was.LSN, lost, changed)
	case replication.Continued:
		now.LSN = max(now.LSN, was.LSN)
	}
	if descent == replication.Forked && now.confirmed == was.confirmed && fork != 0 &&
		now.confirmed > fork {
		// The slot was copied with its old position.
		return fmt.Errorf("slot is confirmed up to %s of timeline %d, and the server left that "+
			"timeline at %s: rows that it wrote from there on would never be sent: %w",
			now.confirmed, was.Timeline, fork, replication.ErrSlotUnusable)
	}
	r.lastServer = now
	if id.Timeline != was.Timeline {
		r.reportPromotion(descent, fork, id, was)
	}
	return nil
}

// reportPromotion reports a change of the timeline.
func (r *Relay) reportPromotion(descent replication.Descent, fork pglogrepl.LSN,
	id replication.Identity, was serverPosition) {
	log := r.parts.Log.With().Int32("timeline", id.Timeline).
		Int32("timeline_before", was.Timeline).Stringer("received_lsn", was.LSN).Logger()
	if descent == replication.NotKnown {
		r.published.forget(id.WrittenLSN) // commits of the new timeline may be at the same LSNs
		log.Warn().Msg("server was promoted at an unknown position: it may not have " +
			"everything that was published")
		return
	}
	if descent == replication.Continued {
		log.Warn().Msg("server was promoted, and has everything that was read before")
		return
	}
	lost, all := r.published.after(fork)
	if lost == 0 && all {
		log.Warn().Stringer("lsn", fork).Msg(
			"WAL that was read before is missing on the promoted server; none of it was published")
		return
	}
	r.published.forget(fork)
	r.parts.Metrics.PhantomMessages.Add(float64(max(1, lost)))
	r.mu.Lock()
	r.state.Phantoms = Phantoms{
		At: time.Now(), ForkLSN: fork, ReceivedLSN: was.LSN, Messages: lost, More: !all,
		Timeline: id.Timeline, TimelineBefore: was.Timeline,
	}
	r.mu.Unlock()
	log.Error().Stringer("lsn", fork).Int("messages", lost).Bool("more", !all).
		Msg("server was promoted without all that was published: consumers have messages of " +
			"transactions that are not in the database any more")
}

// publishedTransactions is how many are counted at least: some seconds of a busy outbox.
const publishedTransactions = 16 << 10

// publishedCounts has the numbers of messages of the last transactions published.
type publishedCounts struct {
	last    []commitCount // in the order of commits
	dropped bool          // older ones were removed
	current commitCount   // the transaction that is being published, as far as it was in this session
}

type commitCount struct {
	commit   pglogrepl.LSN
	messages int
}

// begin is called before the first message of a session, which may publish transactions again.
func (p *publishedCounts) begin() { p.current = commitCount{} }

// add counts a message of the transaction that commits at commit. If a later session publishes it
// again, it counts once.
func (p *publishedCounts) add(commit pglogrepl.LSN) {
	if p.current.commit != commit {
		p.current = commitCount{commit: commit}
	}
	p.current.messages++
	n := len(p.last)
	switch {
	case n == 0 || p.last[n-1].commit < commit:
		p.append(p.current)
		return
	case p.last[n-1].commit == commit:
		p.last[n-1].messages = max(p.last[n-1].messages, p.current.messages)
		return
	}
	i, counted := slices.BinarySearchFunc(p.last, commit,
		func(c commitCount, commit pglogrepl.LSN) int { return cmp.Compare(c.commit, commit) })
	if counted {
		p.last[i].messages = max(p.last[i].messages, p.current.messages)
		return
	}
	if i == 0 && p.dropped { // older than what is counted
		return
	}
	p.forget(commit) // those from here on are others than before
	p.append(p.current)
}

func (p *publishedCounts) append(c commitCount) {
	if p.last == nil {
		p.last = make([]commitCount, 0, 2*publishedTransactions)
	}
	p.last = append(p.last, c)
	if len(p.last) == cap(p.last) {
		p.dropped = true
		p.last = append(p.last[:0], p.last[publishedTransactions:]...)
	}
}

// after counts the messages of transactions that commit at or after fork. all: no count was
// removed.
func (p *publishedCounts) after(fork pglogrepl.LSN) (messages int, all bool) {
	for _, c := range slices.Backward(p.last) {
		if c.commit < fork {
			return messages, true
		}
		messages += c.messages
	}
	return messages, !p.dropped
}

// forget removes the transactions that commit at or after from.
func (p *publishedCounts) forget(from pglogrepl.LSN) {
	for len(p.last) > 0 && p.last[len(p.last)-1].commit >= from {
		p.last = p.last[:len(p.last)-1]
	}
}
