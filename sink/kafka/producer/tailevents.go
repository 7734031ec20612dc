package producer

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/jackc/pglogrepl"
)

const (
	// tailRoom is how many blocks of events the tails of a sink hold together: of transactions of
	// one row each, about 7 MiB.
	tailRoom = 1 << 20
	// tailLeast is how many a tail holds at least, though the others have taken all.
	tailLeast = 1 << 14
	// tailFresh is how many blocks wait until they are packed together: 2 MiB.
	tailFresh = 1 << 16
)

// events is a set of positions in little memory, made for lookups in the order of positions. It
// holds the room blocks with the lowest positions: everything before until.
type events struct {
	room     int      // zero: tailRoom
	until    position // what is not before it did not fit; zero: everything did
	packed   []byte   // blocks in order, each as its difference to the one before
	blocks   int      // in packed
	unpacked []block  // not yet in packed, in any order
	at       cursor   // in packed: no block before it is at or behind asked
	asked    block
}

// block is 64 events of a transaction: a large transaction takes little more than a bit for an
// event.
type block struct {
	lsn   pglogrepl.LSN
	group uint32 // index / 64
	time  int64
	bits  uint64 // which of the 64
}

func (b block) compare(other block) int {
	return cmp.Or(b.place(other), cmp.Compare(b.time, other.time))
}

// place leaves out the time: an event of a copy of the database has the place of another event.
func (b block) place(other block) int {
	return cmp.Or(cmp.Compare(b.lsn, other.lsn), cmp.Compare(b.group, other.group))
}

func (e *events) add(p position) {
	if e.until.lsn != 0 && !p.before(e.until) {
		return
	}
	b := block{p.lsn, p.index / 64, p.time, 1 << (p.index % 64)}
	if last := len(e.unpacked) - 1; last >= 0 && e.unpacked[last].compare(b) == 0 {
		e.unpacked[last].bits |= b.bits
		return
	}
	if len(e.unpacked) == tailFresh {
		e.pack()
	}
	e.unpacked = append(e.unpacked, b)
}

// has may be asked in any order. The order of positions is the fast one.
func (e *events) has(p position) bool {
	if len(e.unpacked) > 0 {
		e.pack()
		e.unpacked = nil // what is asked is added to no more
	}
	want := block{lsn: p.lsn, group: p.index / 64}
	if want.place(e.asked) < 0 {
		e.at = e.first()
	}
	for e.asked = want; e.at.ok && e.at.place(want) < 0; {
		e.at.next()
	}
	for c := e.at; c.ok && c.place(want) == 0; c.next() {
		if c.time == p.time {
			return c.bits&(1<<(p.index%64)) != 0
		}
	}
	return false
}

// pack merges what is unpacked into what is packed, as far as there is room.
func (e *events) pack() {
	slices.SortFunc(e.unpacked, block.compare)
	p := packer{bytes: make([]byte, 0, len(e.packed)+8*len(e.unpacked)),
		room: cmp.Or(e.room, tailRoom)}
	old := e.first()
	for _, b := range e.unpacked {
		for ; old.ok && old.compare(b) < 0; old.next() {
			p.add(old.block)
		}
		p.add(b)
	}
	for ; old.ok; old.next() {
		p.add(old.block)
	}
	p.flush()
	if p.left.lsn != 0 { // it lies before the one of an earlier time, whose events are not there
		e.until = position{lsn: p.left.lsn, index: p.left.group * 64}
	}
	e.packed, e.blocks, e.unpacked = p.bytes, p.blocks, e.unpacked[:0]
	e.at, e.asked = e.first(), block{}
}

func (e *events) first() cursor {
	c := cursor{rest: e.packed}
	c.next()
	return c
}

// packer writes blocks that come in order. Equal ones become one.
type packer struct {
	bytes   []byte
	blocks  int
	room    int
	written block
	last    block // not yet written, if it has bits
	left    block // the first that there was no room for
}

func (p *packer) add(b block) {
	if p.last.bits != 0 && p.last.compare(b) == 0 {
		p.last.bits |= b.bits
		return
	}
	p.flush()
	p.last = b
}

func (p *packer) flush() {
	b := p.last
	switch {
	case b.bits == 0:
		return
	case p.blocks >= p.room:
		if p.left.lsn == 0 {
			p.left = b
		}
		return
	}
	group := b.group
	if b.lsn == p.written.lsn {
		group -= p.written.group
	}
	p.bytes = binary.AppendUvarint(p.bytes, uint64(b.lsn-p.written.lsn))
	p.bytes = binary.AppendUvarint(p.bytes, uint64(group))
	p.bytes = binary.AppendVarint(p.bytes, b.time-p.written.time)
	p.bytes = binary.AppendUvarint(p.bytes, b.bits)
	p.written, p.last = b, block{}
	p.blocks++
}

// cursor reads what a packer wrote.
type cursor struct {
	block
	ok   bool // there is a block
	rest []byte
}

func (c *cursor) next() {
	if c.ok = len(c.rest) > 0; !c.ok {
		return
	}
	if further := c.uvarint(); further > 0 {
		c.lsn, c.group = c.lsn+pglogrepl.LSN(further), 0
	}
	c.group += uint32(c.uvarint()) //nolint:gosec // it was one
	difference, n := binary.Varint(c.rest)
	c.time, c.rest = c.time+difference, c.rest[n:]
	c.bits = c.uvarint()
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	c.rest = c.rest[n:]
	return v
}
