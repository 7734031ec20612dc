package connect

import (
	"bytes"
	"fmt"
	"math/big"
	"strconv"
)

// Decimal is unscaled * 10^-scale, as Java's BigDecimal.
type Decimal struct {
	Unscaled *big.Int
	Scale    int
}

var ten = big.NewInt(10)

func powerOfTen(n int) *big.Int { return new(big.Int).Exp(ten, big.NewInt(int64(n)), nil) }

// parseDecimal reads PostgreSQL's text of a numeric: digits with an optional point, never an
// exponent.
func parseDecimal(b []byte) (Decimal, error) {
	whole, fraction, _ := bytes.Cut(b, []byte{'.'})
	digits := string(whole) + string(fraction)
	v, ok := new(big.Int).SetString(digits, 10)
	if !ok || digits[0] == '+' || bytes.ContainsAny(fraction, "+-") {
		return Decimal{}, fmt.Errorf("%q is no decimal number", b)
	}
	return Decimal{v, len(fraction)}, nil
}

// withScale adds zeros until there are that many digits behind the point.
func (d Decimal) withScale(scale int) Decimal {
	if scale <= d.Scale {
		return d
	}
	pow := powerOfTen(scale - d.Scale)
	return Decimal{pow.Mul(pow, d.Unscaled), scale}
}

// rounded has exactly that many digits behind the point; a half is rounded away from zero.
func (d Decimal) rounded(scale int) Decimal {
	if scale >= d.Scale {
		return d.withScale(scale)
	}
	pow := powerOfTen(d.Scale - scale)
	q, rest := new(big.Int).QuoRem(d.Unscaled, pow, new(big.Int))
	if rest.Abs(rest).Lsh(rest, 1).Cmp(pow) >= 0 {
		q.Add(q, big.NewInt(int64(d.Unscaled.Sign())))
	}
	return Decimal{q, scale}
}

// withoutTrailingZeros drops zeros at the end of the fraction of a number's text. To divide the
// number once for each took a second for the 16,383 that PostgreSQL stores in a few bytes.
func withoutTrailingZeros(text []byte) []byte {
	if bytes.IndexByte(text, '.') < 0 {
		return text
	}
	return bytes.TrimSuffix(bytes.TrimRight(text, "0"), []byte{'.'})
}

// TwosComplement is the shortest big-endian form, as BigInteger.toByteArray.
func (d Decimal) TwosComplement() []byte {
	v, bits := d.Unscaled, d.Unscaled.BitLen()
	if v.Sign() < 0 {
		bits = new(big.Int).Not(v).BitLen()
	}
	out := make([]byte, bits/8+1)
	if v.Sign() < 0 {
		v = new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(out))))
	}
	return v.FillBytes(out)
}

// appendText appends what BigDecimal.toString gives: plain, unless the number is smaller than a
// millionth.
func (d Decimal) appendText(dst []byte) []byte {
	digits := new(big.Int).Abs(d.Unscaled).String()
	if d.Unscaled.Sign() < 0 {
		dst = append(dst, '-')
	}
	point := len(digits) - d.Scale
	switch {
	case d.Scale == 0:
		return append(dst, digits...)
	case point > 0:
		dst = append(append(dst, digits[:point]...), '.')
		return append(dst, digits[point:]...)
	case point > -6:
		dst = append(append(dst, "0."...), "00000"[:-point]...)
		return append(dst, digits...)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	return strconv.AppendInt(append(dst, 'E'), int64(point-1), 10)
}

// numericScale is the scale of a numeric(p,s), by its type modifier. PostgreSQL keeps it in eleven
// bits; Debezium reads a negative one without its sign.
func numericScale(mod int32) int { return int(mod-4) & 0x7FF }
