package relay_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
)

func TestRelay_StandsByUntilTheSlotIsFree(t *testing.T) {
	x := newSetup(t)
	free := make(chan struct{})
	asked := make(chan struct{}, 100)
	x.parts.Server.AwaitSlot = func(ctx context.Context) error {
		asked <- struct{}{}
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	held := true
	x.parts.Server.Prepare = func(context.Context, bool) error {
		if held {
			return replication.ErrSlotInUse
		}
		return nil
	}
	r := x.run()
	<-asked
	r.waitPhase(relay.Standby)
	require.True(t, r.State().Ready(), "a standby is ready")
	require.Zero(t, r.State().NextAttempt, "it waits for the slot, not for a time")
	require.Empty(t, r.State().Error, "nothing is wrong")
	require.Empty(t, r.Failures())
	held = false
	close(free)
	r.waitPhase(relay.Streaming)
	r.stop()
	require.NoError(t, r.end())
}

func TestRelay_StandbyStopsAtOnce(t *testing.T) {
	x := newSetup(t)
	asked := make(chan struct{}, 100)
	x.parts.Server.AwaitSlot = func(ctx context.Context) error {
		asked <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	x.parts.Server.Prepare = func(context.Context, bool) error { return replication.ErrSlotInUse }
	r := x.run()
	<-asked
	r.stop()
	require.NoError(t, r.end())
	require.Empty(t, asked)
}

// What keeps it from looking is found by the next session, not by looking harder.
func TestRelay_StandbyTriesAgainWhenItCannotLook(t *testing.T) {
	x := newSetup(t)
	x.parts.Server.AwaitSlot = func(context.Context) error { return errors.New("connection lost") }
	attempts := make(chan struct{}, 100)
	x.parts.Server.Prepare = func(context.Context, bool) error {
		attempts <- struct{}{}
		return replication.ErrSlotInUse
	}
	r := x.run()
	<-attempts
	<-attempts
	require.NotZero(t, r.State().Since)
	r.stop()
	require.NoError(t, r.end())
}
