package replication

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Bytes of one chunk. Large, so that a backlog is read with few system calls: an eager reader also makes the walsender
// do one system call per message.
const chunkSize = 256 << 10

// wire reads protocol messages from a connection in large pieces. It stands between pgconn and the socket: during start-up it
// hands pgconn one message at a time, so that nothing of the stream ends in pgconn's own buffer; afterwards
// fill and next are called directly.
//
// Bytes once read are never overwritten: a chunk that is full is left to the garbage collector and to whoever still
// holds slices of it.
type wire struct {
	r    io.Reader
	buf  []byte
	head int // buf[head:tail] is read and not yet taken; 0 <= head <= tail <= len(buf)
	tail int
	left int   // of the message that Read is handing over
	max  int64 // of one message, in bytes
}

func newWire(r io.Reader, maxBytes int64) *wire { return &wire{r: r, max: maxBytes} }

// Read serves pgconn: at most the rest of one message.
func (w *wire) Read(p []byte) (int, error) {
	for w.left == 0 {
		n, err := w.length()
		if err != nil {
			return 0, err
		}
		if n > 0 {
			w.left = n
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
	return n, nil
}

// length is that of the message at head, type byte included, or 0 while its header is incomplete.
func (w *wire) length() (int, error) {
	if w.tail-w.head < 5 {
		return 0, nil
	}
	n := int64(binary.BigEndian.Uint32(w.buf[w.head+1:]))
	if n < 4 {
		return 0, fmt.Errorf("%w: message of length %d", ErrProtocol, n)
	}
	if n > w.max {
		return 0, &RowTooLargeError{Bytes: n, Max: w.max}
	}
	return int(n) + 1, nil
}

// next takes the next whole message, or reports that it is not there yet. The body stays valid and unchanged.
func (w *wire) next() (typ byte, body []byte, ok bool, err error) {
	n, err := w.length()
	if err != nil || n == 0 || w.tail-w.head < n {
		return 0, nil, false, err
	}
	typ, body = w.buf[w.head], w.buf[w.head+5:w.head+n:w.head+n]
	w.head += n
	return typ, body, true, nil
}

// fill does one read. It returns the reader's error only if nothing was read.
func (w *wire) fill() error {
	need := 5
	if n, err := w.length(); err != nil {
		return err
	} else if n > 0 {
		need = n
	}
	// A new chunk before the free end gets so small that reads do, and when the message at head does not fit.
	if free := len(w.buf) - w.tail; free < chunkSize/8 || len(w.buf)-w.head < need {
		chunk := make([]byte, max(chunkSize, need+chunkSize/4))
		w.tail = copy(chunk, w.buf[w.head:w.tail])
		w.head = 0
		w.buf = chunk
	}
	n, err := w.r.Read(w.buf[w.tail:])
	w.tail += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
