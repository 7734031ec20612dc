package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
)

const makeAnew = `SELECT pg_drop_replication_slot($1), pg_logical_emit_message(false, 'x', 'y'), pg_create_logical_replication_slot($1, 'pgoutput')`

// moved has Parts.Server.Moved report that rows are lost, and counts its calls.
func (x *setup) moved() (asked *atomic.Int64) {
	asked = new(atomic.Int64)
	x.parts.Server.Moved = func(_ context.Context, m relay.Move) error {
		asked.Add(1)
		x.last = m
		return fmt.Errorf("acked %s, begins at %s: %w", m.Acked, m.Confirmed, replication.ErrSlotLost)
	}
	return asked
}

// haltsWhenCutOff runs a relay that streams, ends its connection, and waits until it has found that rows are lost.
func (x *setup) haltsWhenCutOff() *running {
	x.t.Helper()
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.insert(1, 10)
	require.NoError(x.t, x.broker.WaitPublished(x.ctx, 10))
	x.exec(`SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = $1`, x.slot)
	require.ErrorIs(x.t, <-r.ended, replication.ErrSlotLost)
	return r
}

func TestRelay_HaltsAtASlotThatWasMadeAnew(t *testing.T) {
	x := newSetup(t)
	asked := x.moved()
	other := x.db.Connect(t)
	x.parts.Server.Prepare = func(ctx context.Context, first bool) error {
		if first {
			return nil
		}
		_, err := other.Exec(ctx, makeAnew, x.slot)
		return err
	}
	r := x.haltsWhenCutOff()
	require.EqualValues(t, 1, asked.Load())
	require.False(t, x.last.Held)
	require.Equal(t, relay.Halted, r.State().Phase)
}

// Whoever drops or makes a slot holds it for a moment. That is no other relay.
func TestRelay_HaltsAtASlotThatWasHeldToMakeItAnew(t *testing.T) {
	x := newSetup(t)
	x.moved()
	other := x.db.Connect(t)
	var attempts atomic.Int64
	x.parts.Server.Prepare = func(ctx context.Context, first bool) error {
		switch attempts.Add(1) {
		case 1:
			return nil
		case 2:
			return fmt.Errorf("its creation is not finished: %w", replication.ErrSlotInUse)
		}
		_, err := other.Exec(ctx, makeAnew, x.slot)
		return err
	}
	x.haltsWhenCutOff()
	require.True(t, x.last.Held)
	require.Greater(t, x.last.Confirmed, x.last.Acked)
}

// Who pauses a relay to work on its slot knows what is done to it.
func TestRelay_TakesASlotThatWasMovedOnDuringAPause(t *testing.T) {
	x := newSetup(t)
	asked := x.moved()
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.insert(1, 10)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 10))
	r.paused()
	x.exec(makeAnew, x.slot)
	require.True(t, r.Resume())
	r.waitPhase(relay.Streaming)
	require.Zero(t, asked.Load())
}
