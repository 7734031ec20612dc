package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// A hostile server can send anything. These targets hold for every input: no panic, no memory beyond the input's own size, and of
// what leaves the package, what event.go promises. FuzzDecode in decode_test.go looks at one message alone.

// script reads the input of a target as choices.
type script []byte

func (s *script) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *script) bytes(n int) []byte {
	n = min(n, len(*s))
	b := (*s)[:n]
	*s = (*s)[n:]
	return b
}

func (s *script) uint64() uint64 {
	var b [8]byte
	copy(b[:], s.bytes(8))
	return binary.BigEndian.Uint64(b[:])
}

// message makes the next pgoutput message: of the script's own bytes, or a valid one whose shape the script chooses, so that relations
// change under rows, and rows come that fit no relation.
func (s *script) message() []byte {
	choice, n := s.byte(), int(s.byte()%9)
	oid := uint32(n % 3)
	columns := make([]string, n)
	values := make([]any, n)
	for i := range n {
		columns[i] = string(s.bytes(1))
		if c := s.byte(); c%4 != 0 {
			values[i] = string(s.bytes(int(c) % 5))
		}
	}
	switch choice % 9 {
	case 0:
		return beginMessage(pglogrepl.LSN(s.byte()), commitTime, uint32(n))
	case 1:
		return commitMessage(pglogrepl.LSN(s.byte()), pglogrepl.LSN(s.byte()))
	case 2:
		return relationMessage(oid, "public", "outbox", columns...)
	case 3, 4:
		return insertMessage(oid, values...)
	case 5:
		return updateMessage(oid, "KO"[n%2], values, values)
	case 6:
		return updateMessage(oid, 0, nil, append(values, toasted{}))
	case 7:
		return logicalMessage(n%2 == 0, "outbox", "content")
	}
	return s.bytes(int(s.byte()))
}

func FuzzRelations(f *testing.F) {
	// begin, relation with two columns, insert; then the same relation with three in mid-transaction, insert, an old row, commit
	f.Add([]byte{0, 0, 9, 2, 2, 'a', 1, 'x', 'b', 1, 'y', 3, 2, 'a', 1, 'x', 'b', 1, 'y', 2, 5, 'a', 1, 'x', 'b', 1, 'y', 'c', 0, 3, 5, 1, 1, 9, 12})
	f.Add([]byte{3, 1, 0, 0, 0, 8, 0, 7, 'I', 0, 0, 0, 1, 'N', 255, 255})
	f.Fuzz(func(t *testing.T, input []byte) {
		d, b := newDecoder(), &Batch{}
		s := script(input)
		type described struct {
			now  *Relation
			then Relation
		}
		var known []described
		inside, index := false, uint32(0)
		for len(s) > 0 {
			msg := s.message()
			whole := bytes.Clone(msg)
			before := len(b.Events)
			err := d.decode(msg, 0, sentAt, b)
			if !bytes.Equal(msg, whole) {
				t.Fatal("the message was written to")
			}
			if err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Fatalf("%v is not ErrProtocol", err)
				}
				return // the stream ends with it
			}
			for _, e := range b.Events[before:] {
				switch e.Kind {
				case Begin:
					if inside {
						t.Fatal("begin in a transaction")
					}
					inside, index = true, 0
				case Commit:
					if !inside {
						t.Fatal("commit without begin")
					}
					inside = false
				case Idle:
					if inside {
						t.Fatal("idle position in a transaction")
					}
				case Insert, Update:
					if !inside || e.Index != index {
						t.Fatalf("row %d, expected %d, in a transaction: %v", e.Index, index, inside)
					}
					index++
					if len(e.Values) != len(e.Relation.Columns) || e.Old != nil && len(e.Old) != len(e.Relation.Columns) {
						t.Fatalf("%d values, %d of the old row, %d columns", len(e.Values), len(e.Old), len(e.Relation.Columns))
					}
					if !slices.ContainsFunc(known, func(k described) bool { return k.now == e.Relation }) {
						then := *e.Relation
						then.Columns = slices.Clone(then.Columns)
						known = append(known, described{e.Relation, then})
					}
				case Message:
					if !inside {
						t.Fatal("message without begin")
					}
					index++
				}
			}
			for _, k := range known {
				if !reflect.DeepEqual(*k.now, k.then) {
					t.Fatalf("a relation that was handed out changed from %v to %v", k.then, *k.now)
				}
			}
		}
	})
}

// pieces is a connection that brings what the server sent in pieces of any size.
type pieces struct {
	rest  []byte
	sizes script
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(len(p.rest), 1+int(p.sizes.byte()))])
	p.rest = p.rest[n:]
	return n, nil
}

func FuzzWire(f *testing.F) {
	f.Add([]byte{'d', 0, 0, 0, 6, 1, 2, 'd', 0, 0, 0, 4}, []byte{0, 0, 7})
	f.Add([]byte{'d', 0, 0, 0, 3}, []byte{})
	f.Add([]byte{'d', 0xff, 0xff, 0xff, 0xff, 1}, []byte{200})
	f.Fuzz(func(t *testing.T, sent, sizes []byte) {
		const maxBytes = 1000
		type message struct {
			typ  byte
			body []byte
		}
		var want, got []message
		for rest := sent; len(rest) >= 5; { // what they are, read in the simplest way
			n := uint64(binary.BigEndian.Uint32(rest[1:]))
			if n < 4 || n > maxBytes || uint64(len(rest)) < n+1 {
				break
			}
			want = append(want, message{rest[0], rest[5 : n+1]})
			rest = rest[n+1:]
		}
		w := newWire(&pieces{bytes.Clone(sent), sizes}, maxBytes)
		for {
			typ, body, over, ok, err := w.next()
			if over > 0 {
				break // see TestWire_KeepsTheBeginningOfWhatIsTooLong
			}
			if err != nil {
				if tooLarge := (*RowTooLargeError)(nil); !errors.Is(err, ErrProtocol) && !errors.As(err, &tooLarge) {
					t.Fatal(err)
				}
				break
			}
			if ok {
				w.chunk.Retain() // else it is written again
				got = append(got, message{typ, body})
				continue
			}
			if err := w.fill(); err != nil {
				if !errors.Is(err, io.EOF) {
					break // a header that is refused
				}
				break
			}
			if len(w.buf) > 2*ChunkBytes {
				t.Fatalf("%d bytes of memory for messages of at most %d", len(w.buf), maxBytes)
			}
		}
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("read %v, sent were %v", got, want)
		}
		// As pgconn sees it during start-up: the same bytes, never more than the rest of one message at a time.
		w = newWire(&pieces{bytes.Clone(sent), sizes}, maxBytes)
		var read []byte
		for buf := make([]byte, 64); ; {
			n, err := w.Read(buf)
			read = append(read, buf[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.HasPrefix(sent, read) {
			t.Fatalf("read %q of %q", read, sent)
		}
	})
}

// FuzzStatus holds what status.go promises of its positions against any watermark, any server and any clock.
func FuzzStatus(f *testing.F) {
	f.Add(uint64(5), []byte{0, 9, 1, 200, 2, 1, 3, 0})
	f.Add(uint64(1<<63), []byte{1, 255, 0, 255, 2, 2})
	f.Fuzz(func(t *testing.T, seed uint64, steps []byte) {
		p := positions{seed: max(1, pglogrepl.LSN(seed)), received: max(1, pglogrepl.LSN(seed))}
		s := schedule{interval: time.Second, last: commitTime}
		now := commitTime
		var acked, lastWrite pglogrepl.LSN
		for r := script(steps); len(r) > 0; {
			switch r.byte() % 4 {
			case 0: // the server sent something, or claims it did
				p.received = max(p.received, pglogrepl.LSN(r.uint64()))
			case 1: // the caller acknowledges anything at all
				acked = pglogrepl.LSN(r.uint64())
			case 2:
				s.replyRequested(now)
			case 3: // clocks go back, too
				now = now.Add(time.Duration(int8(r.byte())) * 50 * time.Millisecond)
			}
			write, flush := p.status(acked)
			seen := max(p.seed, p.received)
			switch {
			case flush == 0:
				t.Fatal("a zero flush would be replaced by the write position")
			case flush > seen:
				t.Fatalf("flush %s is beyond %s, all that this connection has seen", flush, seen)
			case flush > acked && flush > p.seed:
				t.Fatalf("flush %s is beyond what is acked, %s", flush, acked)
			case write != seen, flush > write:
				t.Fatalf("write %s, flush %s, seen %s", write, flush, seen)
			case write < lastWrite:
				t.Fatalf("write went back from %s to %s", lastWrite, write)
			}
			lastWrite = write
			moved := flush > p.flushed
			due := s.due(moved)
			if due.After(s.last.Add(s.interval)) {
				t.Fatalf("due %s after the last status", due.Sub(s.last))
			}
			if wake := s.wake(now, moved, p.received > p.flushed); wake.After(due) {
				t.Fatalf("wakes %s too late", wake.Sub(due))
			}
			if !now.Before(due) {
				if moved {
					s.progressed()
				}
				p.flushed = flush
				s.sent(now)
			}
		}
	})
}
