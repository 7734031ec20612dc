package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// ParseLSN reads PostgreSQL's text form of an LSN, as 16/B374D848, and nothing else.
// pglogrepl.ParseLSN also takes 16/B374D848x and 16/B374D8480, and a slot that is advanced to a
// mistyped position loses what lies between.
func ParseLSN(text string) (pglogrepl.LSN, error) {
	high, low, found := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, err2 := strconv.ParseUint(low, 16, 32)
	if !found || err != nil || err2 != nil || len(high) > 8 || len(low) > 8 {
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
