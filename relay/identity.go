package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
)

// Phantoms are messages of transactions that the database does not have any more: it failed over
// to a standby that had not received them. Consumers still have them.
type Phantoms struct {
	At             time.Time     `json:"at"`       // when it was noticed; zero: there are none
	ForkLSN        pglogrepl.LSN `json:"fork_lsn"` // behind it commits are gone; zero: not known
	ReceivedLSN    pglogrepl.LSN `json:"received_lsn"`
	Messages       int           `json:"messages"` // that were handed to the broker
	More           bool          `json:"more"`     // there may be more that are not remembered
	Timeline       int32         `json:"timeline"`
	TimelineBefore int32         `json:"timeline_before"`
}

// seen is the server that this process streamed from last. Of the goroutine in Run alone.
type seen struct {
	replication.Place               // as far as WAL was read; without a SystemID: nothing is known
	confirmed         pglogrepl.LSN // the last position that it received
}

// recognise refuses a server that is not the one this process has streamed from, or one that was
// put back to an earlier state: LSNs are used again then. A standby that was promoted is accepted,
// and what it lacks is reported. Nothing that this process remembers moves a position.
func (r *Relay) recognise(id replication.Identity, seed pglogrepl.LSN) error {
	was := r.seen
	now := seen{replication.Place{SystemID: id.SystemID, Timeline: id.Timeline, LSN: seed}, seed}
	if was.SystemID == "" {
		r.seen = now
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
		lost, _ := r.published.behind(fork)
		return fmt.Errorf("server was restored to an earlier point: timeline %d begins at %s, "+
			"and the server before it was read up to %s, with %d messages that were published "+
			"from behind that point: %w", id.Timeline, fork, was.LSN, lost, changed)
	}
	if descent == replication.Forked && now.confirmed == was.confirmed && fork != 0 &&
		now.confirmed > fork {
		// A slot that came over with its old position.
		return fmt.Errorf("slot is confirmed up to %s of timeline %d, and the server left that "+
			"timeline at %s: rows that it wrote from there on would never be sent: %w",
			now.confirmed, was.Timeline, fork, replication.ErrSlotUnusable)
	}
	r.seen = now
	if id.Timeline != was.Timeline {
		r.promoted(descent, fork, id, was)
	}
	return nil
}

// promoted reports a change of the timeline.
func (r *Relay) promoted(descent replication.Descent, fork pglogrepl.LSN, id replication.Identity,
	was seen) {
	log := r.parts.Log.With().Int32("timeline", id.Timeline).
		Int32("timeline_before", was.Timeline).Stringer("received_lsn", was.LSN).Logger()
	if descent == replication.NotKnown {
		log.Warn().Msg("server was promoted, and cannot tell where: whether it has everything " +
			"that was published is not known")
		return
	}
	if descent == replication.Continued {
		log.Warn().Msg("server was promoted, and has everything that was read before")
		return
	}
	lost, all := r.published.behind(fork)
	if lost == 0 && all {
		log.Warn().Stringer("lsn", fork).Msg(
			"server was promoted without all that was read before; none of it was published")
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

// publishedTransactions is how many are remembered at least: some seconds of a busy outbox.
const publishedTransactions = 16 << 10

// publishedCounts counts messages of the last transactions published. Of the pump, or of Run.
type publishedCounts struct {
	last    []counted // in the order of commits
	dropped bool      // there were older ones
}

type counted struct {
	commit   pglogrepl.LSN
	messages int
}

// add counts one message of the transaction that commits there. One that comes again counts once.
func (h *publishedCounts) add(commit pglogrepl.LSN) {
	if n := len(h.last); n > 0 && h.last[n-1].commit == commit {
		h.last[n-1].messages++
		return
	}
	h.forget(commit)
	if h.last == nil {
		h.last = make([]counted, 0, 2*publishedTransactions)
	}
	h.last = append(h.last, counted{commit, 1})
	if len(h.last) == cap(h.last) {
		h.dropped = true
		h.last = append(h.last[:0], h.last[publishedTransactions:]...)
	}
}

// behind counts the messages of transactions that commit behind fork. all: none is forgotten.
func (h *publishedCounts) behind(fork pglogrepl.LSN) (messages int, all bool) {
	for _, c := range slices.Backward(h.last) {
		if c.commit < fork {
			return messages, true
		}
		messages += c.messages
	}
	return messages, !h.dropped
}

// forget is for what comes again, or never will.
func (h *publishedCounts) forget(from pglogrepl.LSN) {
	for len(h.last) > 0 && h.last[len(h.last)-1].commit >= from {
		h.last = h.last[:len(h.last)-1]
	}
}
