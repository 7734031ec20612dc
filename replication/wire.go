package replication

import (
	"encoding/binary"
	"fmt"
	"io"
)

// maxStartBytes is how much a server may send before the stream begins. pgconn keeps all of it:
// without a limit it could fill the memory.
const maxStartBytes = 1 << 20

// keptBytes is how much is kept of a message that is too long: enough for the columns in front of
// the large one.
const keptBytes = 64 << 10

// longestMessage is what PostgreSQL can send: its buffers end below 1 GiB.
const longestMessage = 1 << 30

// wire reads protocol messages from a connection in large pieces. It is between pgconn and the
// socket: during start-up Read gives pgconn one message at a time, so that nothing of the stream
// ends in pgconn's own buffer; afterwards fill and next are called directly.
//
// Bytes once read are not overwritten while their chunk is retained (chunk.go). Of a CopyData
// message that is longer than max the beginning is kept, and the rest is read and discarded.
type wire struct {
	r      io.Reader
	chunks chunks
	chunk  *Chunk // of buf; nil: none yet
	buf    []byte
	head   int // buf[head:tail] is read and not yet taken; 0 <= head <= tail <= len(buf)
	tail   int
	left   int    // bytes of the current message that Read has not returned yet
	served int    // bytes that Read has returned
	max    int64  // length of the longest message that is kept whole
	got    uint64 // bytes read by fill

	// bytes still to come of a message that was too long; then buf[head:tail] is empty
	discard int64
	waste   []byte // where they go
}

func newWire(r io.Reader, maxBytes int64) *wire { return &wire{r: r, max: maxBytes} }

// Read is for pgconn during start-up: it returns at most the rest of one message.
func (w *wire) Read(p []byte) (int, error) {
	for w.left == 0 {
		n, err := w.length()
		if err != nil {
			return 0, err
		}
		if n > w.max+1 {
			return 0, w.tooLarge(n)
		}
		if w.served+int(n) > maxStartBytes {
			return 0, fmt.Errorf("%w: more than %d bytes before the stream begins", ErrProtocol,
				maxStartBytes)
		}
		if n > 0 {
			w.left = int(n)
			break
		}
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	if w.head == w.tail {
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.buf[w.head:min(w.tail, w.head+w.left)])
	w.head += n
	w.left -= n
	w.served += n
	return n, nil
}

// length is that of the message at head, type byte included, or 0 while its header is incomplete.
func (w *wire) length() (int64, error) {
	if w.tail-w.head < 5 {
		return 0, nil
	}
	n := int64(binary.BigEndian.Uint32(w.buf[w.head+1:]))
	if n < 4 || n > longestMessage {
		return 0, fmt.Errorf("%w: message of length %d", ErrProtocol, n)
	}
	return n + 1, nil
}

func (w *wire) tooLarge(length int64) error {
	return &RowTooLargeError{Bytes: length - 1, Max: w.max}
}

// next takes the next whole message; !ok: call fill first. The body is valid until fill, and then
// while chunk is retained. over: the length of a message that is too long, of which body is the
// beginning; else 0.
func (w *wire) next() (typ byte, body []byte, over int64, ok bool, err error) {
	length, err := w.length()
	if err != nil || length == 0 {
		return 0, nil, 0, false, err
	}
	n := int(length)
	if length > w.max+1 {
		if w.buf[w.head] != 'd' {
			return 0, nil, 0, false, w.tooLarge(length)
		}
		n, over = min(n, keptBytes), length-1
	}
	if w.tail-w.head < n {
		return 0, nil, 0, false, nil
	}
	typ, body = w.buf[w.head], w.buf[w.head+5:w.head+n:w.head+n]
	w.head += n
	if over > 0 {
		more := min(length-int64(n), int64(w.tail-w.head))
		w.head += int(more)
		w.discard = length - int64(n) - more
	}
	return typ, body, over, true, nil
}

// hasRoom reports whether the free end of buf is large enough for a read that is worth its system
// call.
func (w *wire) hasRoom() bool { return len(w.buf)-w.tail >= ChunkBytes/8 && w.discard == 0 }

// fill does one read. It returns the reader's error only if nothing was read.
func (w *wire) fill() error {
	if w.discard > 0 {
		return w.readDiscarded()
	}
	need := 5
	if length, err := w.length(); err != nil {
		return err
	} else if length > w.max+1 {
		need = int(min(length, keptBytes))
	} else if length > 0 {
		need = int(length)
	}
	// Also before the free end, and with it a read, gets small.
	if !w.hasRoom() || len(w.buf)-w.head < need {
		w.nextChunk(max(ChunkBytes, need+ChunkBytes/4))
	}
	n, err := w.r.Read(w.buf[w.tail:])
	w.tail += n
	w.got += uint64(n) //nolint:gosec // a count
	return result(n, err)
}

// readDiscarded does one read of a message that was too long.
func (w *wire) readDiscarded() error {
	if w.waste == nil {
		w.waste = make([]byte, ChunkBytes)
	}
	n, err := w.r.Read(w.waste[:min(w.discard, ChunkBytes)])
	w.got += uint64(n) //nolint:gosec // a count
	if w.discard -= int64(n); w.discard == 0 {
		w.waste = nil
	}
	return result(n, err)
}

// result returns the error of a read that brought n bytes: none if there are some.
func result(n int, err error) error {
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
