package relay

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

func refusedRow(relation string, of sink.Origin) *sink.Message {
	of.Relation = relation
	return &sink.Message{Topic: "orders", Origin: of}
}

// With the policy skip it would be lost.
func TestSuspects_DoNotConvictTheRowBehindAMessageOutsideOfATransaction(t *testing.T) {
	s := candidates{retries: 1}
	at := sink.Origin{LSN: 700}
	require.ErrorIs(t, s.note(refusedRow("message:orders", at), sink.ErrTooLarge, 1), errRefused)
	require.True(t, s.find(refusedRow("message:orders", at)).confirmed)
	require.False(t, s.find(refusedRow("public.outbox", at)).confirmed)
	known := s.find(refusedRow("public.outbox", at)).err != nil
	require.False(t, known)
}

func TestSuspects_AreForgottenWhenTheyDoNotComeAgain(t *testing.T) {
	s := candidates{retries: 1}
	old, next := refusedRow("public.outbox", sink.Origin{LSN: 700}), refusedRow("public.outbox", sink.Origin{LSN: 800})
	_ = s.note(old, sink.ErrTooLarge, 1)
	_ = s.note(next, sink.ErrTooLarge, 1)
	s.forget(800)
	require.False(t, s.find(old).confirmed)
	require.True(t, s.find(next).confirmed)
	require.True(t, s.any())
	s.forget(801)
	require.False(t, s.any())
}

// handover is one call of Publish.
type handover struct {
	rows     []uint32 // indexes in the transaction
	inFlight int
	alone    bool // a refusal would be that of one record by itself
}

// counting is a sink that acknowledges beside Publish, and takes note of what it is handed.
type counting struct {
	slow
	s     *session
	calls []handover
	acks  sync.WaitGroup
}

func (c *counting) Publish(_ context.Context, ms []*sink.Message) error {
	messages, _, _ := c.s.window.inFlight()
	call := handover{inFlight: messages, alone: c.s.candidates.probing.Load()}
	for _, m := range ms {
		call.rows = append(call.rows, m.Origin.Index)
	}
	c.calls = append(c.calls, call)
	mine := slices.Clone(ms)
	c.acks.Go(func() { // waited for by the test
		for _, m := range mine {
			c.s.delivered(m, nil)
		}
	})
	return nil
}

// A refusal is that of a record by itself only while nothing else is in flight, neither rows before it nor rows behind it. With a limit of the rate
// it is published while it is added.
func TestSuspects_AreTriedAlone(t *testing.T) {
	for name, limiter := range map[string]*ratelimit.Limiter{
		"at any rate": nil, "at a limited rate": ratelimit.New(ratelimit.Rate{Bytes: 1000}, nil, metrics.New(prometheus.NewRegistry(), "s")),
	} {
		t.Run(name, func(t *testing.T) {
			s, b := pumping(t, false, 3)
			s.candidates, s.limiter = &candidates{retries: 1}, limiter
			c := &counting{s: s}
			s.sink = c
			_ = s.candidates.note(&sink.Message{Topic: "outbox.event.order", Origin: sink.Origin{LSN: b.Events[0].LSN, Index: 1, Relation: "public.outbox"}},
				sink.ErrTooLarge, 0)
			require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:5]})) // one transaction
			c.acks.Wait()
			calls := slices.DeleteFunc(c.calls, func(h handover) bool { return len(h.rows) == 0 })
			require.Equal(t, []handover{{[]uint32{0}, 1, false}, {[]uint32{1}, 1, true}, {[]uint32{2}, 1, false}}, calls)
			require.False(t, s.candidates.any(), "it was taken")
		})
	}
}
