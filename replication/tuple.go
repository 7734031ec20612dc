package replication

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// row reads one row. A value that an update left out is that of old, if the whole old row is
// known.
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
