package replication

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// postgresEpoch is 2000-01-01, from which PostgreSQL counts microseconds, in Unix microseconds.
const postgresEpoch = 946_684_800_000_000

func postgresTime(us int64) time.Time { return time.UnixMicro(us + postgresEpoch) }

const (
	maxColumns = 1600 // of a table: PostgreSQL's MaxHeapAttributeNumber
	// maxRelationBytes limits the sum of all relation messages. The server sends each once per
	// connection, so none can be dropped.
	maxRelationBytes = 32 << 20
)

// decoder turns pgoutput messages of protocol 1, or 2 without streaming, into events. It does no
// I/O. A new connection needs a new decoder. Formats: PostgreSQL documentation, "Logical
// Replication Message Formats".
type decoder struct {
	relations map[uint32]*Relation // by OID
	lengths   map[uint32]int       // of the message that described each of them, in bytes
	kept      int                  // sum of lengths, at most maxRelationBytes

	transactionalOnly bool // as in Config
	witness           bool // as in Config
	unread            bool // no logical message is an event

	// The open transaction. An empty one becomes Idle, so its Begin waits for the first row.
	open  bool // between a Begin and its Commit on the wire
	begun bool // the Begin event was appended
	xid   uint32
	lsn   pglogrepl.LSN // commit LSN
	time  time.Time     // commit time
	index uint32        // of the next row
}

func newDecoder() *decoder {
	return &decoder{relations: map[uint32]*Relation{}, lengths: map[uint32]int{}}
}

// decode appends the events of one pgoutput message to b. sent is when the server sent it, in
// PostgreSQL's microseconds. over is the length of a message that was too long, of which msg is
// the beginning; else 0.
func (d *decoder) decode(msg []byte, over, sent int64, b *Batch) error {
	if len(msg) == 0 {
		return fmt.Errorf("%w: empty", ErrProtocol)
	}
	c := cursor{rest: msg[1:], over: over}
	if over > 0 && !strings.Contains("IUMDT", string(msg[:1])) {
		return fmt.Errorf("%w: message %q of %d bytes", ErrProtocol, msg[0], over)
	}
	switch msg[0] {
	case 'B':
		d.lsn, d.time = pglogrepl.LSN(c.uint64()), postgresTime(int64(c.uint64()))
		d.xid = c.uint32()
		if d.open {
			return fmt.Errorf("%w: begin inside the transaction that commits at %s", ErrProtocol,
				d.lsn)
		}
		d.open, d.begun, d.index = true, false, 0
	case 'C':
		c.byte()   // flags, unused
		c.uint64() // commit LSN, known from Begin
		end := pglogrepl.LSN(c.uint64())
		c.uint64() // commit time, known from Begin
		if !d.open {
			return fmt.Errorf("%w: commit without begin", ErrProtocol)
		}
		if c.failed {
			break
		}
		if d.begun {
			d.event(b, Commit).LSN = end
		} else {
			b.idle(end)
		}
		d.open = false
	case 'I':
		return d.insert(&c, b)
	case 'M':
		return d.logical(&c, sent, b)
	case 'R':
		return d.relation(&c)
	case 'U': // the documented publications have inserts only, others may have U, D and T
		return d.update(&c, b)
	case 'D', 'T': // no event
	case 'Y', 'O': // type and origin: text values need neither
	default:
		return fmt.Errorf("%w: unknown message type %q", ErrProtocol, msg[0])
	}
	return c.err(msg[0])
}

// begin appends the Begin of the open transaction, once.
func (d *decoder) begin(b *Batch) {
	if !d.begun {
		d.event(b, Begin)
		d.begun = true
	}
}

// next appends the next row or message of the open transaction.
func (d *decoder) next(b *Batch, kind Kind) *Event {
	d.begin(b)
	e := d.event(b, kind)
	e.Index = d.index
	d.index++
	return e
}

func (d *decoder) event(b *Batch, kind Kind) *Event {
	e := b.next()
	e.Kind, e.XID, e.LSN, e.Time = kind, d.xid, d.lsn, d.time
	return e
}

func (d *decoder) insert(c *cursor, b *Batch) error {
	rel, err := d.described(c)
	if err != nil {
		return err
	}
	if tuple := c.byte(); tuple != 'N' {
		return d.notNew(c, rel, 'I')
	}
	values, err := row(c, 'I', rel, nil, b)
	if err != nil {
		return err
	}
	e := d.next(b, Insert)
	e.Relation, e.Values, e.Oversize = rel, values, c.over
	return nil
}

// update reads a changed row. In front of it is the old one, if the key changed (K) or the replica
// identity is FULL (O).
func (d *decoder) update(c *cursor, b *Batch) error {
	rel, err := d.described(c)
	if err != nil {
		return err
	}
	if c.over > 0 { // its old row comes first: no column is kept
		e := d.next(b, Update)
		e.Relation, e.Values, e.Oversize = rel, b.values(len(rel.Columns)), c.over
		return nil
	}
	tuple := c.byte()
	var old, whole [][]byte
	if tuple == 'K' || tuple == 'O' {
		if old, err = row(c, 'U', rel, nil, b); err != nil {
			return err
		}
		if tuple == 'O' {
			whole = old
		}
		tuple = c.byte()
	}
	if tuple != 'N' {
		return d.notNew(c, rel, 'U')
	}
	values, err := row(c, 'U', rel, whole, b)
	if err != nil {
		return err
	}
	e := d.next(b, Update)
	e.Relation, e.Values, e.Old = rel, values, old
	return nil
}

// described reads the OID in front of a row, and returns its relation.
func (d *decoder) described(c *cursor) (*Relation, error) {
	oid := c.uint32()
	rel := d.relations[oid]
	switch {
	case c.failed:
		return nil, fmt.Errorf("%w: row without its relation", ErrProtocol)
	case rel == nil:
		return nil, fmt.Errorf("%w: row of relation %d that was not described", ErrProtocol, oid)
	case !d.open:
		return nil, fmt.Errorf("%w: row of %s outside of a transaction", ErrProtocol, rel)
	}
	return rel, nil
}

// notNew is the error of a message that ends, or has another tuple, where the new tuple begins.
func (d *decoder) notNew(c *cursor, rel *Relation, typ byte) error {
	if c.failed {
		return c.err(typ)
	}
	return fmt.Errorf("%w: message %q of %s without a new tuple", ErrProtocol, typ, rel)
}

// logical reads a logical message, or the beginning of one. One between transactions becomes a
// transaction of its own, whose end is the end of the message's WAL record, not one byte more: the
// commit record of another transaction can begin right there, and if more were confirmed, that
// transaction would never be sent.
func (d *decoder) logical(c *cursor, sent int64, b *Batch) error {
	transactional := c.byte()&1 != 0
	lsn := pglogrepl.LSN(c.uint64())
	prefix := c.cstring()
	length := int(c.uint32())
	var content []byte
	if c.over == 0 {
		content = c.bytes(length)
	}
	if c.failed {
		return c.err('M')
	}
	if transactional && !d.open {
		return fmt.Errorf("%w: transactional message outside of a transaction", ErrProtocol)
	}
	unread := d.unread || !transactional && d.transactionalOnly
	if !transactional && !d.open {
		at := postgresTime(sent) // it has no commit time
		if unread && !d.witness {
			b.idle(lsn)
			return nil
		}
		b.add(Event{Kind: Begin, LSN: lsn, Time: at})
		if !unread {
			b.add(Event{Kind: Message, LSN: lsn, Time: at, Prefix: prefix, Content: content,
				Oversize: c.over})
		}
		b.add(Event{Kind: Commit, LSN: lsn, Time: at})
		return nil
	}
	if !unread {
		e := d.next(b, Message)
		e.Prefix, e.Content, e.Oversize = prefix, content, c.over
	} else if transactional {
		d.begin(b)
	}
	return nil
}

func (d *decoder) relation(c *cursor) error {
	length := len(c.rest)
	r := &Relation{OID: c.uint32(), Namespace: c.cstring(), Name: c.cstring()}
	c.byte() // replica identity
	n := int(c.uint16())
	// A column takes at least ten bytes: a count that cannot be true must not allocate.
	if c.failed || n > len(c.rest)/10 || n > maxColumns {
		return fmt.Errorf("%w: relation %d with %d columns", ErrProtocol, r.OID, n)
	}
	if r.Namespace == "" { // pgoutput's way to write pg_catalog
		r.Namespace = "pg_catalog"
	}
	r.Columns = make([]Column, n)
	for i := range r.Columns {
		flags := c.byte()
		r.Columns[i] = Column{Key: flags&1 != 0, Name: c.cstring(), TypeOID: c.uint32(),
			TypeMod: int32(c.uint32())}
	}
	if c.failed {
		return c.err('R')
	}
	if d.kept += length - d.lengths[r.OID]; d.kept > maxRelationBytes {
		return fmt.Errorf("%w: the columns of %d tables take more than %d MiB in the "+
			"transaction that commits at %s, the last is %s",
			ErrTooManyTables, len(d.relations)+1, maxRelationBytes>>20, d.lsn, r)
	}
	d.relations[r.OID], d.lengths[r.OID] = r, length
	return nil
}

// row reads the values of one row. A value that an update left out is taken from old, the whole
// old row; nil: that is not known.
func row(c *cursor, typ byte, rel *Relation, old [][]byte, b *Batch) ([][]byte, error) {
	n := int(c.uint16())
	if c.failed {
		return nil, c.err(typ)
	}
	if n != len(rel.Columns) {
		return nil, fmt.Errorf("%w: row of %s has %d columns, described were %d", ErrProtocol, rel,
			n, len(rel.Columns))
	}
	values := b.values(n)
	for i := range values {
		switch kind := c.byte(); {
		case kind == 'n':
			values[i] = nil
		case kind == 't':
			values[i] = c.bytes(int(c.uint32()))
		case kind == 'u' && typ == 'U' && old != nil:
			values[i] = old[i]
		case kind == 'u' && typ == 'U':
			values[i] = Unchanged
		case c.failed:
			values[i] = nil
		default: // 'u' is never in an insert; 'b' was not requested
			return nil, fmt.Errorf("%w: column %q of %s is of kind %q", ErrProtocol,
				rel.Columns[i].Name, rel, kind)
		}
	}
	if c.failed && c.over == 0 {
		return nil, c.err(typ)
	}
	return values, nil
}

// cursor reads a message. Past the end it returns zeros and has failed: one check is enough.
type cursor struct {
	rest   []byte
	over   int64 // length of a message of which rest is the beginning; 0: rest is all of it
	failed bool
}

func (c *cursor) err(typ byte) error {
	if c.failed {
		return fmt.Errorf("%w: message %q is too short", ErrProtocol, typ)
	}
	return nil
}

func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.failed, c.rest = true, nil
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if b := c.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) cstring() string {
	i := bytes.IndexByte(c.rest, 0)
	if i < 0 {
		c.failed, c.rest = true, nil
		return ""
	}
	s := string(c.rest[:i])
	c.rest = c.rest[i+1:]
	return s
}
