package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// ParseLSN reads PostgreSQL's text form of an LSN, as 16/B374D848, and nothing else.
// pglogrepl.ParseLSN also accepts 16/B374D848x and 16/B374D8480, and a slot that is advanced to a
// mistyped position loses what is between.
func ParseLSN(text string) (pglogrepl.LSN, error) {
	high, low, found := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, err2 := strconv.ParseUint(low, 16, 32)
	if !found || err != nil || err2 != nil || len(high) > 8 || len(low) > 8 {
		return 0, fmt.Errorf("%.40q is not an LSN as 16/B374D848", text)
	}
	return pglogrepl.LSN(h<<32 | l), nil
}

// TextLSN is an LSN that JSON has in PostgreSQL's text form; zero for null and an empty text.
type TextLSN pglogrepl.LSN

// MarshalText implements encoding.TextMarshaler.
func (l TextLSN) MarshalText() ([]byte, error) { return []byte(pglogrepl.LSN(l).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *TextLSN) UnmarshalText(text []byte) (err error) {
	var lsn pglogrepl.LSN
	if len(text) > 0 {
		lsn, err = ParseLSN(string(text))
	}
	*l = TextLSN(lsn)
	return err
}

// The bytes of the header of a page of WAL, and of the first page of a segment.
const (
	pageHeader    = 24
	segmentHeader = 40
)

// EndOfRecord returns the end of the last record before an insert position, given the bytes of a
// segment and of a page of WAL. At the beginning of a page the insert position is behind the page
// header, where no record ends: an idle server would never be confirmed up to there.
func EndOfRecord(insert pglogrepl.LSN, segment, page uint64) pglogrepl.LSN {
	switch at := uint64(insert); {
	case at%segment == segmentHeader:
		return insert - segmentHeader
	case at%segment > page && at%page == pageHeader:
		return insert - pageHeader
	}
	return insert
}
