package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

type everythingIsThere struct{ sink.Sink }

func (everythingIsThere) Published(context.Context, sink.Source, *sink.Message) (bool, error) {
	return true, nil
}

type noHandler struct{ deadletter.Handler }

// Dead letters do not come in the order of positions, which is what dedup goes by.
func TestSession_LeavesDeadLettersToTheirHandler(t *testing.T) {
	s := &session{dedup: everythingIsThere{}, deadLetters: noHandler{}, policies: deadletter.DefaultConfig()}
	there, err := s.alreadyPublished(t.Context(), &replication.Event{XID: 7}, &sink.Message{Topic: s.policies.Topic})
	require.NoError(t, err)
	require.False(t, there)
}

// redriving is a dead-letter handler that has the row with an index wait once.
type redriving struct {
	deadletter.Handler
	index uint32
	asked int
	wait  func()
}

func (d *redriving) Follow(_ *replication.Event, m *sink.Message) (*sink.Message, error) {
	if m.Origin.Index != d.index {
		return nil, nil
	}
	if d.asked++; d.asked == 1 {
		return nil, deadletter.ErrHold
	}
	return nil, nil
}

func (d *redriving) Wait(context.Context, *sink.Message) error {
	d.wait()
	return nil
}

// Whoever redrives a key waits for the letters that the relay has of it, which are in front of the row that waits for him.
func TestSession_HandsOverWhatStandsBeforeARowThatWaits(t *testing.T) {
	s, b := pumping(t, false, 3)
	s.policies = deadletter.DefaultConfig()
	c := &counting{s: s}
	s.sink = c
	waited := false
	s.deadLetters = &redriving{index: 2, wait: func() {
		waited = true
		require.Equal(t, []handover{{[]uint32{0, 1}, 2, false}}, c.calls)
		require.Zero(t, s.window.unacknowledged())
	}}
	require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:5]})) // one transaction
	c.acks.Wait()
	require.True(t, waited)
	require.Len(t, c.calls, 2)
}

// A letter that only points at a row is small. The row stays in memory until the broker has acknowledged it.
func TestSession_ASmallLetterHoldsTheMemoryOfItsRow(t *testing.T) {
	s := &session{window: newWindow(1, upTo(10, 1<<20))}
	s.window.begin(time.Now())
	row := &sink.Message{Topic: "orders", Origin: sink.Origin{HeldBytes: 5000}}
	require.True(t, s.window.tryAdd(row.Origin.HeldBytes))
	before := s.window.bytes
	ms := []*sink.Message{row}
	s.replaceMessage(ms, 0, &sink.Message{Topic: "letters", Value: []byte("of orders")})
	require.Equal(t, 5000, ms[0].Origin.HeldBytes)
	require.Equal(t, before, s.window.bytes)
	s.replaceMessage(ms, 0, &sink.Message{Topic: "letters", Value: make([]byte, 6000)})
	require.Equal(t, ms[0].Size(), ms[0].Origin.HeldBytes)
	require.Equal(t, before+int64(ms[0].Size()-5000), s.window.bytes)
}

// nowhere is a dead-letter handler that parked the key of the row with an index after it was routed, and has no room for its dead letter.
type nowhere struct {
	deadletter.Handler
	index uint32
}

var errNoRoom = errors.New("too large for the dead-letter topic")

func (n nowhere) Follow(routed *replication.Event, m *sink.Message) (*sink.Message, error) {
	if routed == nil && m.Origin.Index == n.index {
		return nil, errNoRoom
	}
	return nil, nil
}

// What is before a row that ends the session is published, the row is not: it may not overtake those of its key.
func TestSession_PublishesWhatIsBeforeTheRowThatEndsIt(t *testing.T) {
	s, b := pumping(t, false, 3)
	c := &counting{s: s}
	s.sink, s.candidates, s.policies, s.deadLetters = c, &candidates{}, deadletter.DefaultConfig(), nowhere{index: 2}
	err := s.handleBatch(t.Context(), b)
	require.ErrorIs(t, err, errNoRoom)
	require.ErrorContains(t, err, "index 2", "it names the row")
	c.acks.Wait()
	require.Len(t, c.calls, 1)
	require.Equal(t, []uint32{0, 1}, c.calls[0].rows)
	messages, _, _ := s.window.inFlight()
	require.Equal(t, 1, messages)
	require.Equal(t, 1, s.abandoned, "the drain does not wait for it")
}

// Each row of a new subject can take seconds at a schema registry: a stop that has run out of time waits for one.
func TestSession_RoutesNoFurtherRowsOnceItHasEnded(t *testing.T) {
	s, b := pumping(t, false, 3)
	c := &counting{s: s}
	s.sink = c
	ctx, end := context.WithCancelCause(t.Context())
	end(ErrDrainTimeout)
	require.ErrorIs(t, s.handleBatch(ctx, b), ErrDrainTimeout)
	require.Zero(t, testutil.ToFloat64(s.metrics.EventsRouted))
	require.Empty(t, c.calls)
}

// ending is a dead-letter handler that ends the session at the row with an index.
type ending struct {
	deadletter.Handler
	index uint32
	end   func()
}

func (e ending) Follow(_ *replication.Event, m *sink.Message) (*sink.Message, error) {
	if m.Origin.Index == e.index {
		e.end()
	}
	return nil, nil
}

func TestSession_TheDrainDoesNotWaitForWhatWasNotHandedOver(t *testing.T) {
	s, b := pumping(t, false, 3)
	c := &counting{s: s}
	ctx, end := context.WithCancelCause(t.Context())
	s.sink, s.candidates, s.policies = c, &candidates{}, deadletter.DefaultConfig()
	s.deadLetters = ending{index: 1, end: func() { end(replication.ErrSlotLost) }}
	require.ErrorIs(t, s.handleBatch(ctx, b), replication.ErrSlotLost)
	require.Empty(t, c.calls)
	messages, _, _ := s.window.inFlight()
	require.Equal(t, 2, messages)
	require.Equal(t, messages, s.abandoned)
}

// parking is a dead-letter handler that wants the letter of a row made when nothing before it is on its way.
type parking struct {
	deadletter.Handler
	t     *testing.T
	s     *session
	rest  int // messages behind the row, which are not handed over
	asked int
}

func (p *parking) Follow(*replication.Event, *sink.Message) (*sink.Message, error) { return nil, nil }

func (p *parking) DeadLetter(deadletter.Poison) (*sink.Message, error) {
	p.asked++
	require.Equal(p.t, p.rest, p.s.window.unacknowledged())
	return nil, deadletter.ErrKept
}

// answering acknowledges a second later, and refuses the row with an index.
type answering struct {
	slow
	s       *session
	refused uint32
}

func (a *answering) Publish(_ context.Context, ms []*sink.Message) error {
	taken, err := ms, error(nil)
	if i := slices.IndexFunc(ms, func(m *sink.Message) bool { return m.Origin.Index == a.refused }); i >= 0 {
		taken, err = ms[:i], &sink.MessageError{Topic: ms[i].Topic, Origin: ms[i].Origin, Untaken: true, Err: sink.ErrTooLarge}
	}
	taken = slices.Clone(taken)
	time.AfterFunc(time.Second, func() {
		for _, m := range taken {
			a.s.delivered(m, nil)
		}
	})
	return err
}

// A redrive publishes the letter's row: it would overtake rows of its key that the broker has not acknowledged, and that a kill takes back.
func TestSession_ParksAKeyWhenEarlierRowsAreAcknowledged(t *testing.T) {
	parked := func(t *testing.T, rest int) (*session, *replication.Batch, *parking) {
		s, b := pumping(t, false, 3)
		s.policies = deadletter.DefaultConfig()
		s.policies.TooLarge, s.policies.Malformed = deadletter.DeadLetterKey, deadletter.DeadLetterKey
		s.limiter = nil
		p := &parking{t: t, s: s, rest: rest}
		s.deadLetters = p
		return s, b, p
	}
	t.Run("not routable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, b, p := parked(t, 0)
			s.sink = &answering{s: s, refused: 9}
			require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:3]}))
			require.Equal(t, 2, s.window.unacknowledged())
			require.NoError(t, s.handlePoison(t.Context(), deadletter.Poison{Event: &b.Events[3], Err: &router.RowError{Reason: router.ReasonInvalidMessage}}))
			require.Equal(t, 1, p.asked)
		})
	})
	t.Run("refused by the sink", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, b, p := parked(t, 2) // itself, and the row behind it
			s.sink = &answering{s: s, refused: 1}
			require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:5]}))
			require.Equal(t, 1, p.asked)
			require.NoError(t, s.settle(t.Context()))
		})
	})
}

// boundaries is a sink with transactions that commits two seconds after it has got a boundary.
type boundaries struct {
	sink.Transactional
	s   *session
	err error // of the commits
}

func (b *boundaries) Boundary(p sink.Position) {
	time.AfterFunc(2*time.Second, func() { b.s.committed(p.LSN, b.err) })
}

// What the broker has written, and not committed, is gone when the slot is moved past the row at which the relay halts.
func TestSession_HaltsWhenWhatIsBeforeIsCommitted(t *testing.T) {
	halting := func(t *testing.T, commits error) (*session, error) {
		s, b := pumping(t, false, 3)
		ctx, end := context.WithCancelCause(t.Context())
		s.fail, s.cfg.DrainTimeout = end, 0 // it bounds a stop, not a halt
		s.sink, s.transactional = &answering{s: s, refused: 9}, &boundaries{s: s, err: commits}
		require.NoError(t, s.handleBatch(ctx, &replication.Batch{Events: b.Events[:5]})) // one transaction
		return s, s.failAt(ctx, replication.ErrUndecodable)
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := halting(t, nil)
		require.ErrorIs(t, err, replication.ErrUndecodable)
		messages, _, _ := s.window.inFlight()
		require.Zero(t, messages)
		require.Greater(t, s.window.ackedLSN(), pglogrepl.LSN(1))
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := halting(t, sink.ErrUnreachable)
		require.ErrorIs(t, err, sink.ErrUnreachable, "it is retried")
	})
}

// A server that has ended the stream with an error does not know the connection any more. That does not end the session while it publishes what comes
// before, when the stream may have to read the error yet, or has returned.
func TestRelay_PublishesWhatIsBeforeTheEndOfAStreamThatTheServerHasForgotten(t *testing.T) {
	var failed []error
	began := time.Now()
	r := &Relay{session: &session{router: new(router.Router), stream: new(replication.Stream)}, fail: func(err error) { failed = append(failed, err) }, failFrom: began, openFrom: began}
	require.Zero(t, r.session.stream.WaitingSince())
	r.problem(fmt.Errorf("no walsender: %w", postgres.ErrStaleConnection), began.Add(time.Second))
	require.Empty(t, failed)
	r.problem(replication.ErrPublicationMissing, began.Add(time.Second))
	require.Equal(t, []error{replication.ErrPublicationMissing}, failed, "whatever else ends it")
}
