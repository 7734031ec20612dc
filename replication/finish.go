package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Finish ends the stream after Run has returned: it keeps the connection alive until drained is
// closed or ctx ends, sends the final status, and closes. It returns nil only if the server has
// read that status: the slot then stands at ConfirmedFlushLSN.
func (s *Stream) Finish(ctx context.Context, drained <-chan struct{}) error {
	defer s.conn.Conn().Close()
	tick := time.NewTicker(s.schedule.interval)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-drained:
			waiting = false
		case <-ctx.Done():
			waiting = false
		case now := <-tick.C:
			if err := s.sendStatus(now); err != nil {
				return err
			}
		}
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

// Abandon is Finish for a connection that the server has dropped unnoticed: no status would be
// read or answered.
func (s *Stream) Abandon() { _ = s.conn.Conn().Close() }

// holdInterval is below every wal_sender_timeout that anybody sets.
const holdInterval = 300 * time.Millisecond

// KeepAlive sends statuses until done is closed, while the caller is not ready to Run. They
// confirm what the slot has.
func (s *Stream) KeepAlive(done <-chan struct{}) {
	tick := time.NewTicker(min(s.schedule.interval, holdInterval))
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			if s.sendStatus(now) != nil {
				return // Run or Finish reports it
			}
		}
	}
}

// How long the server gets to answer CopyDone. It may be in the middle of sending a large
// transaction, or on a machine that is busy.
const endTimeout = 5 * time.Second

// The same when the time to drain is over, or after a second signal.
const endTimeoutBrief = 2 * time.Second

// awaitEnd reads on until the server has answered CopyDone. Closing a socket with unread data
// would reset the connection and could throw away the final status with it.
func (s *Stream) awaitEnd(ctx context.Context) error {
	if err := s.conn.Conn().SetReadDeadline(s.now().Add(endTimeout)); err != nil {
		return fmt.Errorf("end replication stream: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		_ = s.conn.Conn().
			SetReadDeadline(s.now().Add(endTimeoutBrief))
	})()
	for {
		typ, _, _, ok, err := s.wire.next()
		switch {
		case err != nil:
			return fmt.Errorf("end replication stream: %w", err)
		case ok && (typ == 'C' || typ == 'E'):
			return s.terminate()
		case ok:
			continue
		}
		if err := s.wire.fill(); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return errors.New("end replication stream: no answer from the server in time")
			}
			return fmt.Errorf("end replication stream: %w", err)
		}
	}
}

func (s *Stream) terminate() error {
	s.conn.Frontend().Send(&pgproto3.Terminate{})
	_ = s.conn.Frontend().Flush() // courtesy: the server has everything it needs
	return nil
}
