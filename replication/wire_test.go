package replication

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func frame(typ byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{typ}, uint32(len(body)+4))
	return append(b, body...)
}

// lengths hands out what it has in pieces of the given lengths, again and again.
type lengths struct {
	data []byte
	of   []int
	at   int
}

func (s *lengths) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(s.data), s.of[s.at%len(s.of)])
	s.at++
	copy(p, s.data[:n])
	s.data = s.data[n:]
	return n, nil
}

// However the bytes come, each message comes whole, or its beginning if it is too long, for whose
// rest there is no room.
func TestWire_KeepsTheBeginningOfWhatIsTooLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(100, 200_000).Draw(t, "max")
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 400_000)), 1, 10).Draw(t, "sizes")
		of := rapid.SliceOfN(rapid.IntRange(1, 300_000), 1, 5).Draw(t, "pieces")
		if of[0] < 1000 {
			of[0] = 1000 // or it takes for ever
		}
		var stream []byte
		for i, size := range sizes {
			stream = append(stream, frame('d', bytes.Repeat([]byte{byte('a' + i)}, size))...)
		}
		w := newWire(&lengths{data: stream, of: of}, int64(limit))
		for i, size := range sizes {
			var body []byte
			var over int64
			for {
				typ, b, n, ok, err := w.next()
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					if typ != 'd' {
						t.Fatalf("message %d: type %c", i, typ)
					}
					body, over = b, n
					break
				}
				if err := w.fill(); err != nil {
					t.Fatalf("message %d: %v", i, err)
				}
				if most := max(limit+5, keptBytes) + ChunkBytes/4; len(w.buf) > max(ChunkBytes, most) {
					t.Fatalf("message %d of %d bytes, at most %d: room for %d", i, size, limit, len(w.buf))
				}
			}
			want, kept := int64(0), size
			if size+4 > limit {
				want, kept = int64(size+4), min(size, keptBytes-5)
			}
			if over != want || !bytes.Equal(body, bytes.Repeat([]byte{byte('a' + i)}, kept)) {
				t.Fatalf("message %d of %d bytes, at most %d: over %d, %d bytes kept", i, size, limit, over, len(body))
			}
		}
		for w.discard > 0 {
			if err := w.fill(); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, _, ok, err := w.next(); ok || err != nil || w.got != uint64(len(stream)) {
			t.Fatalf("left over: %v %v, %d of %d bytes read", ok, err, w.got, len(stream))
		}
	})
}

func TestWire_RefusesLengthsThatCannotBe(t *testing.T) {
	first := func(data []byte) error {
		w := newWire(iotest.OneByteReader(bytes.NewReader(data)), 1000)
		for {
			_, _, _, ok, err := w.next()
			if err != nil || ok {
				return err
			}
			if err := w.fill(); err != nil {
				return err
			}
		}
	}
	for _, length := range []uint32{0, 3, 1<<30 + 1, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		require.ErrorIs(t, first(binary.BigEndian.AppendUint32([]byte{'d'}, length)), ErrProtocol, length)
	}
	var large *RowTooLargeError
	require.ErrorAs(t, first(frame('E', make([]byte, 2000))), &large, "an error that long is none")
	require.NoError(t, first(frame('d', make([]byte, 2000))))

	reading := newWire(bytes.NewReader(frame('D', make([]byte, 2000))), 1000)
	_, err := reading.Read(make([]byte, 100))
	require.ErrorAs(t, err, &large, "before the stream")
}
