package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

const (
	// confirmDelay is the time from an advance of the acked LSN to its status: what is not confirmed
	// comes again after a crash.
	confirmDelay = 100 * time.Millisecond
	// replyPause is the time between two replies with the same positions. A server that shuts down
	// requests again at once, measured at 24,000 times a second.
	replyPause = 5 * time.Millisecond
	// stoppingRequests is how many requests without data in between, each within stoppingGap of our
	// last status, mean that the server shuts down and waits for us. In normal operation it requests
	// one in half of wal_sender_timeout.
	stoppingRequests = 40
	stoppingGap      = time.Second
)

// positions are what a status carries. flush <= acked, flush <= max(seed, received), flush > 0,
// and none of them ever decreases on one connection.
type positions struct {
	seed pglogrepl.LSN // confirmed_flush_lsn of the slot when the stream was opened
	// newest end of a transaction, or idle position, read from this connection
	received pglogrepl.LSN
	flushed  pglogrepl.LSN // flush as last sent
}

// status returns the write and flush position for an acked LSN.
func (p *positions) status(acked pglogrepl.LSN) (write, flush pglogrepl.LSN) {
	seen := max(p.seed, p.received)
	return seen, min(max(acked, p.seed), seen)
}

// schedule decides when the next status is due.
type schedule struct {
	interval time.Duration
	last     time.Time // of the status sent last
	replyDue bool      // the server requested a reply since then
	// replies requested one after the other since the last data or advance of the flush position
	requests int
}

// due is when the next status has to leave. moved: its flush position is beyond the last one.
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

// wake is when to call due again: when it is due, or soon if the acked LSN may advance at any time
// (waiting).
func (s *schedule) wake(now time.Time, moved, waiting bool) time.Time {
	due := s.due(moved)
	if soon := now.Add(confirmDelay); waiting && soon.Before(due) {
		return soon
	}
	return due
}

func (s *schedule) sent(now time.Time) { s.last, s.replyDue = now, false }

func (s *schedule) replyRequested(now time.Time) {
	if now.Sub(s.last) >= stoppingGap {
		s.requests = 0
	}
	s.replyDue = true
	s.requests++
}

func (s *schedule) progressed() { s.requests = 0 }

// serverStopping reports whether the server requests reply after reply, and nothing advances.
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
		return fmt.Errorf("send status with flush %s: %w: %w", flush, ErrStreamLost, err)
	}
	s.positions.flushed = flush
	s.confirmed.Store(uint64(flush))
	s.schedule.sent(now)
	return nil
}
