package router

import (
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
)

// positionChunk is how many bytes of texts are made room for at a time: those of some hundred
// rows. They stay as long as one of them is held.
const positionChunk = 4 << 10

// positions writes the values of position_headers, one after the other into a chunk, so that a row
// costs no allocation.
type positions struct {
	chunk []byte
	lsn   pglogrepl.LSN // of the event before
	text  []byte        // its text
}

func (p *positions) of(ev *replication.Event) (lsn, index []byte) {
	const longest = len("FFFFFFFF/FFFFFFFF") + len("4294967295")
	if cap(p.chunk)-len(p.chunk) < longest {
		p.chunk = make([]byte, 0, positionChunk) // the rows before keep the old one
	}
	at := len(p.chunk)
	if ev.LSN != p.lsn || p.text == nil {
		p.chunk = appendLSN(p.chunk, ev.LSN)
		p.lsn, p.text = ev.LSN, p.chunk[at:len(p.chunk):len(p.chunk)]
		at = len(p.chunk)
	}
	p.chunk = strconv.AppendUint(p.chunk, uint64(ev.Index), 10)
	return p.text, p.chunk[at:len(p.chunk):len(p.chunk)]
}

// appendLSN writes an LSN as PostgreSQL prints it.
func appendLSN(dst []byte, lsn pglogrepl.LSN) []byte {
	at := len(dst)
	dst = append(strconv.AppendUint(dst, uint64(lsn>>32), 16), '/')
	dst = strconv.AppendUint(dst, uint64(lsn&0xFFFFFFFF), 16)
	for i, c := range dst[at:] {
		if c >= 'a' {
			dst[at+i] = c - 'a' + 'A'
		}
	}
	return dst
}
