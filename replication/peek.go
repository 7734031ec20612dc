package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

// sent is one message of the server, with its events. Both are valid until the next message.
type sent struct {
	lsn    pglogrepl.LSN // in the header of WAL data; zero: it is none
	wal    []byte        // the pgoutput message; nil: it is no WAL data
	events []Event
	err    error // of decoding it, or the error that the server sent
}

// peek reads what the slot sends, confirming nothing, until visit is done or returns an error, or
// upTo is reached. It is called in place of Run.
func (s *Stream) peek(ctx context.Context, upTo pglogrepl.LSN,
	visit func(sent) (done bool, err error)) error {
	defer onDone(ctx, s.interruptRead)()
	s.schedule.last = s.now()
	b := &Batch{}
	for s.positions.received < upTo {
		typ, body, over, ok, err := s.wire.next()
		switch {
		case err != nil:
			return fmt.Errorf("transaction that commits at %s: %w", s.decoder.lsn, err)
		case !ok:
			if err := s.statusIfDue(); err != nil {
				return err
			}
			if err := s.read(ctx, context.Background()); err != nil {
				return err
			}
			continue
		}
		b.reset()
		m := sent{err: s.message(typ, body, over, b)}
		m.events = b.Events
		if typ == 'd' && len(body) > 25 && body[0] == 'w' {
			m.lsn, m.wal = pglogrepl.LSN(binary.BigEndian.Uint64(body[1:9])), body[25:]
		}
		if done, err := visit(m); done || err != nil {
			return err
		}
	}
	return nil
}

// endPeek ends the stream and waits for the server: until then the slot is in use.
func (s *Stream) endPeek(ctx context.Context) error {
	drained := make(chan struct{})
	close(drained)
	return s.Finish(ctx, drained)
}

// ReadInserts reads what a slot sends up to a position, confirming nothing, and calls each with
// the inserts in the order of their commits. An event is valid until each returns. The error is
// that of each, or as of Open. The slot is free again when ReadInserts returns nil.
func ReadInserts(ctx context.Context, pg *pgconn.Config, cfg Config, slot string,
	upTo pglogrepl.LSN, log zerolog.Logger, each func(*Event) error) error {
	s, err := Open(ctx, pg, cfg, slot, log)
	if err != nil {
		return err
	}
	err = s.peek(ctx, upTo, func(m sent) (bool, error) {
		for i := range m.events {
			if m.events[i].Kind == Insert && m.err == nil {
				if err := each(&m.events[i]); err != nil {
					return true, err
				}
			}
		}
		return false, m.err
	})
	if endErr := s.endPeek(context.WithoutCancel(ctx)); err == nil {
		err = endErr
	}
	return err
}

// Transaction is a transaction that a slot would send.
type Transaction struct {
	XID        uint32
	CommitLSN  pglogrepl.LSN
	CommitTime time.Time
	// Behind is a position behind the transaction and before everything that commits later.
	Behind pglogrepl.LSN
	// Events is how many of its events count, by table or "message PREFIX"; with Unsent only those
	// that the server sent.
	Events map[string]int
	Unsent error // why the server cannot send the rest of it; nil: it sends all

	// What the slot would send before it.
	Earlier             int // events that count
	EarlierTransactions int // transactions with such events
	counted             int // Earlier at the last Begin
}

// ErrTransactionNotFound means that the slot sends no transaction that commits at the position.
var ErrTransactionNotFound = errors.New("transaction is not in what the slot sends")

// FindTransaction reads what the slot would send, confirming nothing, up to the transaction that
// commits at a position, at most to where the server writes now. counts reports whether an event
// counts. The slot must not be in use. Errors wrap the sentinels of this package or are pgconn's.
func FindTransaction(ctx context.Context, pg *pgconn.Config, cfg Config, slot string,
	commit pglogrepl.LSN, counts func(*Event) bool, log zerolog.Logger) (Transaction, error) {
	s, err := Open(ctx, pg, cfg, slot, log)
	if err != nil {
		return Transaction{}, err
	}
	defer func() { _ = s.endPeek(ctx) }()

	t, done := Transaction{CommitLSN: commit, Events: map[string]int{}}, false
	err = s.peek(ctx, s.identity.WrittenLSN, func(m sent) (bool, error) {
		if s.decoder.open && s.decoder.lsn == commit {
			t.XID, t.CommitTime = s.decoder.xid, s.decoder.time
		}
		switch {
		case m.err != nil && t.XID == 0:
			return true, m.err
		case m.err != nil:
			// The commit record is longer than 8 bytes, to which records are aligned: no other ends there.
			t.Unsent, t.Behind, done = m.err, commit+8, true
		default:
			t.take(m.events, counts)
			done = t.XID != 0 && !s.decoder.open
		}
		return done, nil
	})
	if done || err != nil {
		return t, err
	}
	return t, fmt.Errorf("transaction that commits at %s, slot %q at %s, the server at %s: %w",
		commit, slot, s.SeedLSN(), s.identity.WrittenLSN, ErrTransactionNotFound)
}

// take counts events: once XID is set those of the transaction itself, before that earlier ones.
func (t *Transaction) take(events []Event, counts func(*Event) bool) {
	for i := range events {
		switch e := &events[i]; {
		case e.isRow() && !counts(e):
		case e.isRow() && t.XID == 0:
			t.Earlier++
		case e.isRow() && e.Relation != nil:
			t.Events[e.Relation.String()]++
		case e.isRow():
			t.Events["message "+e.Prefix]++
		case e.Kind == Begin:
			t.counted = t.Earlier
		case t.XID != 0:
			t.Behind = e.LSN
		case e.Kind == Commit && t.Earlier > t.counted:
			t.EarlierTransactions++
		}
	}
}
