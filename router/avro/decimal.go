package avro

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"

	hamba "github.com/hamba/avro/v2"

	"github.com/postrider/postrider/router/connect"
)

// decimal is a number with the scale of the schema. Digits that it has no place for are an error.
func (f *fitter) decimal(a hamba.Schema, t *hamba.DecimalLogicalSchema, v any) (connect.Decimal,
	error) {
	d, ok := decimalOf(v)
	if !ok {
		return d, unfit(a, v)
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(t.Scale()-d.Scale,
		d.Scale-t.Scale()))), nil)
	scaled, rest := new(big.Int), new(big.Int)
	if d.Scale <= t.Scale() {
		scaled.Mul(d.Unscaled, power)
	} else {
		scaled.QuoRem(d.Unscaled, power, rest)
	}
	digits := len(new(big.Int).Abs(scaled).String())
	if rest.Sign() != 0 || digits > t.Precision() {
		return d, connect.Unwritable("", "a decimal that does not fit in %d digits with %d of them "+
			"behind the point", t.Precision(), t.Scale())
	}
	return connect.Decimal{Unscaled: scaled, Scale: t.Scale()}, nil
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
