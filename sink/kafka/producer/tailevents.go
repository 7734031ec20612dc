package producer

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/jackc/pglogrepl"
)

const (
	// tailRoom is how many blocks of events the tails of a sink hold together: about 7 MiB for
	// transactions of one row each.
	tailRoom = 1 << 20
	// tailMinRoom is how many blocks a tail may hold though the others use all of tailRoom.
	tailMinRoom = 1 << 14
	// maxUnpacked is how many unpacked blocks are packed together: 2 MiB.
	maxUnpacked = 1 << 16
)

// events is a compact set of positions, fast for lookups in their order. Of too many it holds the
// blocks with the lowest positions.
type events struct {
	room     int      // blocks; zero: tailRoom
	until    position // positions from here on did not fit; zero: all did
	packed   []byte   // blocks in order, each as its difference to the one before
	blocks   int      // in packed
	unpacked []block  // not yet in packed, in any order
	at       cursor   // in packed: all blocks before it are lower than lastBlock
	// lastBlock is the one that the last call of has looked for.
	lastBlock block
}

// block is a set of up to 64 events of a transaction: a large transaction takes little more than
// one bit for each event.
type block struct {
	lsn   pglogrepl.LSN
	group uint32 // index / 64
	time  int64
	bits  uint64 // one for each event
}

func (b block) compare(other block) int {
	return cmp.Or(b.comparePosition(other), cmp.Compare(b.time, other.time))
}

// comparePosition ignores the time: events of a database and its copy can have the same position.
func (b block) comparePosition(other block) int {
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
	if len(e.unpacked) == maxUnpacked {
		e.pack()
	}
	e.unpacked = append(e.unpacked, b)
}

// has reports whether p was added. It is fast in the order of positions, but accepts any.
func (e *events) has(p position) bool {
	e.finish()
	want := block{lsn: p.lsn, group: p.index / 64}
	if want.comparePosition(e.lastBlock) < 0 {
		e.at = e.first()
	}
	for e.lastBlock = want; e.at.ok && e.at.comparePosition(want) < 0; {
		e.at.next()
	}
	for c := e.at; c.ok && c.comparePosition(want) == 0; c.next() {
		if c.time == p.time {
			return c.bits&(1<<(p.index%64)) != 0
		}
	}
	return false
}

// finish packs what was added, so that until is right. Nothing is added after it.
func (e *events) finish() {
	if len(e.unpacked) > 0 {
		e.pack()
		e.unpacked = nil
	}
}

// pack merges unpacked into packed, as far as there is room.
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
	// from its group on: a block of that group with an earlier commit time may be packed
	if p.omitted.lsn != 0 {
		e.until = position{lsn: p.omitted.lsn, index: p.omitted.group * 64}
	}
	e.packed, e.blocks, e.unpacked = p.bytes, p.blocks, e.unpacked[:0]
	e.at, e.lastBlock = e.first(), block{}
}

func (e *events) first() cursor {
	c := cursor{rest: e.packed}
	c.next()
	return c
}

// packer writes blocks that are added in order, and merges equal ones.
type packer struct {
	bytes   []byte
	blocks  int
	room    int
	written block // the last one in bytes
	last    block // not written yet, unless it has no bits
	omitted block // the first without room
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
		if p.omitted.lsn == 0 {
			p.omitted = b
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

// cursor reads the blocks of a packer in order.
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
	c.group += uint32(c.uvarint()) //nolint:gosec // it was packed from 32 bits
	difference, n := binary.Varint(c.rest)
	c.time, c.rest = c.time+difference, c.rest[n:]
	c.bits = c.uvarint()
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	c.rest = c.rest[n:]
	return v
}
