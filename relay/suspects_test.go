package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/sink"
)

func refusedRow(relation string, of sink.Origin) *sink.Message {
	of.Relation = relation
	return &sink.Message{Topic: "orders", Origin: of}
}

// With the policy skip it would be lost.
func TestSuspects_DoNotConvictTheRowBehindAMessageOutsideOfATransaction(t *testing.T) {
	s := suspects{retries: 1}
	at := sink.Origin{LSN: 700}
	require.ErrorIs(t, s.refusedAlone(refusedRow("message:orders", at), sink.ErrTooLarge), errSuspected)
	require.True(t, s.convicts(refusedRow("message:orders", at)))
	require.False(t, s.convicts(refusedRow("public.outbox", at)))
	require.Nil(t, s.of(refusedRow("public.outbox", at)))
}

func TestSuspects_AreForgottenWhenTheyDoNotComeAgain(t *testing.T) {
	s := suspects{retries: 1}
	old, next := refusedRow("public.outbox", sink.Origin{LSN: 700}), refusedRow("public.outbox", sink.Origin{LSN: 800})
	_ = s.refusedAlone(old, sink.ErrTooLarge)
	_ = s.refusedAlone(next, sink.ErrTooLarge)
	s.forget(800)
	require.False(t, s.convicts(old))
	require.True(t, s.convicts(next))
	require.True(t, s.any())
	s.forget(801)
	require.False(t, s.any())
}
