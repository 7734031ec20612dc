package soak

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// blocks is how many medians the slope of a quantity is judged by.
const blocks = 20

// tLimit is Student's t of a two-sided test at 1 %, with blocks-2 degrees of freedom.
const tLimit = 2.878

// point is a quantity at a time.
type point struct {
	at    time.Time
	value float64
}

// slope is how a quantity has developed, by least squares over medians of blocks of equal length.
type slope struct {
	medians []float64 // of the blocks
	perHour float64
	t       float64 // the slope, by its standard error
}

// grows reports whether the quantity has grown by more than chance explains.
func (s slope) grows() bool { return s.t > tLimit }

// newSlope leaves out the first tenth of the points, in which a process warms up. The rest has to
// be at least one point for each block; ok reports whether it is.
func newSlope(points []point) (s slope, ok bool) {
	points = points[len(points)/10:]
	if len(points) < blocks {
		return slope{}, false
	}
	hours, medians := make([]float64, blocks), make([]float64, blocks)
	for i := range blocks {
		block := points[i*len(points)/blocks : (i+1)*len(points)/blocks]
		hours[i] = block[len(block)/2].at.Sub(points[0].at).Hours()
		medians[i] = median(block)
	}
	s.medians = medians
	meanHour, meanValue := mean(hours), mean(medians)
	var squares, products float64
	for i := range blocks {
		squares += (hours[i] - meanHour) * (hours[i] - meanHour)
		products += (hours[i] - meanHour) * (medians[i] - meanValue)
	}
	s.perHour = products / squares
	var residuals float64
	for i := range blocks {
		off := medians[i] - meanValue - s.perHour*(hours[i]-meanHour)
		residuals += off * off
	}
	deviation := math.Sqrt(residuals / (blocks - 2) / squares)
	switch {
	case s.perHour == 0:
		s.t = 0
	case deviation == 0:
		s.t = math.Copysign(math.Inf(1), s.perHour)
	default:
		s.t = s.perHour / deviation
	}
	return s, true
}

func median(points []point) float64 {
	values := make([]float64, len(points))
	for i, p := range points {
		values[i] = p.value
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// points has one a second, for an hour.
func points(value func(hours float64) float64) (all []point) {
	began := time.Now()
	for second := range 3600 {
		hours := float64(second) / 3600
		all = append(all, point{began.Add(time.Duration(second) * time.Second), value(hours)})
	}
	return all
}

func TestSlope_IsNotFoundInNoise(t *testing.T) {
	t.Parallel()
	const runs = 500
	r, found := rand.New(rand.NewPCG(1, 2)), 0
	for range runs {
		few := points(func(float64) float64 { return 0 })[:400]
		for i := range few {
			few[i].value = 50 + 3*r.NormFloat64()
		}
		if s, ok := newSlope(few); ok && s.grows() {
			found++
		}
	}
	// Growth is one of the two sides of 1 %: 2.5 of 500, give or take 1.6.
	require.Less(t, found, 9, "of %d", runs)
}

func TestSlope_IsFoundInALeak(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for name, value := range map[string]func(hours float64) float64{
		"a MiB each minute below noise": func(h float64) float64 {
			return 50 + 60*h + 20*r.NormFloat64()
		},
		"one connection at the end of each quarter": func(h float64) float64 { return math.Floor(4 * h) },
		"no noise at all": func(h float64) float64 { return h },
	} {
		s, ok := newSlope(points(value))
		require.True(t, ok)
		require.True(t, s.grows(), "%s: %+v", name, s)
	}
}

func TestSlope_IsNotFoundWhereNothingGrows(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]func(hours float64) float64{
		"constant":                func(float64) float64 { return 4 },
		"falls":                   func(h float64) float64 { return -h },
		"grows while it warms up": func(h float64) float64 { return math.Min(h, 0.1) },
		"a day":                   func(h float64) float64 { return math.Sin(2 * math.Pi * h * days) },
	} {
		s, ok := newSlope(points(value))
		require.True(t, ok)
		require.False(t, s.grows(), "%s: %+v", name, s)
	}
	_, ok := newSlope(nil)
	require.False(t, ok)
}
