package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

// Transaction is one transaction of those that a slot would send.
type Transaction struct {
	XID        uint32
	CommitLSN  pglogrepl.LSN
	CommitTime time.Time
	// Behind is a position behind the transaction and before everything that commits later.
	Behind pglogrepl.LSN
	// that count, by table or message prefix; if Unsent, only those that came
	Events map[string]int
	Unsent error // why the server cannot send the rest of it; nil: it sends all

	// What the slot would send before it.
	Earlier             int // events that count
	EarlierTransactions int // in which they are
	counted             int // of Earlier, those before the transaction that is open
}

// ErrTransactionNotFound says that a slot sends no transaction that commits where it was said to.
var ErrTransactionNotFound = errors.New("transaction is not in what the slot sends")

// FindTransaction reads what the slot would send, confirming nothing, up to the transaction that
// commits at a position, at most to where the server writes now. counts reports whether an event
// counts. The slot must not be in use. Errors wrap the sentinels of this package or are pgconn's.
func FindTransaction(ctx context.Context, pg *pgconn.Config, cfg Config, slot string,
	commit pglogrepl.LSN, counts func(*Event) bool,
	log zerolog.Logger) (Transaction, error) {
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
			// Its commit record is longer than the alignment of 8 bytes: nothing else ends there.
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

// take counts events: of the transaction itself once it has begun, before that of the others.
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
