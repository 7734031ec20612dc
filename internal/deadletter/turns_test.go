package deadletter

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/sink"
)

// failing is a Store that fails at once, but for the first time.
type failing struct {
	Store
	reads []time.Time
}

func (f *failing) Read(context.Context, time.Duration, func(*sink.Message, int64)) error {
	f.reads = append(f.reads, time.Now())
	if len(f.reads) == 1 {
		return nil
	}
	return errors.New("refused")
}

func (f *failing) Limit() int { return 1000 }

func (f *failing) Close() {}

func TestTurns_ATrackerWhoseTopicCannotBeReadDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := &failing{}, bytes.Buffer{}
		k, err := Open(t.Context(), Options{Topic: "letters", Store: store, Metrics: metrics.New(prometheus.NewRegistry(), "s"), Log: zerolog.New(&log)})
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		k.Close()
		require.InDelta(t, float64(10*time.Minute/pollPause), float64(len(store.reads)), 3)
		require.Equal(t, 1, strings.Count(log.String(), "dead-letter topic not read"), "logged once")
	})
}
