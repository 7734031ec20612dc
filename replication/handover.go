package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

// LastEvent is how far another reader has published what a slot sends: up to this event.
type LastEvent struct {
	Type byte          // pgoutput's letter for the message: B, C, I, U, D, T or M
	XID  uint32        // of its transaction; zero: a message outside of one
	LSN  pglogrepl.LSN // at which the server sent it
	// Count is how many rows with this LSN were published; zero: at least one.
	Count int64
	// BeginCounts: in Count, the Begin is a row too if it has this LSN.
	BeginCounts bool
}

// ends reports whether the LSN is the end of the transaction of the event.
func (e LastEvent) ends() bool { return e.Type == 'C' || e.Type == 'M' && e.XID == 0 }

// Handover is where a slot goes from one reader to the next.
type Handover struct {
	Confirmed pglogrepl.LSN // position of the slot
	// LSN is where it can be moved to: a commit end up to which everything was published.
	LSN       pglogrepl.LSN
	Published int // events up to LSN that were published and are not sent again
	// published events behind LSN that are sent again: part of a transaction
	Again int
}

// Why a handover cannot be found.
var (
	ErrEventNotFound = errors.New("last published event is not in what the slot sends")
	ErrEventBehind   = errors.New("slot stands behind the last published event already")
)

// FindHandover reads what the slot would send, confirming nothing, up to the transaction of the
// last event, at most to where the server writes now. routed reports whether an event is
// published. The slot must not be in use. Errors wrap the sentinels of this package or are
// pgconn's.
func FindHandover(ctx context.Context, pg *pgconn.Config, cfg Config, slot string, last LastEvent,
	routed func(*Event) bool,
	log zerolog.Logger) (Handover, error) {
	// Logical messages take part in what came when, by whichever reader.
	cfg.Messages = []string{"*"}
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

// finder follows the stream. Its counts of a transaction become part of found at the Commit.
type finder struct {
	last   LastEvent
	routed func(*Event) bool
	found  Handover
	done   bool

	xid       uint32
	begin     pglogrepl.LSN // at which the Begin was sent
	published int           // routed events of the open transaction up to the last one
	left      int           // those after it
	same      int64         // rows at the LSN of the last event
	reached   bool          // the last event is in this transaction, and was reached
	passed    bool          // what comes now was not published
}

// message takes one pgoutput message, sent at a position, and the events that it was decoded to.
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
			f.alone(at, events)
			break
		}
		f.event(at, msg[0], events)
	case 'I', 'U', 'D', 'T':
		f.event(at, msg[0], events)
	}
	return c.err(msg[0])
}

func (f *finder) event(at pglogrepl.LSN, typ byte, events []Event) {
	mine := f.xid == f.last.XID && at == f.last.LSN && typ == f.last.Type
	switch {
	case f.passed:
	case mine && f.same < f.want():
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

// want is how many rows at the LSN of the last event were published.
func (f *finder) want() int64 {
	n := f.last.Count
	if f.last.Type == 'T' || f.last.Type == 'M' { // each has an LSN of its own
		return 1
	}
	if n > 1 && f.last.BeginCounts && f.begin == f.last.LSN {
		n--
	}
	return max(n, 1)
}

func (f *finder) count(events []Event) (n int) {
	for i := range events {
		if events[i].isRow() && f.routed(&events[i]) {
			n++
		}
	}
	return n
}

func (f *finder) committed(end pglogrepl.LSN) {
	f.done = f.reached && (f.last.Type == 'B' || f.same == f.want())
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

// alone is a logical message that is a transaction of its own.
func (f *finder) alone(at pglogrepl.LSN, events []Event) {
	f.done = f.last.Type == 'M' && f.last.ends() && at == f.last.LSN
	f.found.Published += f.count(events)
	if n := len(events); n > 0 && events[n-1].Kind == Commit {
		f.found.LSN = events[n-1].LSN
	}
}
