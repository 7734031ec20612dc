package connect

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

// Java 17 prints the shortest digits that its own algorithm finds, which now and then are one more
// than the shortest there are (1e23 is 9.999999999999999E22), and never fewer than two. The
// goldens were recorded with it, so it is followed here step by step with big integers.

// appendJavaDouble appends what Double.toString gives.
func appendJavaDouble(dst []byte, v float64) []byte {
	return appendJavaNumber(dst, v, math.Float64bits(v), 52, 1023)
}

// appendJavaFloat appends what Float.toString gives.
func appendJavaFloat(dst []byte, v float32) []byte {
	return appendJavaNumber(dst, float64(v), uint64(math.Float32bits(v)), 23, 127)
}

// appendJavaNumber prints a number whose bits end in a fraction of that width.
func appendJavaNumber(dst []byte, v float64, raw uint64, width, bias int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.Signbit(v):
		return appendJavaNumber(append(dst, '-'), -v, raw, width, bias)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case v == 0:
		return append(dst, "0.0"...)
	}
	fraction := raw & (1<<width - 1)
	exponent := int(raw >> width & uint64(2*bias+1)) //nolint:gosec // eleven bits
	significant := width + 1
	if exponent == 0 {
		significant = bits.Len64(fraction)
		fraction <<= width + 1 - significant
		exponent = significant - width
	} else {
		fraction |= 1 << width
	}
	return appendJavaDigits(dst, fraction<<(52-width), exponent-bias, significant)
}

// insignificantDigits is how many decimal digits of an integer of that many excess bits carry no
// information: those bits times log10(2).
func insignificantDigits(excessBits int) int { return max(0, excessBits) * 30103 / 100000 }

// appendJavaDigits prints fraction * 2^(exponent-52); fraction has its top bit at 52.
func appendJavaDigits(dst []byte, fraction uint64, exponent, significant int) []byte {
	tail := bits.TrailingZeros64(fraction)
	fractionBits := 53 - tail
	tiny := max(0, fractionBits-exponent-1)

	if tiny == 0 && exponent <= 62 { // an integer that fits in 63 bits
		drop := 0
		if exponent > significant {
			drop = insignificantDigits(exponent - significant - 1)
		}
		if exponent >= 52 {
			fraction <<= exponent - 52
		} else {
			fraction >>= 52 - exponent
		}
		return appendJavaInteger(dst, fraction, drop)
	}

	decimal := estimateDecimalExponent(fraction, exponent)
	b5 := max(0, -decimal)
	b2 := b5 + tiny + exponent
	s5 := max(0, decimal)
	s2 := s5 + tiny
	m5 := b5
	m2 := b2 - significant
	fraction >>= tail
	b2 -= fractionBits - 1
	common := min(b2, s2)
	b2 -= common
	s2 -= common
	m2 -= common
	if fractionBits == 1 { // below a power of two the neighbour is half as far
		m2--
	}
	if m2 < 0 {
		b2 -= m2
		s2 -= m2
		m2 = 0
	}
	// The three ways Java calculates differ in one comparison only: its small integers stop above,
	// its large ones at the bound.
	small := fractionBits+b2+bitsOf5(b5) < 64 && s2+1+bitsOf5(s5+1) < 64

	b := scaled(new(big.Int).SetUint64(fraction), b5, b2)
	s := scaled(big.NewInt(1), s5, s2)
	m := scaled(big.NewInt(1), m5, m2)
	tenS := new(big.Int).Mul(s, ten)

	var digits [40]byte
	n := 0
	q, sum := new(big.Int), new(big.Int)
	step := func() (digit byte, low, high bool) {
		q.QuoRem(b, s, b)
		b.Mul(b, ten)
		m.Mul(m, ten)
		low = b.Cmp(m) < 0
		c := sum.Add(b, m).Cmp(tenS)
		return byte(q.Int64()), low, c > 0 || (c == 0 && !small)
	}
	digit, low, high := step()
	if digit == 0 && !high {
		decimal--
	} else {
		digits[n] = '0' + digit
		n++
	}
	if decimal < -3 || decimal >= 8 { // the E form has at least one digit behind the point
		low, high = false, false
	}
	for !low && !high {
		digit, low, high = step()
		digits[n] = '0' + digit
		n++
	}
	if high {
		up := true
		if low {
			c := b.Lsh(b, 1).Cmp(tenS)
			up = c > 0 || (c == 0 && digits[n-1]&1 != 0)
		}
		if up && roundUp(digits[:n]) {
			decimal++
		}
	}
	return appendJavaForm(dst, digits[:n], decimal+1)
}

func scaled(v *big.Int, five, two int) *big.Int {
	if five > 0 {
		v.Mul(v, new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(five)), nil))
	}
	return v.Lsh(v, uint(two))
}

func bitsOf5(n int) int {
	switch {
	case n > 26:
		return n * 3
	case n == 0:
		return 0
	}
	return new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(n)), nil).BitLen()
}

func estimateDecimalExponent(fraction uint64, exponent int) int {
	d2 := math.Float64frombits(0x3FF<<52 | fraction&(1<<52-1))
	return int(math.Floor(float64((d2-1.5)*0.289529654) + 0.176091259 +
		float64(float64(exponent)*0.301029995663981)))
}

// roundUp adds one to the last digit and reports whether that made another digit in front, which
// becomes a 1 with zeros behind.
func roundUp(digits []byte) bool {
	for i := len(digits) - 1; i >= 0; i-- {
		if digits[i] != '9' {
			digits[i]++
			return false
		}
		digits[i] = '0'
	}
	digits[0] = '1'
	return true
}

func appendJavaInteger(dst []byte, v uint64, drop int) []byte {
	exponent := 0
	if drop > 0 {
		pow := powerOfTen(drop).Uint64()
		v, exponent = (v+pow/2)/pow, drop
	}
	for v%10 == 0 {
		v /= 10
		exponent++
	}
	var buf [20]byte
	digits := strconv.AppendUint(buf[:0], v, 10)
	return appendJavaForm(dst, digits, len(digits)+exponent)
}

// appendJavaForm prints 0.digits * 10^exponent: plainly from a thousandth to ten millions, else
// with E.
func appendJavaForm(dst, digits []byte, exponent int) []byte {
	switch {
	case exponent > 0 && exponent < 8:
		n := min(len(digits), exponent)
		dst = append(dst, digits[:n]...)
		for range exponent - n {
			dst = append(dst, '0')
		}
		dst = append(dst, '.')
		if n == len(digits) {
			return append(dst, '0')
		}
		return append(dst, digits[n:]...)
	case exponent <= 0 && exponent > -3:
		dst = append(dst, '0', '.')
		for range -exponent {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	dst = append(dst, digits[0], '.')
	if len(digits) > 1 {
		dst = append(dst, digits[1:]...)
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, 'E')
	return strconv.AppendInt(dst, int64(exponent-1), 10)
}

// javaBits are the bits of a number in Java, which has one NaN only.
func javaBits(v float64) uint64 {
	if math.IsNaN(v) {
		return 0x7FF8000000000000
	}
	return math.Float64bits(v)
}
