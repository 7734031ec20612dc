package connect

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// charset writes text in a character set; what that does not have becomes a question mark, as in
// Java. Nil leaves UTF-8 as it is.
type charset func(utf8 []byte) []byte

func (c charset) recode(utf8 []byte) []byte {
	if c == nil {
		return utf8
	}
	return c(utf8)
}

// charsets are those that golang.org/x/text has by another name than Java, or in another way.
var charsets = map[string]charset{
	"": nil, "UTF-8": nil, "UTF8": nil, "US-ASCII": ascii, "ASCII": ascii,
	"ISO8859-1": eachCharacter(charmap.ISO8859_1.EncodeRune),
	"UTF-16":    whole(unicode.UTF16(unicode.BigEndian, unicode.UseBOM)),
	"UTF-16BE":  whole(unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)),
	"UTF-16LE":  whole(unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)),
	"UTF-32":    whole(utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)),
	"UTF-32BE":  whole(utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)),
	"UTF-32LE":  whole(utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)),
}

var ascii = eachCharacter(func(c rune) (byte, bool) { return byte(c), c < 0x80 })

// CharsetOf finds a character set by the name that Java or the IANA has for it.
func CharsetOf(name string) (charset, error) {
	if c, ok := charsets[strings.ToUpper(strings.ReplaceAll(name, "_", "-"))]; ok {
		return c, nil
	}
	if e, err := ianaindex.IANA.Encoding(name); err == nil {
		if m, ok := e.(*charmap.Charmap); ok {
			return eachCharacter(m.EncodeRune), nil
		}
	}
	return nil, errors.New("must be UTF-8, UTF-16, UTF-32, US-ASCII or a set with one byte for " +
		"each character, as ISO-8859-1 or windows-1252")
}

// eachCharacter is a character set of single bytes.
func eachCharacter(encode func(rune) (byte, bool)) charset {
	return func(utf8 []byte) []byte {
		out := make([]byte, 0, len(utf8))
		for _, c := range string(utf8) {
			b, ok := encode(c)
			if !ok {
				b = '?'
			}
			out = append(out, b)
		}
		return out
	}
}

// whole is a character set that has all characters there are.
func whole(e encoding.Encoding) charset {
	return func(utf8 []byte) []byte {
		if len(utf8) == 0 {
			return []byte{} // Java begins no empty text with a mark
		}
		out, err := e.NewEncoder().Bytes(slices.Clone(utf8))
		if err != nil {
			return utf8 // cannot be: the server sends valid UTF-8
		}
		return out
	}
}
