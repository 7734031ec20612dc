package connect

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJavaDouble_PrintsAsJavaDoes(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", 100: "100.0", 9999999: "9999999.0", 1e7: "1.0E7", 0.001: "0.001", 0.0001: "1.0E-4", 1e23: "9.999999999999999E22",
		4.9e-324: "4.9E-324", 1.7976931348623157e308: "1.7976931348623157E308", 9007199254740993: "9.007199254740992E15", -1.5: "-1.5",
		math.Inf(-1): "-Infinity", 2e-3: "0.002", 1.0e21: "1.0E21", 123456789.123: "1.23456789123E8",
	} {
		require.Equal(t, want, string(appendJavaDouble(nil, v)))
	}
	require.Equal(t, "1.17549435E-38", string(appendJavaFloat(nil, 1.17549435e-38)))
	require.Equal(t, "1.1", string(appendJavaFloat(nil, 1.1)))
}

func TestJavaDouble_ReadsBackAsTheSameNumber(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		v := math.Float64frombits(random.Uint64())
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		got, err := strconv.ParseFloat(string(appendJavaDouble(nil, v)), 64)
		require.NoError(t, err)
		require.Equal(t, v, got)
		f := math.Float32frombits(random.Uint32())
		if f != f || math.IsInf(float64(f), 0) {
			continue
		}
		got, err = strconv.ParseFloat(string(appendJavaFloat(nil, f)), 32)
		require.NoError(t, err)
		require.Equal(t, f, float32(got))
	}
}
