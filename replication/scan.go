package replication

import (
	"context"
	"fmt"
	"time"
)

// scan reads what the slot would send up to where the server has written when the stream was
// opened, confirms nothing, and ends the stream. It calls each with every message, the events that
// it was decoded to, or why it was not; each reports whether that was the last.
func (s *Stream) scan(ctx context.Context,
	each func(typ byte, body []byte, events []Event, err error) (done bool, _ error)) error {
	closed := make(chan struct{})
	close(closed)
	// Sends the position that the slot has. Without the orderly end, the server would hold the
	// slot a little longer.
	defer func() { _ = s.Finish(ctx, closed) }()
	defer onDone(ctx, func() { _ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) })()
	s.schedule.last = s.now()
	b := &Batch{}
	for s.positions.received < s.identity.WrittenLSN {
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
		err = s.message(typ, body, over, b)
		if done, err := each(typ, body, b.Events, err); done || err != nil {
			return err
		}
	}
	return nil
}
