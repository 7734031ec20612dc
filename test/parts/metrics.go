package parts

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// Metrics are the samples of a page of metrics.
type Metrics model.Vector

// ParseMetrics reads the page, in Prometheus' text format.
func ParseMetrics(t testing.TB, page []byte) Metrics {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	require.NoError(t, err)
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{},
		slices.Collect(maps.Values(families))...)
	require.NoError(t, err)
	return Metrics(samples)
}

// Sum adds the samples of a name that have all of these labels, given as names and values in turn.
// It reports whether there are any.
func (m Metrics) Sum(name string, labels ...string) (sum float64, found bool) {
	wanted := model.LabelSet{model.MetricNameLabel: model.LabelValue(name)}
	for pair := range slices.Chunk(labels, 2) {
		wanted[model.LabelName(pair[0])] = model.LabelValue(pair[1])
	}
samples:
	for _, sample := range m {
		for label, value := range wanted {
			if sample.Metric[label] != value {
				continue samples
			}
		}
		sum, found = sum+float64(sample.Value), true
	}
	return sum, found
}

// Value is that of Sum; 0: there are none.
func (m Metrics) Value(name string, labels ...string) float64 {
	sum, _ := m.Sum(name, labels...)
	return sum
}
