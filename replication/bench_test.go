package replication

import (
	"context"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// repeated hands out the same bytes again and again.
type repeated struct {
	data []byte
	at   int
}

func (e *repeated) Read(p []byte) (int, error) {
	n := copy(p, e.data[e.at:])
	e.at = (e.at + n) % len(e.data)
	return n, nil
}

// carried is a pgoutput message as a walsender sends it.
func carried(message []byte) []byte {
	return frame('d', append(binary.BigEndian.AppendUint64([]byte{'w'}, 1<<40), append(make([]byte, 16), message...)...))
}

// shape is a table, and a row of it.
type shape struct {
	columns []string
	row     []any
}

var (
	plainShape = shape{
		columns: []string{"id", "aggregatetype", "aggregateid", "type", "payload"},
		row:     []any{"da8d6de6-3b77-45ff-8f44-57db55a7a06c", "order", "agg-4711", "Created", `{"pad": "` + strings.Repeat("x", 190) + `"}`},
	}
	wideShape = shape{
		columns: append([]string{"tenant", "trace", "span", "source", "region", "user", "version", "created_at"}, plainShape.columns...),
		row: append([]any{"acme", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "checkout", "eu-1", nil, "3", "2026-05-06 07:08:09.123456+00"},
			plainShape.row...),
	}
)

// backlog is a stream without a server: transactions of that many rows, without end.
func backlog(t testing.TB, s shape, rows int) (*Stream, func() *Batch) {
	t.Helper()
	source := &repeated{}
	for range 1000 {
		source.data = append(source.data, carried(beginMessage(1<<40, commitTime, 7))...)
		for range rows {
			source.data = append(source.data, carried(insertMessage(16400, s.row...))...)
		}
		source.data = append(source.data, carried(commitMessage(1<<40, 1<<40))...)
	}
	stream := &Stream{wire: newWire(io.Reader(source), 1<<20), decoder: newDecoder(), log: zerolog.Nop()}
	require.NoError(t, stream.decoder.decode(relationMessage(16400, "public", "outbox", s.columns...), 0, 0, &Batch{}))
	spare := make(batches, 1)
	return stream, func() *Batch {
		b := spare.take()
		_, err := stream.decodeBuffered(b, context.Background())
		require.NoError(t, err)
		require.NoError(t, stream.wire.fill())
		return b
	}
}

// decodeRows decodes at least that many rows.
func decodeRows(rows int, next func() *Batch) {
	for rows > 0 {
		b := next()
		for i := range b.Events {
			if b.Events[i].Kind == Insert {
				rows--
			}
		}
		b.Release()
	}
}

// One operation is one row, with its share of Begin, Commit and reads.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name string
		of   shape
		rows int
	}{
		{"plain/rows=1", plainShape, 1},
		{"plain/rows=10", plainShape, 10},
		{"plain/rows=1000", plainShape, 1000},
		{"wide/rows=10", wideShape, 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, next := backlog(b, c.of, c.rows)
			decodeRows(10_000, next)
			b.ReportAllocs()
			b.ResetTimer()
			decodeRows(b.N, next)
		})
	}
}

// The bytes of rows are read into chunks, which are used again, and nothing else is made for a row.
func TestDecode_AllocatesNothingPerRow(t *testing.T) {
	const rows = 10_000
	for name, of := range map[string]shape{"plain": plainShape, "wide": wideShape} {
		_, next := backlog(t, of, 10)
		decodeRows(rows, next)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decodeRows(rows, next)
		runtime.ReadMemStats(&after)
		require.Less(t, after.Mallocs-before.Mallocs, uint64(rows/20), name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*ChunkBytes), name)
	}
}
