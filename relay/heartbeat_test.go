package relay_test

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
)

const heartbeats = "heartbeats"

// withHeartbeat makes the relay publish heartbeats as often as it can.
func (x *setup) withHeartbeat() {
	x.cfg.HeartbeatInterval = time.Millisecond
	x.parts.Broker.Heartbeat = func(at time.Time) (*sink.Message, error) {
		return &sink.Message{Topic: heartbeats, Value: []byte(at.String())}, nil
	}
}

// received counts messages of rows and heartbeats.
func (x *setup) received() (rows, beats int) {
	for _, m := range x.broker.Messages() {
		if m.Topic == heartbeats {
			beats++
		} else {
			rows++
		}
	}
	return rows, beats
}

func TestHeartbeat_BelongsToNoPosition(t *testing.T) {
	x := newSetup(t)
	x.withHeartbeat()
	r := x.run()
	x.insert(1, 100)
	target := x.current()
	require.Eventually(t, func() bool {
		rows, beats := x.received()
		return rows == 100 && beats >= 3 && x.confirmed() >= target
	}, patience, time.Millisecond)
	state := r.State()
	require.EqualValues(t, 100, state.Published, "heartbeats are no published rows")
	require.Equal(t, 1, state.Sessions)
	r.stop()
	require.NoError(t, r.end())
}

func TestHeartbeat_WithoutATopicEndsNothing(t *testing.T) {
	x := newSetup(t)
	x.withHeartbeat()
	x.broker.Topics("outbox.event.Order")
	logged := make(chan string, 1)
	x.parts.Log = zerolog.New(nil).Hook(zerolog.HookFunc(func(_ *zerolog.Event, level zerolog.Level, message string) {
		if level == zerolog.WarnLevel {
			select {
			case logged <- message:
			default:
			}
		}
	}))
	r := x.run()
	select {
	case message := <-logged:
		require.Contains(t, message, "heartbeat not published")
	case <-x.ctx.Done():
		require.Fail(t, "nothing was logged")
	}
	x.insert(1, 10)
	require.NoError(t, x.broker.WaitFor(x.ctx, 10))
	x.broker.Topics("outbox.event.Order", heartbeats)
	require.NoError(t, x.broker.WaitFor(x.ctx, 12), "heartbeats come once there is a topic")
	require.Equal(t, 1, r.State().Sessions)
	r.stop()
	require.NoError(t, r.end())
}

func TestHeartbeat_DoesNotHoldUpAStop(t *testing.T) {
	x := newSetup(t)
	x.withHeartbeat()
	x.cfg.DrainTimeout = time.Hour
	x.broker.Hold()
	r := x.run()
	r.waitPhase(relay.Streaming)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 1), "a heartbeat that is not answered")
	r.stop()
	require.NoError(t, r.end())
}
