package connect

import (
	"encoding/base64"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendJSONString quotes text the way Jackson writes it to UTF-8: short escapes where JSON has
// them, upper-case hex, characters outside the basic plane as an escaped surrogate pair, and
// everything else as it is.
func AppendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		lone := c == 0xED && i+1 < len(s) && s[i+1] >= 0xA0 // a surrogate, kept by our JSON reader
		if c >= 0x20 && c != '"' && c != '\\' && c < 0xF0 && !lone {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		n := 1
		switch short := strings.IndexByte(escaped, c); {
		case short >= 0 && c != '/':
			dst = append(dst, '\\', escapes[short])
		case c < 0x20:
			dst = appendUnicodeEscape(dst, rune(c))
		case lone && i+2 < len(s):
			dst = appendUnicodeEscape(dst, 0xD000|rune(s[i+1]&0x3F)<<6|rune(s[i+2]&0x3F))
			n = 3
		default:
			var r rune
			if r, n = utf8.DecodeRune(s[i:]); r < 0x10000 {
				dst = utf8.AppendRune(dst, r)
				break
			}
			high, low := utf16.EncodeRune(r)
			dst = appendUnicodeEscape(appendUnicodeEscape(dst, high), low)
		}
		i += n
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

func appendUnicodeEscape(dst []byte, unit rune) []byte {
	const upperHex = "0123456789ABCDEF"
	return append(dst, '\\', 'u', upperHex[unit>>12], upperHex[unit>>8&15], upperHex[unit>>4&15],
		upperHex[unit&15])
}

func appendBase64String(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}
