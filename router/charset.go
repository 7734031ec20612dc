package router

import (
	"fmt"
	"strings"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/ianaindex"
)

// charset gives the byte of a character; false: it has none.
type charset func(rune) (byte, bool)

// charsetOf finds a character set by the name that Java or the IANA has for it. Nil without an error is UTF-8, which text is in anyway.
func charsetOf(name string) (charset, error) {
	switch strings.ToUpper(strings.ReplaceAll(name, "_", "-")) {
	case "", "UTF-8", "UTF8":
		return nil, nil
	case "US-ASCII", "ASCII":
		return func(c rune) (byte, bool) { return byte(c), c < 0x80 }, nil
	case "ISO8859-1":
		return charmap.ISO8859_1.EncodeRune, nil
	}
	if e, err := ianaindex.IANA.Encoding(name); err == nil {
		if m, ok := e.(*charmap.Charmap); ok {
			return m.EncodeRune, nil
		}
	}
	return nil, fmt.Errorf("must be UTF-8, US-ASCII or a set with one byte for each character, as ISO-8859-1 or windows-1252")
}

// recode writes text in the character set; what it does not have becomes a question mark, as in Java.
func (c charset) recode(utf8 []byte) []byte {
	if c == nil {
		return utf8
	}
	out := make([]byte, 0, len(utf8))
	for _, r := range string(utf8) {
		b, ok := c(r)
		if !ok {
			b = '?'
		}
		out = append(out, b)
	}
	return out
}
