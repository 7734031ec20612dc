package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/sink"
)

// heartbeat publishes heartbeat records through a sink of its own: no position waits for them, and
// a topic that is missing or not permitted ends no session.
type heartbeat struct {
	Broker
	sink   sink.Sink // nil: to be opened
	result chan error
}

// keepHeartbeat publishes a record per interval while a session is open, until ctx or stop ends.
func (r *Relay) keepHeartbeat(ctx, stop context.Context) {
	ctx, cancel := either(ctx, stop)
	defer cancel()
	h := heartbeat{Broker: r.parts.Broker}
	defer func() { h.close(sinkCloseTimeoutKilled) }()
	tick := time.NewTicker(r.cfg.HeartbeatInterval)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if phase := r.State().Phase; phase != Streaming && phase != Snapshotting {
			continue
		}
		err := h.beat(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failing:
			r.parts.Log.Info().Msg("heartbeats are published again")
		case err != nil && !failing:
			_, _, next := r.parts.Explain(err, r.State())
			r.parts.Log.Warn().Err(err).Str("next", next).
				Msg("heartbeat not published; it is tried again at the next interval, and rows are not " +
					"affected")
		}
		failing = err != nil
	}
}

// beat publishes one record and waits for its acknowledgement. After an error the sink is closed.
func (h *heartbeat) beat(ctx context.Context) error {
	m, err := h.Heartbeat(time.Now())
	if err != nil {
		return err
	}
	if h.sink == nil {
		result := make(chan error, 1)
		opened, err := h.OpenSink(ctx, func(_ *sink.Message, err error) { result <- err })
		if err != nil {
			return err
		}
		h.sink, h.result = opened, result
	}
	if err = h.sink.Publish(ctx, []*sink.Message{m}); err == nil {
		select {
		case err = <-h.result:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		h.close(sinkCloseTimeout)
	}
	return err
}

func (h *heartbeat) close(timeout time.Duration) {
	if h.sink == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = h.sink.Close(ctx) // another heartbeat follows a lost one
	h.sink = nil
}
