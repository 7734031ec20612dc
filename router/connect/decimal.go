package connect

import (
	"fmt"
	"math/big"
	"strconv"
)

// decimal is unscaled * 10^-scale, as Java's BigDecimal.
type decimal struct {
	unscaled *big.Int
	scale    int
}

// parseDecimal reads PostgreSQL's text of a numeric: digits with an optional point, never an
// exponent.
func parseDecimal(b []byte) (decimal, error) {
	digits := make([]byte, 0, len(b))
	scale, seen := 0, false
	for i, c := range b {
		switch {
		case c == '.' && !seen:
			seen = true
		case c >= '0' && c <= '9', c == '-' && i == 0:
			digits = append(digits, c)
			if seen {
				scale++
			}
		default:
			return decimal{}, fmt.Errorf("%q is no decimal number", b)
		}
	}
	v, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return decimal{}, fmt.Errorf("%q is no decimal number", b)
	}
	return decimal{v, scale}, nil
}

// withScale adds zeros until there are that many digits behind the point.
func (d decimal) withScale(scale int) decimal {
	if scale <= d.scale {
		return d
	}
	pow := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale-d.scale)), nil)
	return decimal{pow.Mul(pow, d.unscaled), scale}
}

// rounded has exactly that many digits behind the point; a half is rounded away from zero.
func (d decimal) rounded(scale int) decimal {
	if scale >= d.scale {
		return d.withScale(scale)
	}
	pow := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.scale-scale)), nil)
	q, rest := new(big.Int).QuoRem(d.unscaled, pow, new(big.Int))
	if rest.Abs(rest).Lsh(rest, 1).Cmp(pow) >= 0 {
		q.Add(q, big.NewInt(int64(d.unscaled.Sign())))
	}
	return decimal{q, scale}
}

// withoutTrailingZeros drops zeros at the end of the fraction.
func (d decimal) withoutTrailingZeros() decimal {
	ten, rest := big.NewInt(10), new(big.Int)
	for d.scale > 0 {
		q := new(big.Int)
		if q.QuoRem(d.unscaled, ten, rest); rest.Sign() != 0 {
			break
		}
		d = decimal{q, d.scale - 1}
	}
	return d
}

// twosComplement is the shortest big-endian form, as BigInteger.toByteArray.
func (d decimal) twosComplement() []byte {
	if d.unscaled.Sign() >= 0 {
		b := d.unscaled.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	n := new(big.Int).Not(d.unscaled) // -x-1, whose inverted bytes are those of x
	b := n.Bytes()
	if len(b) == 0 || b[0]&0x80 != 0 {
		b = append([]byte{0}, b...)
	}
	for i := range b {
		b[i] = ^b[i]
	}
	return b
}

// appendText appends what BigDecimal.toString gives: plain, unless the number is smaller than a
// millionth.
func (d decimal) appendText(dst []byte) []byte {
	digits := new(big.Int).Abs(d.unscaled).String()
	if d.unscaled.Sign() < 0 {
		dst = append(dst, '-')
	}
	if d.scale == 0 {
		return append(dst, digits...)
	}
	adjusted := -d.scale + len(digits) - 1
	if adjusted >= -6 {
		point := len(digits) - d.scale
		if point > 0 {
			dst = append(dst, digits[:point]...)
			dst = append(dst, '.')
			return append(dst, digits[point:]...)
		}
		dst = append(dst, '0', '.')
		for range -point {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'E')
	return strconv.AppendInt(dst, int64(adjusted), 10)
}

// numericScale is the scale of a numeric(p,s), by its type modifier. PostgreSQL keeps it in eleven
// bits; Debezium reads a negative one without its sign.
func numericScale(mod int32) int { return int(mod-4) & 0x7FF }
