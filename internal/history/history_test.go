package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var begin = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

func TestHistory_MakesRatesOfTotals(t *testing.T) {
	var h History
	h.Add(Reading{At: begin, Published: 1_000, Failed: 3})
	require.Empty(t, h.Samples(), "one reading is no rate")
	lag := int64(77)
	h.Add(Reading{
		At: begin.Add(10 * time.Second), Published: 1_500, Failed: 4, LagBytes: &lag, InFlight: 5,
	})
	samples := h.Samples()
	require.Len(t, samples, 1)
	require.Equal(t, 50.0, samples[0].PublishedPerSecond)
	require.InDelta(t, 0.1, samples[0].FailedPerSecond, 1e-9)
	require.Equal(t, int64(77), *samples[0].LagBytes)
	require.Equal(t, 5, samples[0].InFlight)
	require.Nil(t, samples[0].LatencyP50)
}

func TestHistory_KeepsAnHour(t *testing.T) {
	var h History
	for i := range 3 * length {
		h.Add(Reading{At: begin.Add(time.Duration(i) * Interval), Published: float64(i)})
	}
	samples := h.Samples()
	require.Len(t, samples, length)
	require.Equal(t, time.Hour-Interval, samples[length-1].At.Sub(samples[0].At))
	require.Equal(t, begin.Add(time.Duration(3*length-1)*Interval), samples[length-1].At)
}

func TestQuantile_LooksAtTheTimeBetweenTwoReadingsOnly(t *testing.T) {
	bounds := []float64{1, 2, 4}
	before := Buckets{bounds, []uint64{100, 100, 100, 100}} // all below one second
	after := Buckets{bounds, []uint64{100, 110, 110, 110}}  // ten more between one and two
	require.InDelta(t, 1.5, *quantile(0.5, before, after), 1e-9)
	require.InDelta(t, 1.99, *quantile(0.99, before, after), 1e-9)
	require.Nil(t, quantile(0.5, after, after))
	require.Equal(t, 4.0, *quantile(0.5, after, Buckets{bounds, []uint64{100, 110, 110, 200}}),
		"beyond the last bound")
	require.InDelta(t, 0.5, *quantile(0.5, Buckets{}, before), 1e-9,
		"the first reading is since the start")
}
