package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
)

// pause requests a pause without a limit.
func (r *running) pause() relay.Pause {
	r.x.t.Helper()
	p, err := r.Pause("", time.Time{})
	require.NoError(r.x.t, err)
	return p
}

// paused requests a pause and waits until nobody streams from the slot.
func (r *running) paused() {
	r.x.t.Helper()
	r.pause()
	r.waitPhase(relay.Paused)
	require.Eventually(r.x.t, func() bool { return !r.x.held() }, patience, time.Millisecond)
}

// held reports whether somebody streams from the slot.
func (x *setup) held() (active bool) {
	x.t.Helper()
	require.NoError(x.t, x.conn.QueryRow(x.ctx, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, x.slot).Scan(&active))
	return active
}

func TestPause_DrainsConfirmsAndRepeatsNothing(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	written := x.insert(1, 50)
	end := x.current()
	require.NoError(t, x.broker.WaitPublished(x.ctx, 50))
	before := time.Now()
	until := before.Add(time.Hour)
	asked, err := r.Pause("maintenance of the broker", until)
	require.NoError(t, err)
	r.waitPhase(relay.Draining)
	require.True(t, x.held())
	require.Less(t, x.confirmed(), end, "nothing is acknowledged yet")
	require.Equal(t, asked, r.State().Paused, "what it will be")

	x.broker.Release(-1)
	r.waitPhase(relay.Paused)
	require.Eventually(t, func() bool { return !x.held() }, patience, time.Millisecond)
	require.Greater(t, x.confirmed(), written)
	st := r.State()
	require.Equal(t, "maintenance of the broker", st.Paused.Reason)
	require.Equal(t, until, st.Paused.Until)
	require.WithinRange(t, st.Paused.Since, before, time.Now())
	require.False(t, st.Ready())
	require.Empty(t, st.Error)
	require.InDelta(t, 1, testutil.ToFloat64(x.parts.Metrics.Paused), 0)

	x.insert(51, 60)
	require.True(t, r.Resume())
	require.NoError(t, x.broker.WaitFor(x.ctx, 60))
	require.Zero(t, r.State().Paused)
	require.InDelta(t, 0, testutil.ToFloat64(x.parts.Metrics.Paused), 0)
	require.False(t, r.Resume(), "it is not paused any more")
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, 60), x.payloads())
	require.Equal(t, 2, x.broker.Sessions())
}

func TestPause_AgainAndAgainUnderLoad(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	writer := *x // a connection of its own: the test reads the slot meanwhile
	writer.conn = x.db.Connect(t)
	const transactions, rows, pauses = 600, 5, 25
	written := make(chan error, 1)
	go func() { // ends by itself or with the test's context, waited for below
		for n := range transactions {
			_, err := writer.conn.Exec(x.ctx, `INSERT INTO outbox SELECT n, 'Order', 'key', 'event ' || n FROM generate_series($1::int, $2::int) n`,
				n*rows+1, n*rows+rows)
			if err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for range pauses {
		r.paused()
		require.True(t, r.Resume())
		// Not only what opens and closes: rows leave in between.
		published := x.broker.Published()
		require.Eventually(t, func() bool {
			return r.State().Phase == relay.Streaming && (x.broker.Published() > published || published == transactions*rows)
		}, patience, time.Millisecond)
	}
	require.NoError(t, <-written)
	require.NoError(t, x.broker.WaitFor(x.ctx, transactions*rows))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, transactions*rows), x.payloads(), "each once, in order")
}

func TestPause_ReadsAnOpenTransactionToItsCommit(t *testing.T) {
	x := newSetup(t)
	x.cfg.InFlightMessages = 100
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	written := x.insert(1, 5000)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 100))
	r.pause()
	r.waitPhase(relay.Draining)
	x.broker.Release(-1)
	r.waitPhase(relay.Paused)
	require.Equal(t, events(1, 5000), x.payloads())
	require.Greater(t, x.confirmed(), written)
	r.stop()
	require.NoError(t, r.end())
}

func TestPause_EndsWhenItsTimeIsOver(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	_, err := r.Pause("", time.Now().Add(50*time.Millisecond))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.State().Sessions == 2 }, patience, time.Millisecond, "another session, requested by nobody")
	require.Zero(t, r.State().Paused)
	r.stop()
	require.NoError(t, r.end())
}

func TestPause_TakesANewTimeAndReason(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	first, err := r.Pause("first", time.Now().Add(time.Hour))
	require.NoError(t, err)
	r.waitPhase(relay.Paused)
	second, err := r.Pause("second", time.Time{})
	require.NoError(t, err)
	require.Equal(t, relay.Pause{Since: first.Since, Reason: "second"}, second)
	require.Equal(t, second, r.State().Paused)
	_, err = r.Pause("third", time.Now().Add(50*time.Millisecond))
	require.NoError(t, err)
	r.waitPhase(relay.Streaming)
	r.stop()
	require.NoError(t, r.end())
}

func TestPause_EndsABackOffAndResumesAtOnce(t *testing.T) {
	x := newSetup(t)
	x.cfg.BackoffMin, x.cfg.BackoffMax = time.Hour, time.Hour
	attempts := make(chan struct{}, 10)
	fails := errors.New("not yet")
	x.parts.Server.Prepare = func(context.Context, bool) error { attempts <- struct{}{}; return fails }
	r := x.run()
	<-attempts
	r.waitPhase(relay.BackingOff)
	r.pause()
	r.waitPhase(relay.Paused)
	require.Empty(t, r.State().Error)
	require.Zero(t, r.State().NextAttempt)
	require.True(t, r.Resume())
	<-attempts // without waiting for the rest of the hour
	r.stop()
	require.NoError(t, r.end())
}

func TestPause_ADatabaseThatHangsDoesNotDelayIt(t *testing.T) {
	x := newSetup(t)
	opening := make(chan struct{})
	x.parts.Server.Prepare = func(ctx context.Context, _ bool) error { close(opening); <-ctx.Done(); return ctx.Err() }
	r := x.run()
	<-opening
	r.pause()
	r.waitPhase(relay.Paused)
	r.stop()
	require.NoError(t, r.end())
}

func TestPause_AStandbyDoesNotTakeOver(t *testing.T) {
	x := newSetup(t)
	leader := x.run()
	leader.waitPhase(relay.Streaming)
	standby := x.run()
	standby.waitPhase(relay.Standby)
	standby.pause()
	standby.waitPhase(relay.Paused)
	require.True(t, standby.State().Paused.StoodBy)
	leader.pause()
	leader.waitPhase(relay.Paused)
	require.False(t, leader.State().Paused.StoodBy)
	require.True(t, leader.Resume())
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	leader.stop()
	require.NoError(t, leader.end())
	x.insert(4, 6)
	require.Equal(t, relay.Paused, standby.State().Phase)
	require.Zero(t, standby.State().Sessions)
	require.True(t, standby.Resume())
	require.NoError(t, x.broker.WaitFor(x.ctx, 6))
	standby.stop()
	require.NoError(t, standby.end())
	require.Equal(t, events(1, 6), x.payloads())
}

func TestPause_BeforeTheFirstSession(t *testing.T) {
	x := newSetup(t)
	stopping, stop := context.WithCancel(t.Context())
	defer stop()
	r := relay.New(x.cfg, x.parts)
	_, err := r.Pause("", time.Time{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(x.ctx, stopping) }()
	require.Eventually(t, func() bool { return r.State().Phase == relay.Paused }, patience, time.Millisecond)
	require.Zero(t, x.broker.Sessions())
	stop()
	require.NoError(t, <-ended)
}

func TestPause_ASignalEndsIt(t *testing.T) {
	x := newSetup(t)
	for _, end := range []func(*running){func(r *running) { r.stop() }, func(r *running) { r.kill() }} {
		r := x.run()
		r.waitPhase(relay.Streaming)
		r.paused()
		end(r)
		require.NoError(t, r.end(), "there is nothing that could be lost")
		require.Equal(t, relay.Stopped, r.State().Phase)
		_, err := r.Pause("", time.Time{})
		require.ErrorIs(t, err, relay.ErrStopping)
	}
}

func TestPause_IsRefusedWhileTheRelayStops(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 3))
	r.stop()
	_, err := r.Pause("", time.Time{})
	require.ErrorIs(t, err, relay.ErrStopping)
	require.Zero(t, r.State().Paused)
	x.broker.Release(-1)
	require.NoError(t, r.end())
}

func TestPause_ADrainTimeoutDoesNotEndTheProcess(t *testing.T) {
	x := newSetup(t)
	x.cfg.DrainTimeout = 50 * time.Millisecond
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 3))
	r.paused()
	x.broker.Release(-1)
	require.True(t, r.Resume())
	require.Eventually(t, func() bool {
		got := x.payloads()
		return len(got) >= 3 && got[len(got)-1] == "event 3"
	}, patience, time.Millisecond, "published again, since nothing was confirmed")
	r.paused() // with which another drain, for which 50 ms may be too short on a busy machine, ends the process as little
	r.stop()
	require.NoError(t, r.end())
}

func TestPause_WhatHaltsTheRelayHaltsItStill(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 3))
	r.pause()
	r.waitPhase(relay.Draining)
	x.broker.FailNext(fmt.Errorf("produce: %w", sink.ErrInvalidTopic))
	x.broker.Release(-1)
	require.ErrorIs(t, r.end(), sink.ErrInvalidTopic)
	require.Equal(t, relay.Halted, r.State().Phase)
	_, err := r.Pause("", time.Time{})
	require.ErrorIs(t, err, relay.ErrStopping)
}

func TestPause_InterruptsASnapshotWhichGoesOn(t *testing.T) {
	x := newSetup(t)
	calls := make(chan int, 10)
	n := 0
	x.parts.Server.Snapshot = func(_, stop context.Context, report func(relay.Snapshot)) error {
		n++
		report(relay.Snapshot{Table: "public.outbox"})
		calls <- n
		if n == 1 {
			<-stop.Done()
		}
		return nil
	}
	r := x.run()
	require.Equal(t, 1, <-calls)
	r.waitPhase(relay.Snapshotting)
	r.pause()
	r.waitPhase(relay.Paused)
	require.Zero(t, x.broker.Sessions(), "the slot is not streamed")
	require.True(t, r.Resume())
	require.Equal(t, 2, <-calls)
	r.waitPhase(relay.Streaming)
	r.stop()
	require.NoError(t, r.end())
}

func TestPause_WatchGoesOn(t *testing.T) {
	x := newSetup(t)
	look := make(chan struct{})
	x.parts.Server.Watch = func(ctx context.Context, problem func(error, time.Time)) {
		for ctx.Err() == nil {
			select {
			case <-look:
				problem(errors.New("seen"), time.Now())
			case <-ctx.Done():
			}
		}
	}
	r := x.run()
	r.paused()
	for range 2 { // the second one is taken when the first one has been looked into
		look <- struct{}{}
	}
	require.Equal(t, relay.Paused, r.State().Phase, "what it sees ends no session, since there is none")
	r.stop()
	require.NoError(t, r.end())
}
