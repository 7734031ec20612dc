package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

// sent is one message of the server, with its events. They are valid until the next message.
type sent struct {
	lsn    pglogrepl.LSN // at which it was sent; zero: no WAL data
	wal    []byte        // message of pgoutput; nil: none
	events []Event
	err    error // why it could not be decoded, or the error that the server sent
}

// peek reads what a slot sends, confirming nothing, until visit is done or upTo is reached.
func (s *Stream) peek(ctx context.Context, upTo pglogrepl.LSN,
	visit func(sent) (done bool, err error)) error {
	defer onDone(ctx, func() { _ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) })()
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

// endPeek ends the stream in order: else the server would use the slot a little longer.
func (s *Stream) endPeek(ctx context.Context) error {
	drained := make(chan struct{})
	close(drained)
	return s.Finish(ctx, drained)
}

// ReadInserts reads what a slot sends up to a position, confirming nothing, and calls each with
// the inserts in the order of their commits. An event is valid until each returns. An error of
// each ends it. The slot is free again when ReadInserts returns nil.
func ReadInserts(ctx context.Context, pg *pgconn.Config, cfg Config, slot string,
	upTo pglogrepl.LSN,
	log zerolog.Logger, each func(*Event) error) error {
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
