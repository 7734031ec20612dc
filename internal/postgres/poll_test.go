package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPoll_EndsWithAYesAnErrorTheLimitOrTheContext(t *testing.T) {
	asked := 0
	after := func(n int, yes bool, err error) func() (bool, error) {
		asked = 0
		return func() (bool, error) {
			if asked++; asked < n {
				return false, nil
			}
			return yes, err
		}
	}
	yes, err := Poll(t.Context(), time.Millisecond, 0, after(3, true, nil))
	require.True(t, yes)
	require.NoError(t, err)
	require.Equal(t, 3, asked)

	failed := errors.New("no answer")
	_, err = Poll(t.Context(), time.Millisecond, 0, after(2, false, failed))
	require.ErrorIs(t, err, failed)
	require.Equal(t, 2, asked)

	yes, err = Poll(t.Context(), time.Millisecond, time.Nanosecond, after(1<<30, true, nil))
	require.False(t, yes)
	require.NoError(t, err, "the last answer, after the limit")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failed)
	_, err = Poll(ctx, time.Hour, 0, after(2, true, nil))
	require.ErrorIs(t, err, failed, "the cause")
	require.Equal(t, 1, asked)
}
