package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// ParseLSN reads PostgreSQL's text form of an LSN, as 16/B374D848, and nothing else: pglogrepl.ParseLSN takes 16/B374D848x and
// 16/B374D8480 for positions too, and a slot that is moved to a mistyped one has lost what lies between. The error says what was given.
func ParseLSN(text string) (pglogrepl.LSN, error) {
	high, low, found := strings.Cut(text, "/")
	h, ok := lsnHalf(high)
	l, ok2 := lsnHalf(low)
	if !found || !ok || !ok2 {
		return 0, fmt.Errorf("%.40q is not an LSN as 16/B374D848", text)
	}
	return pglogrepl.LSN(h<<32 | l), nil
}

// ParseOptionalLSN is ParseLSN, and zero for nil and for an empty text.
func ParseOptionalLSN(text *string) (pglogrepl.LSN, error) {
	if text == nil || *text == "" {
		return 0, nil
	}
	return ParseLSN(*text)
}

func lsnHalf(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 16, 32)
	return n, err == nil && len(s) <= 8
}
