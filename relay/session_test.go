package relay

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/deadletter"
	"postrider/replication"
	"postrider/sink"
)

type everythingIsThere struct{ sink.Sink }

func (everythingIsThere) Published(context.Context, sink.Source, *sink.Message) (bool, error) {
	return true, nil
}

type noDesk struct{ deadletter.Desk }

// Letters do not come in the order of positions, which is what dedup goes by.
func TestSession_AsksTheDeskAloneAboutLetters(t *testing.T) {
	s := &session{dedup: everythingIsThere{}, desk: noDesk{}, policies: deadletter.DefaultConfig()}
	there, err := s.repeated(t.Context(), &replication.Event{XID: 7}, &sink.Message{Topic: s.policies.Topic})
	require.NoError(t, err)
	require.False(t, there)
}
