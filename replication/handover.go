package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

// LastEvent is the last event of a slot that another reader has published.
type LastEvent struct {
	Type byte          // pgoutput's letter for the message: B, C, I, U, D, T or M
	XID  uint32        // of its transaction; zero: a message outside of one
	LSN  pglogrepl.LSN // in the header of the WAL data with it
	// Count is how many rows with this LSN were published; zero: not known, at least one.
	Count       int64
	BeginCounts bool // Count includes the Begin, if that has this LSN
}

// ends reports whether the LSN is the end of the transaction of the event.
func (e LastEvent) ends() bool { return e.Type == 'C' || e.Type == 'M' && e.XID == 0 }

// Handover is where a slot passes from one reader to the next.
type Handover struct {
	Confirmed pglogrepl.LSN // position of the slot
	// LSN is where it can be moved to: a commit end up to which everything was published.
	LSN       pglogrepl.LSN
	Published int // events up to LSN that were published and are not sent again
	Again     int // published events behind LSN, of a part of a transaction, that are sent again
}

// Errors of FindHandover.
var (
	ErrEventNotFound = errors.New("last published event is not in what the slot sends")
	ErrEventBehind   = errors.New("slot stands behind the last published event already")
)

// FindHandover reads what the slot would send, confirming nothing, up to the transaction of the
// last event, at most to where the server writes now. routed reports whether an event is
// published. The slot must not be in use. Errors wrap the sentinels of this package or are
// pgconn's.
func FindHandover(ctx context.Context, pg *pgconn.Config, cfg Config, slot string, last LastEvent,
	routed func(*Event) bool, log zerolog.Logger) (Handover, error) {
	cfg.Messages = []string{"*"} // the last event may be one, whatever is configured
	s, err := Open(ctx, pg, cfg, slot, log)
	if err != nil {
		return Handover{}, err
	}
	defer func() { _ = s.endPeek(ctx) }()

	f := &finder{last: last, routed: routed, found: Handover{Confirmed: s.SeedLSN(),
		LSN: s.SeedLSN()}}
	err = s.peek(ctx, s.identity.WrittenLSN, func(m sent) (bool, error) {
		if m.err != nil || m.wal == nil {
			return false, m.err
		}
		err := f.message(m.lsn, m.wal, m.events)
		return f.done, err
	})
	if err != nil {
		return Handover{}, err
	}
	switch {
	case f.done:
		return f.found, nil
	case last.LSN < s.SeedLSN(), last.LSN == s.SeedLSN() && last.ends():
		return f.found, fmt.Errorf("slot %q stands at %s, the event was at %s: %w", slot,
			s.SeedLSN(), last.LSN, ErrEventBehind)
	}
	return f.found, fmt.Errorf("transaction %d with an event at %s, slot %q at %s: %w", last.XID,
		last.LSN, slot, s.SeedLSN(), ErrEventNotFound)
}

// finder searches the stream for the last event. The counts of a transaction are added to found at
// its Commit.
type finder struct {
	last   LastEvent
	routed func(*Event) bool
	found  Handover
	done   bool // the last event was found

	// The open transaction.
	xid       uint32
	begin     pglogrepl.LSN // at which the Begin was sent
	published int           // routed events up to the last event
	left      int           // routed events after it
	same      int64         // rows at the LSN of the last event, of its type
	reached   bool          // the last event
	passed    bool          // the last event: what comes now was not published
}

// message handles one pgoutput message, sent at a position, with the events of it.
func (f *finder) message(at pglogrepl.LSN, msg []byte, events []Event) error {
	c := cursor{rest: msg[1:]}
	switch msg[0] {
	case 'B':
		c.uint64() // commit LSN
		c.uint64() // commit time
		f.xid, f.begin = c.uint32(), at
		f.published, f.left, f.same = 0, 0, 0
		f.reached = f.last.Type == 'B' && f.last.XID == f.xid
		f.passed = f.reached
	case 'C':
		c.byte()   // flags
		c.uint64() // commit LSN
		f.committed(pglogrepl.LSN(c.uint64()))
	case 'M':
		if c.byte()&1 == 0 {
			f.nonTransactional(at, events)
			break
		}
		f.event(at, msg[0], events)
	case 'I', 'U', 'D', 'T':
		f.event(at, msg[0], events)
	}
	return c.err(msg[0])
}

// event handles a message inside of a transaction.
func (f *finder) event(at pglogrepl.LSN, typ byte, events []Event) {
	mine := f.xid == f.last.XID && at == f.last.LSN && typ == f.last.Type
	switch {
	case f.passed:
	case mine && f.same < f.expected():
		f.reached = true
		f.same++
	case f.reached:
		f.passed = true
	}
	if f.passed {
		f.left += f.count(events)
	} else {
		f.published += f.count(events)
	}
}

// expected is how many rows of the last event's type were published at its LSN.
func (f *finder) expected() int64 {
	n := f.last.Count
	if f.last.Type == 'T' || f.last.Type == 'M' { // each has an LSN of its own
		return 1
	}
	if n > 1 && f.last.BeginCounts && f.begin == f.last.LSN {
		n--
	}
	return max(n, 1)
}

// count counts the routed ones of events.
func (f *finder) count(events []Event) (n int) {
	for i := range events {
		if events[i].isRow() && f.routed(&events[i]) {
			n++
		}
	}
	return n
}

// committed handles a Commit, which ends at a position.
func (f *finder) committed(end pglogrepl.LSN) {
	f.done = f.reached && (f.last.Type == 'B' || f.same == f.expected())
	if f.last.Type == 'C' {
		f.done = f.xid == f.last.XID && end == f.last.LSN
	}
	if f.done && f.left > 0 {
		f.found.Again = f.published
		return
	}
	f.found.Published += f.published
	f.found.LSN = end
}

// nonTransactional handles a logical message that is a transaction of its own.
func (f *finder) nonTransactional(at pglogrepl.LSN, events []Event) {
	f.done = f.last.Type == 'M' && f.last.ends() && at == f.last.LSN
	f.found.Published += f.count(events)
	if n := len(events); n > 0 && events[n-1].Kind == Commit {
		f.found.LSN = events[n-1].LSN
	}
}
