package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

const (
	// Time from a move of the watermark to its status: what is not confirmed comes again after a
	// crash.
	confirmDelay = 100 * time.Millisecond
	// Between two replies that say the same. A server that shuts down requests again at once,
	// measured at 24,000 times a second.
	replyPause = 5 * time.Millisecond
	// So many requests without data in between: the server shuts down and waits for us. In normal
	// operation it requests one in half of wal_sender_timeout.
	stoppingRequests = 40
)

// positions are what a status carries. flush <= acked, flush <= max(seed, received), flush > 0,
// and none of them ever decreases on one connection.
type positions struct {
	seed pglogrepl.LSN // confirmed_flush_lsn of the slot when the stream was opened
	// newest end of a transaction, or idle position, read from this connection
	received pglogrepl.LSN
	flushed  pglogrepl.LSN // flush as last sent
}

// status returns write and flush for an acked LSN.
func (p *positions) status(acked pglogrepl.LSN) (write, flush pglogrepl.LSN) {
	seen := max(p.seed, p.received)
	return seen, min(max(acked, p.seed), seen)
}

// schedule decides when the next status is due.
type schedule struct {
	interval time.Duration
	last     time.Time // of the status sent last
	replyDue bool      // the server requested a reply since then
	requests int       // replies requested since data or a move of the watermark came
}

// due is when the next status has to leave. moved: the watermark is past what was sent last.
func (s *schedule) due(moved bool) time.Time {
	switch {
	case s.replyDue && (moved || s.requests <= 1):
		return s.last
	case s.replyDue:
		return s.last.Add(replyPause)
	case moved:
		return s.last.Add(confirmDelay)
	}
	return s.last.Add(s.interval)
}

// wake is when to look again: by due, and soon if the watermark may move at any time (waiting).
func (s *schedule) wake(now time.Time, moved, waiting bool) time.Time {
	due := s.due(moved)
	if soon := now.Add(confirmDelay); waiting && soon.Before(due) {
		return soon
	}
	return due
}

func (s *schedule) sent(now time.Time) { s.last, s.replyDue = now, false }

func (s *schedule) replyRequested() { s.replyDue = true; s.requests++ }

func (s *schedule) progressed() { s.requests = 0 }

// serverStopping: the server keeps asking and nothing moves.
func (s *schedule) serverStopping() bool { return s.requests >= stoppingRequests }

// wake is when Run has to look at the schedule again.
func (s *Stream) wake() time.Time {
	_, flush := s.positions.status(s.acked())
	return s.schedule.wake(s.now(), flush > s.positions.flushed,
		s.positions.received > s.positions.flushed)
}

func (s *Stream) statusIfDue() error {
	_, flush := s.positions.status(s.acked())
	now := s.now()
	if now.Before(s.schedule.due(flush > s.positions.flushed)) {
		return nil
	}
	return s.sendStatus(now)
}

func (s *Stream) sendStatus(now time.Time) error {
	write, flush := s.positions.status(s.acked())
	if flush > s.positions.flushed {
		s.schedule.progressed()
	}
	// apply like flush: with synchronous_commit=remote_apply the two must not differ.
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn,
		pglogrepl.StandbyStatusUpdate{
			WALWritePosition: write, WALFlushPosition: flush, WALApplyPosition: flush,
			ClientTime: now,
		})
	if err != nil {
		return fmt.Errorf("send status with flush %s: %w", flush, err)
	}
	s.positions.flushed = flush
	s.confirmed.Store(uint64(flush))
	s.schedule.sent(now)
	return nil
}
