package connect

import (
	"encoding/base64"
	"unicode/utf8"
)

const upperHex = "0123456789ABCDEF"

// appendJSONString quotes text the way Jackson writes it to UTF-8: short escapes where JSON has
// them, upper-case hex, characters outside the basic plane as an escaped surrogate pair, and
// everything else as it is.
func appendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < 0xED {
			i++
			continue
		}
		if c == 0xED && (i+1 >= len(s) || s[i+1] < 0xA0) {
			i++
			continue
		}
		if c > 0xED && c < 0xF0 {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		n := 1
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = appendControl(dst, c)
		case c == 0xED && i+2 < len(s): // a lone surrogate, kept by our JSON reader
			dst = appendUnicodeEscape(dst,
				uint16(0xD000)|uint16(s[i+1]&0x3F)<<6|uint16(s[i+2]&0x3F))
			n = 3
		default:
			var r rune
			r, n = utf8.DecodeRune(s[i:])
			if r < 0x10000 {
				dst = utf8.AppendRune(dst, r)
				break
			}
			r -= 0x10000
			dst = appendUnicodeEscape(dst, uint16(0xD800+(r>>10)))
			dst = appendUnicodeEscape(dst, uint16(0xDC00+(r&0x3FF)))
		}
		i += n
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

func appendControl(dst []byte, c byte) []byte {
	switch c {
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	return appendUnicodeEscape(dst, uint16(c))
}

func appendUnicodeEscape(dst []byte, u uint16) []byte {
	return append(dst, '\\', 'u', upperHex[u>>12], upperHex[u>>8&15], upperHex[u>>4&15],
		upperHex[u&15])
}

func appendBase64String(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
