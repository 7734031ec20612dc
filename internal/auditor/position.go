package auditor

import (
	"bytes"
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// positionOf reads the position headers of a record. Where they are missing or malformed, the
// position has no source. The relay's headers follow those that a row brings itself, so the last
// of a name counts.
func positionOf(m *sink.Message) audit.Position {
	var lsn, index, source []byte
	for i := range m.Headers {
		switch h := &m.Headers[i]; h.Key {
		case router.HeaderLSN:
			lsn = h.Value
		case router.HeaderIndex:
			index = h.Value
		case sink.HeaderSource:
			source = h.Value
		}
	}
	end := bytes.LastIndexByte(source, '@')
	if lsn == nil || index == nil || end < 0 {
		return audit.Position{}
	}
	at, lsnErr := pglogrepl.ParseLSN(string(lsn))
	n, indexErr := strconv.ParseUint(string(index), 10, 32)
	micros, timeErr := strconv.ParseInt(string(source[end+1:]), 10, 64)
	if lsnErr != nil || indexErr != nil || timeErr != nil || at == 0 {
		return audit.Position{}
	}
	return audit.Position{Source: source[:end], LSN: uint64(at), Index: uint32(n), Time: micros}
}
