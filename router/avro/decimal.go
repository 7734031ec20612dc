package avro

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"

	"github.com/postrider/postrider/router/connect"
)

// decimal is the number behind a decimal of the schema's scale; in a fixed, the sign fills the
// rest. Digits that the schema has no place for are an error.
func (f *fitter) decimal(n *node, v any) ([]byte, error) {
	d, ok := decimalOf(v)
	if !ok {
		return nil, unfit(n, v)
	}
	shift := n.scale - d.Scale
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil)
	scaled, rest := new(big.Int), new(big.Int)
	if shift >= 0 {
		scaled.Mul(d.Unscaled, power)
	} else {
		scaled.QuoRem(d.Unscaled, power, rest)
	}
	if rest.Sign() != 0 || len(new(big.Int).Abs(scaled).String()) > n.precision {
		return nil, connect.Unwritable("", "a decimal that does not fit in %d digits with %d of them "+
			"behind the point", n.precision, n.scale)
	}
	b := connect.Decimal{Unscaled: scaled, Scale: n.scale}.TwosComplement()
	if n.kind == typeFixed && len(b) < n.size {
		fill := byte(0)
		if scaled.Sign() < 0 {
			fill = 0xFF
		}
		b = append(bytes.Repeat([]byte{fill}, n.size-len(b)), b...)
	}
	return b, nil
}

func decimalOf(v any) (connect.Decimal, bool) {
	switch v := v.(type) {
	case connect.Decimal:
		return v, true
	case int64:
		return connect.Decimal{Unscaled: big.NewInt(v)}, true
	case json.Number:
		return parseDecimal(string(v))
	case connect.Text:
		return parseDecimal(string(v))
	case *connect.Structure:
		if v.Schema.Name == "io.debezium.data.VariableScaleDecimal" && len(v.Values) == 2 {
			scale, isNumber := v.Values[0].(int64)
			unscaled, isBytes := v.Values[1].(connect.ByteArray)
			return connect.Decimal{Unscaled: fromTwosComplement(unscaled), Scale: int(scale)},
				isNumber && isBytes
		}
	}
	return connect.Decimal{}, false
}

// parseDecimal reads a number of JSON, of at most a thousand digits with the zeros of its
// exponent.
func parseDecimal(text string) (connect.Decimal, bool) {
	const most = 1000
	mantissa, exponent, hasExponent := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	shift := 0
	if hasExponent {
		var err error
		if shift, err = strconv.Atoi(exponent); err != nil || max(shift, -shift) > most {
			return connect.Decimal{}, false
		}
	}
	if len(mantissa) > most+2 || !json.Valid([]byte(text)) {
		return connect.Decimal{}, false
	}
	unscaled, ok := new(big.Int).SetString(whole+fraction, 10)
	return connect.Decimal{Unscaled: unscaled, Scale: len(fraction) - shift}, ok
}

func fromTwosComplement(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}
