package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"
)

// Stream is one connection that replicates one slot. Open it, Run it once, then Finish or Abandon
// it. Methods are for one goroutine at a time, unless their comment says otherwise.
type Stream struct {
	conn      *pgconn.PgConn
	wire      *wire
	socket    *lowWaterConn // nil: it has no low-water mark
	secure    bool          // with TLS
	last      lastRead
	decoder   *decoder
	positions positions
	schedule  schedule
	pace      pace
	nap       nap
	identity  Identity
	acked     func() pglogrepl.LSN
	log       zerolog.Logger
	now       func() time.Time

	between int // bytes read since the last event; see Event.Bytes

	// For other goroutines.
	received  atomic.Uint64             // copy of positions.received
	confirmed atomic.Uint64             // copy of positions.flushed
	bytes     atomic.Uint64             // read from the connection
	waiting   atomic.Pointer[time.Time] // nil: not
}

// SeedLSN is the slot's confirmed position when the stream was opened: the caller starts there.
func (s *Stream) SeedLSN() pglogrepl.LSN { return s.positions.seed }

// Identity is that of the server, as of Open.
func (s *Stream) Identity() Identity { return s.identity }

// MaxRowBytes is Config.MaxRowBytes.
func (s *Stream) MaxRowBytes() int64 { return s.wire.max }

// ReceivedLSN is the newest position read. Safe for concurrent use.
func (s *Stream) ReceivedLSN() pglogrepl.LSN { return pglogrepl.LSN(s.received.Load()) }

// ConfirmedFlushLSN is the flush position as last sent. Safe for concurrent use.
func (s *Stream) ConfirmedFlushLSN() pglogrepl.LSN { return pglogrepl.LSN(s.confirmed.Load()) }

// ReceivedBytes counts what was read from the connection. Safe for concurrent use.
func (s *Stream) ReceivedBytes() uint64 { return s.bytes.Load() }

// BufferBytes returns the size of the read buffers that are in use: the one that is being filled,
// and those that a Batch or a message retains. Safe for concurrent use.
func (s *Stream) BufferBytes() int64 { return s.wire.chunks.held.Load() }

// WaitingSince returns since when the stream has waited for nothing but the server. It is zero
// when Run has returned, and while its out has no room: an error of the server may then be unread.
// Safe for concurrent use.
func (s *Stream) WaitingSince() time.Time {
	if since := s.waiting.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Run reads, decodes and sends batches to out until an error ends the stream, ctx ends, or stop
// ends and the open transaction is complete: then it returns nil. If ctx ends it returns its
// cause. It closes out. The receiver releases each Batch. Statuses leave on time also while out
// has no room. acked returns the acked LSN; only this goroutine calls it.
func (s *Stream) Run(ctx, stop context.Context, out chan<- *Batch,
	acked func() pglogrepl.LSN) error {
	defer close(out)
	defer s.socket.shrinkRecvBuf(false)
	defer s.waiting.Store(nil)
	s.acked = acked
	defer onDone(ctx, s.interruptRead)()
	defer onDone(stop, s.interruptRead)()

	s.schedule.last = s.now()
	// Besides those in out, one is filled and one is with the receiver.
	spare := make(batches, cap(out)+2)
	for {
		b := spare.take()
		stopped, err := s.decodeBuffered(b, stop)
		if len(b.Events) > 0 {
			if handErr := s.handOver(ctx, out, b); handErr != nil {
				return handErr
			}
		} else {
			b.Release()
		}
		if err != nil || stopped {
			return err
		}
		if err := s.statusIfDue(); err != nil {
			return err
		}
		if err := s.read(ctx, stop); err != nil {
			return err
		}
	}
}

// interruptRead ends a read that waits. The connection stays usable for the final status.
func (s *Stream) interruptRead() { _ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) }

// onDone calls f once ctx ends. cancel prevents that, or waits for f if ctx has ended.
func onDone(ctx context.Context, f func()) (cancel func()) {
	called := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(called); f() })
	return func() {
		if !stop() {
			<-called
		}
	}
}

// decodeBuffered decodes what has been read. stopped: stop ended and no transaction is open.
func (s *Stream) decodeBuffered(b *Batch, stop context.Context) (stopped bool, err error) {
	stopping := stop.Err() != nil
	s.last.onlyKeepalives = true
	for !stopping || s.decoder.open {
		typ, body, over, ok, err := s.wire.next()
		if err != nil {
			return false, fmt.Errorf("transaction that commits at %s, row %d: %w", s.decoder.lsn,
				s.decoder.index, err)
		}
		if !ok {
			return false, nil
		}
		if err := s.message(typ, body, over, b); err != nil {
			return false, err
		}
	}
	return true, nil
}

// message handles one protocol message. For over see wire.next.
func (s *Stream) message(typ byte, body []byte, over int64, b *Batch) error {
	switch typ {
	case 'd':
		return s.copyData(body, over, b)
	case 'E':
		var m pgproto3.ErrorResponse
		if err := m.Decode(body); err != nil {
			return fmt.Errorf("%w: error response", ErrProtocol)
		}
		at := s.positions.received.String()
		if s.decoder.open {
			at += fmt.Sprintf(", in the transaction that commits at %s, behind %d rows of it",
				s.decoder.lsn, s.decoder.index)
		}
		return fmt.Errorf("replication stream at %s: %w", at,
			streamError(pgconn.ErrorResponseToPgError(&m)))
	case 'N':
		var m pgproto3.NoticeResponse
		if err := m.Decode(body); err != nil {
			return fmt.Errorf("%w: notice", ErrProtocol)
		}
		n := pgconn.Notice(*pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(&m)))
		s.notice(&n)
		// From 18 a missing publication is only this warning, and its rows are left out. A standby
		// of synchronized_standby_slots that delays the stream has the same code, from slot.c.
		if n.SeverityUnlocalized == "WARNING" && n.Code == "55000" && n.File != "slot.c" {
			return fmt.Errorf("replication stream at %s: server reports %q: %w",
				s.positions.received, n.Message, ErrPublicationMissing)
		}
	case 'c', 'C', 'Z': // CopyDone, CommandComplete, ReadyForQuery: only at shutdown
		return fmt.Errorf("server ended the replication stream at %s: %w", s.positions.received,
			ErrServerStopping)
	}
	return nil
}

// copyData handles a CopyData message: WAL data (w) or a keepalive (k). For over see wire.next.
func (s *Stream) copyData(body []byte, over int64, b *Batch) error {
	switch {
	case len(body) >= 25 && body[0] == 'w':
		s.last.onlyKeepalives = false
		// The positions in front of the payload are no progress: a relation message has zeros.
		sent := int64(binary.BigEndian.Uint64(body[17:25]))
		events := len(b.Events)
		if err := s.decoder.decode(body[25:], over, sent, b); err != nil {
			return fmt.Errorf("decode after %s: %w", s.positions.received, err)
		}
		if body[25] != 'M' { // which may have no commit
			// both by the server's clock
			s.last.behind = postgresTime(sent).Sub(s.decoder.time) > staleness
		}
		s.between = min(s.between, ChunkBytes) + len(body)
		b.retainChunk(events, s.wire.chunk)
		if n := len(b.Events); n > events {
			b.Events[n-1].Bytes, s.between = s.between, 0
		}
		s.schedule.progressed()
		s.seen(b)
	case len(body) == 18 && body[0] == 'k':
		c := cursor{rest: body[1:]}
		end := pglogrepl.LSN(c.uint64())
		c.uint64() // server clock
		if c.byte() != 0 {
			s.schedule.replyRequested(s.now())
		}
		// Inside a transaction its position is behind rows that are still to come. One below the seed
		// can come right after the start.
		if !s.decoder.open && end > s.positions.received {
			b.idle(end)
			s.seen(b)
		}
		if s.schedule.serverStopping() && s.acked() < s.positions.received {
			return fmt.Errorf("server requested %d replies, and the sink has not acknowledged "+
				"all that was received: %w", s.schedule.requests, ErrServerStopping)
		}
	default:
		return fmt.Errorf("%w: copy data of %d bytes", ErrProtocol, len(body))
	}
	return nil
}

// seen moves the received position to the last end in b.
func (s *Stream) seen(b *Batch) {
	if n := len(b.Events); n > 0 {
		if e := b.Events[n-1]; (e.Kind == Commit || e.Kind == Idle) &&
			e.LSN > s.positions.received {
			s.positions.received = e.LSN
			s.received.Store(uint64(e.LSN))
		}
	}
}

// handOver sends b to out. While there is no room it sends statuses.
func (s *Stream) handOver(ctx context.Context, out chan<- *Batch, b *Batch) error {
	select {
	case out <- b:
		return nil
	default:
	}
	s.waiting.Store(nil)
	defer func() { s.waiting.Store(new(time.Now())) }()
	timer := time.NewTimer(min(shrunkTimeout, time.Until(s.wake())))
	defer timer.Stop()
	for {
		select {
		case out <- b:
			return nil
		case <-timer.C:
			s.socket.shrinkRecvBuf(false)
			if err := s.statusIfDue(); err != nil {
				return err
			}
			timer.Reset(time.Until(s.wake()))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Stream) notice(n *pgconn.Notice) {
	s.log.Debug().Str("severity", n.Severity).Str("code", n.Code).Str("reason", n.Message).
		Msg("server notice received")
}

// lastRead is what the last read means for the next one.
type lastRead struct {
	unfinished     bool      // there was no room for all that had come
	silent         bool      // it brought nothing
	endedAt        time.Time // end of the last read that brought something
	frequent       bool      // the one before endedAt was within 2*longestPause
	onlyKeepalives bool      // it brought no WAL data
	behind         bool      // the last WAL data was sent more than staleness after its commit
}

// pause waits until a read is due by the pace or, if behind, brings enough. It takes some
// milliseconds at most, and does not end with a context.
func (s *Stream) pause() error {
	if s.last.unfinished || s.secure && s.socket == nil { // each read brings one record
		return nil
	}
	s.socket.shrinkRecvBuf(s.last.behind)
	switch {
	case s.socket == nil:
	case s.last.behind && s.socket.local:
		s.socket.setRcvLowat(1) // with a higher one the kernel acknowledges each packet
		time.Sleep(s.nap.next(s.now()))
		return nil
	case s.last.behind:
		return s.awaitBytes(worthAwaiting)
	case s.last.onlyKeepalives && s.last.frequent:
		return s.awaitBytes(worthWaking)
	}
	wait := s.pace.wait(s.now())
	// After a sleep that was too long the pace allows a burst of reads.
	if s.last.behind {
		wait = max(wait, readInterval)
	}
	if wait > 0 {
		s.socket.setRcvLowat(worthAwaiting)
		time.Sleep(wait)
	}
	return nil
}

// awaitBytes waits until that many bytes have come, at most longestPause.
func (s *Stream) awaitBytes(bytes int32) error {
	s.socket.setRcvLowat(bytes)
	if err := s.conn.Conn().SetReadDeadline(s.now().Add(longestPause)); err != nil {
		return fmt.Errorf("set read deadline: %w", err)
	}
	s.socket.await()
	return nil
}

// read does one read, which waits at most until the next status is due.
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
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read replication stream: %w: %w", ErrStreamLost, err)
	}
	if err != nil && s.last.silent { // nothing has come for a while
		s.wire.chunks.trim()
	}
	if s.last.silent = err != nil; !s.last.silent {
		now := s.now()
		s.last.frequent, s.last.endedAt = now.Sub(s.last.endedAt) <= 2*longestPause, now
	}
	s.last.unfinished = err == nil && s.readOn(s.wire.got-before)
	s.bytes.Add(s.wire.got - before)
	s.nap.bytes += int(s.wire.got - before) //nolint:gosec // a few chunks
	return nil
}

// readOn reads on, without waiting, after a read that brought so many bytes: over TLS, where a
// read brings one record, and in a backlog of a server on this machine, where a read makes room
// for what waits in the server's socket. more: there was no room for all.
func (s *Stream) readOn(brought uint64) (more bool) {
	if s.socket == nil || !s.secure && !(s.last.behind && s.socket.local) {
		return false
	}
	s.socket.nonBlocking = true
	defer func() { s.socket.nonBlocking = false }()
	for s.wire.hasRoom() {
		if !s.secure && brought < worthReadingOn {
			return false
		}
		before := s.wire.got
		if err := s.wire.fill(); err != nil {
			return false // the next read returns an error again, unless it is the deadline
		}
		brought = s.wire.got - before
	}
	return s.secure || brought >= worthReadingOn
}
