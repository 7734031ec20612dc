package relay

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
)

// Phantoms are messages of transactions that the database does not have any more: it failed over
// to a standby that had not received them. Consumers still have them.
type Phantoms struct {
	At time.Time `json:"at"` // when it was noticed; zero: there are none
	// where the history parted: what was committed behind it is gone; zero: not known
	ForkLSN     pglogrepl.LSN `json:"fork_lsn"`
	ReceivedLSN pglogrepl.LSN `json:"received_lsn"`
	Messages    int           `json:"messages"` // that were handed to the broker
	// than Messages, perhaps: they are not remembered for longer
	More           bool  `json:"more"`
	Timeline       int32 `json:"timeline"`
	TimelineBefore int32 `json:"timeline_before"`
}

// seen is what this process knows of the server that it last streamed from. Of the goroutine in
// Run alone.
type seen struct {
	replication.Place               // as far as WAL was read; without a SystemID: nothing is known
	confirmed         pglogrepl.LSN // the last position that it received
}

// recognise refuses a server that is not the one this process has streamed from, or one that was
// put back to an earlier state: LSNs are used again then, and mean something else. A standby that
// was promoted is welcome, and what it lacks is reported. Either way the server's slot says what
// is sent next: nothing that this process remembers moves a position.
func (r *Relay) recognise(id replication.Identity, seed pglogrepl.LSN) error {
	was, now := r.seen, seen{replication.Place{SystemID: id.SystemID, Timeline: id.Timeline,
		LSN: seed}, seed}
	if was.SystemID == "" {
		r.seen = now
		return nil
	}
	descent, fork := id.Continues(was.Place)
	changed := func(format string, args ...any) error {
		return fmt.Errorf(format+": %w", append(args, replication.ErrIdentityChanged)...)
	}
	switch descent {
	case replication.OtherCluster:
		return changed("system identifier is %s, was %s", id.SystemID, was.SystemID)
	case replication.OlderBranch:
		return changed("timeline is %d, was %d", id.Timeline, was.Timeline)
	case replication.Rewound:
		return changed("server was put back to an earlier state: it has written up to %s of "+
			"timeline %d, and was read up to %s before", fork, id.Timeline, was.LSN)
	case replication.Restored:
		lost, _ := r.published.behind(fork)
		return changed("server was restored to an earlier point: timeline %d begins at %s, and "+
			"the server before it was read up to %s, with %d messages "+
			"that were published from behind that point", id.Timeline, fork, was.LSN, lost)
	}
	if descent == replication.Forked && now.confirmed == was.confirmed && fork != 0 &&
		now.confirmed > fork {
		// A slot that came over with its old position: the server would leave out what it wrote
		// from the fork to there.
		return fmt.Errorf("slot is confirmed up to %s of timeline %d, and the server left that "+
			"timeline at %s: rows that it wrote from there on would "+
			"never be sent: %w", now.confirmed, was.Timeline, fork, replication.ErrSlotUnusable)
	}
	r.seen = now
	if id.Timeline != was.Timeline {
		r.promoted(descent, fork, id, was)
	}
	return nil
}

// promoted says what a change of the timeline means.
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

// handedTransactions are those that are remembered: some seconds of a busy outbox. A standby that
// lags by more is not one to promote.
const publishedTransactions = 16 << 10

// handed counts the messages of the last transactions that went to the sink. Of the pump, and of
// the goroutine in Run while none runs.
type publishedRing struct {
	ring        []counted // ring[number%handedTransactions], for first <= number < next
	first, next uint64    // numbers of transactions; first > 0: some are not remembered any more
}

type counted struct {
	commit   pglogrepl.LSN
	messages int
}

// add counts one message of the transaction that commits there. Transactions come in the order of
// commits; those that come again after a new start from the slot are counted once.
func (h *publishedRing) add(commit pglogrepl.LSN) {
	if h.ring == nil {
		h.ring = make([]counted, publishedTransactions)
	}
	if h.next > h.first {
		last := h.at(h.next - 1)
		if last.commit == commit {
			last.messages++
			return
		}
		if commit < last.commit {
			h.forget(commit)
		}
	}
	if h.next-h.first == publishedTransactions {
		h.first++
	}
	*h.at(h.next) = counted{commit, 1}
	h.next++
}

// behind counts the messages of transactions whose commit lies behind fork. all: there are no
// others that are not remembered any more.
func (h *publishedRing) behind(fork pglogrepl.LSN) (messages int, all bool) {
	for n := h.next; n > h.first; n-- {
		c := h.at(n - 1)
		if c.commit < fork {
			return messages, true
		}
		messages += c.messages
	}
	return messages, h.first == 0
}

// forget is for what comes again, or never will.
func (h *publishedRing) forget(from pglogrepl.LSN) {
	for h.next > h.first && h.at(h.next-1).commit >= from {
		h.next--
	}
}

func (h *publishedRing) at(number uint64) *counted { return &h.ring[number%publishedTransactions] }
