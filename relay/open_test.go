package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
)

// What is read before a session begins, as the dead letters, may take longer than the server waits for a status.
func TestOpen_OutlastsTheTimeoutOfTheServer(t *testing.T) {
	t.Parallel()
	const patienceOfTheServer = 2 * time.Second
	x := newSetup(t)
	x.policies(deadletter.DeadLetter)
	x.pg.RuntimeParams["wal_sender_timeout"] = patienceOfTheServer.String()
	with := x.parts.DeadLetters.Open
	x.parts.DeadLetters.Open = func(ctx context.Context, s sink.Source, begin pglogrepl.LSN) (deadletter.Handler, error) {
		select {
		case <-time.After(3 * patienceOfTheServer):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return with(ctx, s, begin)
	}
	x.insert(1, 10)
	end := x.current()
	r := x.run()
	require.Eventually(t, func() bool { return x.confirmed() >= end }, patience, 50*time.Millisecond, "no session has confirmed what it published")
	r.stop()
	require.NoError(t, r.end())
}

type countedHandler struct {
	deadletter.Handler
	open *atomic.Int64
}

func (h *countedHandler) Close() {
	h.open.Add(-1)
	h.Handler.Close()
}

// A dead-letter handler that stays open continues to read its topic, and reports to an ended session
// that keys are no longer parked.
func TestOpen_ClosesTheDeadLetterHandlerOfASessionThatDoesNotBegin(t *testing.T) {
	x := newSetup(t)
	x.policies(deadletter.DeadLetter)
	var open, asked atomic.Int64
	with := x.parts.DeadLetters.Open
	x.parts.DeadLetters.Open = func(ctx context.Context, s sink.Source, begin pglogrepl.LSN) (deadletter.Handler, error) {
		d, err := with(ctx, s, begin)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &countedHandler{d, &open}, nil
	}
	const failures = 4
	x.parts.Server.Moved = func(context.Context, relay.Move) error {
		if asked.Add(1) <= failures {
			return errors.New("the database does not answer just now")
		}
		return nil
	}
	other := x.db.Connect(t)
	made := false
	x.parts.Server.Prepare = func(ctx context.Context, first bool) error {
		if first || made {
			return nil
		}
		made = true
		_, err := other.Exec(ctx, makeAnew, x.slot)
		return err
	}
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.insert(1, 10)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 10))
	x.exec(`SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = $1`, x.slot)
	require.Eventually(t, func() bool { return asked.Load() == failures+1 && r.State().Phase == relay.Streaming }, patience, time.Millisecond)
	require.EqualValues(t, 1, open.Load())
	r.stop()
	require.NoError(t, r.end())
	require.Zero(t, open.Load())
}
