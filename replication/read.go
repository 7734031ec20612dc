package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// lastRead is what the last read means for the next one.
type lastRead struct {
	unfinished     bool      // it has left something behind
	silent         bool      // it brought nothing
	endedAt        time.Time // when the last one that brought something ended
	frequent       bool      // and the one before that was not long ago
	onlyKeepalives bool      // were what it brought
	behind         bool      // what came last was sent long after its commit
}

// pause waits until a read is due by the pace or, if behind, brings enough. It ignores contexts.
func (s *Stream) pause() error {
	if s.last.unfinished || s.secure && s.socket == nil { // each read brings one record
		return nil
	}
	s.socket.shrinkRecvBuf(s.last.behind)
	switch {
	case s.socket == nil:
	case s.last.behind:
		return s.awaitBytes(worthReading)
	case s.last.onlyKeepalives && s.last.frequent:
		return s.awaitBytes(worthWaking)
	}
	wait := s.pace.wait(s.now())
	// not wait alone: after a sleep that was too long it allows a burst of reads
	if s.last.behind {
		wait = max(wait, readInterval)
	}
	if wait > 0 {
		s.socket.setRcvLowat(worthReading)
		time.Sleep(wait)
	}
	return nil
}

// awaitBytes waits until so many bytes have come, at most longestPause.
func (s *Stream) awaitBytes(bytes int32) error {
	s.socket.setRcvLowat(bytes)
	if err := s.conn.Conn().SetReadDeadline(s.now().Add(longestPause)); err != nil {
		return fmt.Errorf("set read deadline: %w", err)
	}
	s.socket.await()
	return nil
}

// read waits for bytes, at most until the next status is due.
func (s *Stream) read(ctx, stop context.Context) error {
	if err := s.pause(); err != nil {
		return err
	}
	if err := s.conn.Conn().SetReadDeadline(s.wake()); err != nil {
		return fmt.Errorf("set read deadline: %w", err)
	}
	if err := ctx.Err(); err != nil { // after the deadline was set: interrupt may have come before
		return context.Cause(ctx)
	}
	if stop.Err() != nil && !s.decoder.open {
		return nil
	}
	before := s.wire.got
	err := s.wire.fill()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		if errors.Is(err, io.EOF) {
			// the server never ends a stream without a message, unless wal_sender_timeout struck
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read replication stream: %w", err)
	}
	if err != nil && s.last.silent { // and not because a status was due already
		s.wire.chunks.trim()
	}
	if s.last.silent = err != nil; !s.last.silent {
		now := s.now()
		s.last.frequent, s.last.endedAt = now.Sub(s.last.endedAt) <= 2*longestPause, now
	}
	s.last.unfinished = err == nil && s.readRecords()
	s.bytes.Add(s.wire.got - before)
	return nil
}

// readRecords reads on over TLS, where a read brings one record. more: there was no room for all.
func (s *Stream) readRecords() (more bool) {
	if !s.secure || s.socket == nil {
		return false
	}
	s.socket.nonBlocking = true
	defer func() { s.socket.nonBlocking = false }()
	for s.wire.hasRoom() {
		if err := s.wire.fill(); err != nil {
			return false // an error other than the deadline comes again
		}
	}
	return true
}
