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
	dst = appendUpperHex(dst, uint32(lsn>>32)) //nolint:gosec // its upper half
	return appendUpperHex(append(dst, '/'), uint32(lsn&0xFFFFFFFF))
}

func appendUpperHex(dst []byte, v uint32) []byte {
	const digits = "0123456789ABCDEF"
	shift := 28
	for shift > 0 && v>>shift == 0 {
		shift -= 4
	}
	for ; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return dst
}
