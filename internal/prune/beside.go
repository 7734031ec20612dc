package prune

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// NewProverFor is NewProver for another user of the proof than pruning. Its coverage and its lock
// are its own: neither waits for the other, and their columns of bounds may differ. They are saved
// under the slot's name, a space and user, which is no name of a slot.
func NewProverFor(ctx context.Context, conn *pgx.Conn, user, slotName,
	publication string) (*Prover, error) {
	p, err := NewProver(ctx, conn, slotName, publication, 0)
	if err != nil {
		return nil, err
	}
	p.key = slotName + " " + user
	return p, p.mark(ctx)
}

// mark makes the slot recognisable after a restart, see markSlot.
func (p *Prover) mark(ctx context.Context) error {
	s, err := readStream(ctx, p.conn, p.slot)
	if err != nil {
		return err
	}
	return markSlot(ctx, p.conn, s)
}

// Lock takes the lock that a caller of Look has, until unlock is called or the connection ends.
// Errors: ErrBusy if another session has it, and those of the database.
func (p *Prover) Lock(ctx context.Context) (unlock func(), err error) {
	return lock(ctx, p.conn, p.key, 0)
}
