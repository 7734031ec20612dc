package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Finish ends the stream after Run has returned: it sends statuses until drained is closed or ctx
// ends, then the final one, and closes the connection. It returns nil only if the server has read
// the final status, for which it waits up to endTimeout.
func (s *Stream) Finish(ctx context.Context, drained <-chan struct{}) error {
	defer s.conn.Conn().Close()
	if err := s.sendStatuses(s.schedule.interval, drained, ctx.Done()); err != nil {
		return err
	}
	if err := s.sendStatus(s.now()); err != nil {
		return err
	}
	s.conn.Frontend().Send(&pgproto3.CopyDone{})
	if err := s.conn.Frontend().Flush(); err != nil {
		return fmt.Errorf("end replication stream: %w", err)
	}
	return s.awaitEnd(ctx)
}

// Abandon closes the connection in place of Finish, where the server reads no status any more.
func (s *Stream) Abandon() { _ = s.conn.Conn().Close() }

// KeepAlive sends statuses with the slot's own position until done is closed, so that the server
// keeps the connection while the caller prepares to Run.
func (s *Stream) KeepAlive(done <-chan struct{}) {
	// Run or Finish returns the error.
	_ = s.sendStatuses(min(s.schedule.interval, keepAliveInterval), done, nil)
}

// sendStatuses sends a status each interval, until done or ended is closed.
func (s *Stream) sendStatuses(interval time.Duration, done, ended <-chan struct{}) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ended:
			return nil
		case now := <-tick.C:
			if err := s.sendStatus(now); err != nil {
				return err
			}
		}
	}
}

const (
	// endTimeout is how long the server, which may be sending a large transaction, has to answer
	// CopyDone; endTimeoutBrief is from the end of ctx on: of the time to drain, or a second signal.
	endTimeout      = 5 * time.Second
	endTimeoutBrief = 2 * time.Second
	// keepAliveInterval is below every wal_sender_timeout in use.
	keepAliveInterval = 300 * time.Millisecond
)

// awaitEnd reads on until the server has answered CopyDone. Closing a socket with unread data
// would reset the connection and could throw away the final status with it.
func (s *Stream) awaitEnd(ctx context.Context) error {
	timeout := func(d time.Duration) error { return s.conn.Conn().SetReadDeadline(s.now().Add(d)) }
	if err := timeout(endTimeout); err != nil {
		return fmt.Errorf("end replication stream: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = timeout(endTimeoutBrief) })()
	for {
		typ, _, _, ok, err := s.wire.next()
		switch {
		case ok && (typ == 'C' || typ == 'E'):
			s.conn.Frontend().Send(&pgproto3.Terminate{})
			_ = s.conn.Frontend().Flush() // the server has the status already
			return nil
		case err == nil && !ok:
			err = s.wire.fill()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("end replication stream: no answer from the server in time")
		}
		if err != nil {
			return fmt.Errorf("end replication stream: %w", err)
		}
	}
}
