package connect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PostgreSQL stores 1 with 16,383 zeros behind the point in a few bytes, and sends them as text.
func TestNumeric_DropsZerosOfTheFractionAtOnce(t *testing.T) {
	c := numericCodec(&Type{Name: "numeric", Mod: -1}, &Handling{DecimalHandling: "precise"})
	for text, want := range map[string][]any{
		"1." + strings.Repeat("0", 16383):   {int64(0), ByteArray{1}},
		"-1.50" + strings.Repeat("0", 1000): {int64(1), ByteArray{0xF1}},
		"100":                               {int64(0), ByteArray{100}},
		"0.00":                              {int64(0), ByteArray{0}},
		"10.0":                              {int64(0), ByteArray{10}},
	} {
		read := func() any {
			v, err := c.Read([]byte(text))
			require.NoError(t, err)
			return v
		}
		require.Equal(t, want, read().(*Structure).Values)
		require.Less(t, testing.AllocsPerRun(10, func() { read() }), 50.0, "not one for each zero")
	}
}
