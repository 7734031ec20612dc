package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// hostile is a server that is not to be trusted: it begins like a walsender, and goes on as a test has it.
type hostile struct {
	greet    func(net.Conn)                   // instead of everything else
	identify func(*pgproto3.Backend)          // instead of the answer to IDENTIFY_SYSTEM
	slot     func(*pgproto3.Backend)          // instead of the answer about the slot
	stream   func(net.Conn)                   // what follows START_REPLICATION
	status   func(write, flush pglogrepl.LSN) // receives each status that comes
}

const hostileSeed = pglogrepl.LSN(0x1000)

func rows(b *pgproto3.Backend, columns int, rows ...[]string) {
	fields := make([]pgproto3.FieldDescription, columns)
	for i := range fields {
		fields[i] = pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: 25, TypeModifier: -1}
	}
	b.Send(&pgproto3.RowDescription{Fields: fields})
	for _, r := range rows {
		row := &pgproto3.DataRow{Values: make([][]byte, len(r))}
		for i, v := range r {
			row.Values[i] = []byte(v)
		}
		b.Send(row)
	}
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

func (h hostile) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	if h.greet != nil {
		_, _ = c.Read(make([]byte, 4096)) // the start-up message
		h.greet(c)
		return
	}
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "17.0"})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for {
		if b.Flush() != nil {
			return
		}
		m, err := b.Receive()
		if err != nil {
			return
		}
		q, _ := m.(*pgproto3.Query)
		switch {
		case q == nil:
			return
		case strings.HasPrefix(q.String, "IDENTIFY_SYSTEM") && h.identify != nil:
			h.identify(b)
		case strings.HasPrefix(q.String, "IDENTIFY_SYSTEM"):
			rows(b, 4, []string{"7", "1", "0/2000", "shop"})
		case strings.HasPrefix(q.String, "SELECT") && h.slot != nil:
			h.slot(b)
		case strings.HasPrefix(q.String, "SELECT"):
			rows(b, 3, []string{hostileSeed.String(), "f", "reserved"})
		default:
			b.Send(&pgproto3.CopyBothResponse{})
			if b.Flush() == nil {
				h.stay(c, b)
			}
			return
		}
	}
}

// stay streams, and reads what comes meanwhile.
func (h hostile) stay(c net.Conn, b *pgproto3.Backend) {
	gone := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() { // ends with the connection
		defer close(gone)
		for {
			m, err := b.Receive()
			if err != nil {
				return
			}
			if d, ok := m.(*pgproto3.CopyData); ok && len(d.Data) == 34 && h.status != nil {
				h.status(pglogrepl.LSN(binary.BigEndian.Uint64(d.Data[1:])), pglogrepl.LSN(binary.BigEndian.Uint64(d.Data[9:])))
			}
			if _, ok := m.(*pgproto3.CopyDone); ok {
				return
			}
		}
	})
	h.stream(c)
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
	}
	_ = c.Close()
	reading.Wait()
}

// start listens until the end of the test.
func (h hostile) start(t testing.TB) *pgconn.Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	var open sync.Map // so that a test that panics does not wait for its own connection
	t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		all.Wait()
	})
	all.Go(func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(c, nil)
			all.Go(func() { h.serve(c) })
		}
	})
	pg, err := pgconn.ParseConfig(fmt.Sprintf("postgres://u@%s/shop?sslmode=disable", l.Addr()))
	require.NoError(t, err)
	return pg
}

// relayFrom opens and runs a stream with a caller that acknowledges anything, until an error ends it, and returns what came.
func relayFrom(t testing.TB, pg *pgconn.Config, seen func(*Event)) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cfg := DefaultConfig()
	cfg.StatusInterval = 100 * time.Millisecond
	cfg.MaxRowBytes = 1 << 20
	s, err := Open(ctx, pg, cfg, "slot", zerolog.Nop())
	if err != nil {
		require.NoError(t, ctx.Err(), "hung in Open: %v", err)
		return err
	}
	out := make(chan *Batch, 1)
	ended := make(chan error, 1)
	go func() { // ends with Run
		ended <- s.Run(ctx, context.WithoutCancel(ctx), out, func() pglogrepl.LSN { return math.MaxUint64 })
	}()
	for b := range out {
		for i := range b.Events {
			seen(&b.Events[i])
		}
		b.Release()
	}
	err = <-ended
	closed, cancelNow := context.WithCancel(ctx)
	cancelNow()
	_ = s.Finish(closed, nil) // the server may be gone
	require.NoError(t, ctx.Err(), "hung in Run: %v", err)
	return err
}

func copyData(at pglogrepl.LSN, msg []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+25+len(msg)))
	b = binary.BigEndian.AppendUint64(append(b, 'w'), uint64(at))
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = binary.BigEndian.AppendUint64(b, sentAt)
	return append(b, msg...)
}

func keepalive(end pglogrepl.LSN, reply byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'d'}, 4+18)
	b = binary.BigEndian.AppendUint64(append(b, 'k'), uint64(end))
	return append(binary.BigEndian.AppendUint64(b, sentAt), reply)
}

func sends(what ...[]byte) func(net.Conn) {
	return func(c net.Conn) {
		for _, b := range what {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}
}

// endless sends pieces until the reader has gone, at most what would show in the memory.
func endless(c net.Conn, piece func(i uint64) []byte) {
	sent := 0
	for i := uint64(1); sent < 8<<20; i++ {
		var many []byte
		for len(many) < 64<<10 {
			many = append(many, piece(i)...)
			i++
		}
		n, err := c.Write(many)
		if sent += n; err != nil {
			return
		}
	}
	_ = c.(*net.TCPConn).CloseWrite()
}

func forever(piece func(i uint64) []byte) func(net.Conn) {
	return func(c net.Conn) { endless(c, piece) }
}

func TestStream_AHostileServerNeitherCrashesNorFillsIt(t *testing.T) {
	many := make([]string, 1500)
	for i := range many {
		many[i] = fmt.Sprint("column", i)
	}
	honest := [][]byte{
		copyData(0x1100, beginMessage(0x1200, commitTime, 1)), copyData(0, relationMessage(1, "public", "outbox", "id", "payload")),
		copyData(0x1100, insertMessage(1, "a", "b")),
	}
	tooMany := relationMessage(1, "public", "outbox", make([]string, 5000)...)
	for name, h := range map[string]hostile{
		"nothing at all":                     {greet: func(net.Conn) {}},
		"another protocol":                   {greet: func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }},
		"a greeting of a gigabyte":           {greet: func(c net.Conn) { _, _ = c.Write([]byte{'R', 0x3f, 0xff, 0xff, 0xff, 0, 0, 0, 0}) }},
		"a greeting of a negative length":    {greet: func(c net.Conn) { _, _ = c.Write([]byte{'R', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}) }},
		"parameters without an end":          {greet: func(c net.Conn) { endless(c, func(i uint64) []byte { return parameter(fmt.Sprint("p", i)) }) }},
		"rows of the identity without end":   {identify: func(b *pgproto3.Backend) { endlessRows(b, 4) }},
		"an identity with too few columns":   {identify: func(b *pgproto3.Backend) { rows(b, 1, []string{"7"}) }},
		"an identity that is no number":      {identify: func(b *pgproto3.Backend) { rows(b, 4, []string{"x", "99999999999999999999", "0/", "shop"}) }},
		"an identity without rows":           {identify: func(b *pgproto3.Backend) { rows(b, 4) }},
		"rows about the slot without end":    {slot: func(b *pgproto3.Backend) { endlessRows(b, 3) }},
		"a slot with too few columns":        {slot: func(b *pgproto3.Backend) { rows(b, 1, []string{"0/1"}) }},
		"a slot with no columns":             {slot: func(b *pgproto3.Backend) { rows(b, 0, []string{}) }},
		"a slot at no position":              {slot: func(b *pgproto3.Backend) { rows(b, 3, []string{"0/0", "f", "reserved"}) }},
		"a slot at a wrong position":         {slot: func(b *pgproto3.Backend) { rows(b, 3, []string{"16/1x", "f", "reserved"}) }},
		"a frame of four gigabytes":          {stream: sends(append(honest, []byte{'d', 0xff, 0xff, 0xff, 0xff, 'w'})...)},
		"a frame longer than any row":        {stream: sends(append(honest, []byte{'d', 0, 0x20, 0, 0, 'w'})...)},
		"a frame that is shorter than short": {stream: sends(append(honest, []byte{'d', 0, 0, 0, 3, 'w'})...)},
		"a frame that is cut off":            {stream: sends(append(honest, []byte{'d', 0, 0, 0, 99, 'w'})...)},
		"a frame without its header":         {stream: sends(append(honest, []byte{'d', 0, 0, 0, 5, 'w'})...)},
		"a keepalive that is too short":      {stream: sends(append(honest, []byte{'d', 0, 0, 0, 5, 'k'})...)},
		"an error that cannot be read":       {stream: sends(append(honest, []byte{'E', 0, 0, 0, 8, 'S', 'S', 'S', 'S'})...)},
		"a notice that cannot be read":       {stream: sends(append(honest, []byte{'N', 0, 0, 0, 8, 'S', 'S', 'S', 'S'})...)},
		"more columns than tables have":      {stream: sends(append(honest, copyData(0, tooMany))...)},
		"transactions with nothing in them, without end": {stream: forever(func(i uint64) []byte {
			return append(copyData(0, beginMessage(pglogrepl.LSN(i), commitTime, 1)), copyData(0, commitMessage(pglogrepl.LSN(i), pglogrepl.LSN(i)))...)
		})},
		"keepalives that request an answer, without end": {stream: forever(func(i uint64) []byte { return keepalive(pglogrepl.LSN(i), 1) })},
		"rows of nothing, in one transaction without end": {stream: func(c net.Conn) {
			_, _ = c.Write(copyData(0x1100, beginMessage(0x1200, commitTime, 1)))
			_, _ = c.Write(copyData(0, relationMessage(1, "public", "outbox", many...)))
			row := copyData(0x1100, insertMessage(1, make([]any, len(many))...))
			endless(c, func(uint64) []byte { return row })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if h.stream == nil {
				h.stream = sends()
			}
			pg := h.start(t)
			before := heap()
			var events, peak uint64
			err := relayFrom(t, pg, func(e *Event) {
				if e.Kind == Insert && len(e.Values) != len(e.Relation.Columns) {
					t.Fatal("row of another shape")
				}
				if events++; events%50_000 == 0 {
					peak = max(peak, heap())
				}
			})
			require.Error(t, err)
			t.Log(err)
			require.Less(t, max(peak, heap()), before+32<<20, "bytes of memory")
		})
	}
}

func TestDecoder_BoundsWhatItRemembersOfTables(t *testing.T) {
	columns := slices.Repeat([]string{strings.Repeat("x", 4000)}, 10)
	d, b := newDecoder(), &Batch{}
	for range 1000 { // a table whose shape changes all the time takes no more than one
		require.NoError(t, d.decode(relationMessage(1, "public", "outbox", columns...), 0, sentAt, b))
	}
	var err error
	n := uint32(2)
	for ; err == nil; n++ {
		err = d.decode(relationMessage(n, "public", "outbox", columns...), 0, sentAt, b)
	}
	require.ErrorIs(t, err, ErrTooManyTables)
	require.ErrorContains(t, err, "public.outbox")
	require.InDelta(t, maxRelationBytes/(10*4010), n, 20)
	require.ErrorIs(t, newDecoder().decode(relationMessage(1, "public", "outbox", make([]string, maxColumns+1)...), 0, sentAt, b), ErrProtocol)
}

// TestStream_TakesAnyBytesForAStream feeds what comes to mind of a generator, behind an honest beginning.
func TestStream_TakesAnyBytesForAStream(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, i))
		stream := append(copyData(0x1100, beginMessage(0x1200, commitTime, 1)), copyData(0, relationMessage(1, "public", "outbox", "id", "payload"))...)
		for range r.IntN(4) {
			stream = append(stream, copyData(0x1100, insertMessage(1, "a", "b"))...)
		}
		for range 1 + r.IntN(5) {
			stream[r.IntN(len(stream))] = byte(r.Uint32())
		}
		err := relayFrom(t, hostile{stream: sends(stream)}.start(t), func(*Event) {})
		require.Error(t, err)
	}
}

// TestStream_ConfirmsNothingBeyondWhatTheServerHasSent is row 35 of the fault matrix: a caller that acknowledges a position
// that does not exist yet. PostgreSQL believes any flush position, and what is inserted later would never be sent.
func TestStream_ConfirmsNothingBeyondWhatTheServerHasSent(t *testing.T) {
	var mu sync.Mutex
	sent := hostileSeed
	var flushes []pglogrepl.LSN
	answered := make(chan struct{}, 1)
	h := hostile{
		status: func(write, flush pglogrepl.LSN) {
			mu.Lock()
			defer mu.Unlock()
			flushes = append(flushes, flush)
			if flush > sent || write > sent || flush < hostileSeed {
				t.Errorf("write %s, flush %s, but nothing was sent beyond %s", write, flush, sent)
			}
			select {
			case answered <- struct{}{}:
			default:
			}
		},
		stream: func(c net.Conn) {
			for i := range pglogrepl.LSN(300) {
				at := hostileSeed + 10*i
				mu.Lock()
				if i%3 != 2 {
					sent = max(sent, at) // before it is on its way
				}
				mu.Unlock()
				switch i % 3 {
				case 0:
					_, _ = c.Write(keepalive(at, byte(i&1)))
					if i&1 != 0 { // the answer comes in between
						select {
						case <-answered:
						case <-time.After(20 * time.Second):
							t.Error("a keepalive that requests an answer got none")
						}
					}
				case 1:
					_, _ = c.Write(append(copyData(at-5, beginMessage(at-5, commitTime, 1)), append(
						copyData(0, relationMessage(1, "public", "outbox", "id")), append(
							copyData(at-5, insertMessage(1, "a")), copyData(at, commitMessage(at-5, at))...)...)...))
				case 2: // the position of a keepalive in a transaction means nothing
					_, _ = c.Write(append(copyData(at+1, beginMessage(at+7, commitTime, 1)), append(keepalive(at+1_000_000, 1),
						copyData(at, commitMessage(at-15, at-15))...)...))
				}
			}
			_ = c.(*net.TCPConn).CloseWrite()
		},
	}
	require.Error(t, relayFrom(t, h.start(t), func(*Event) {}))
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, flushes)
	require.Greater(t, flushes[len(flushes)-1], hostileSeed, "but what was sent is confirmed")
}

func parameter(name string) []byte {
	b, err := (&pgproto3.ParameterStatus{Name: name, Value: strings.Repeat("x", 1000)}).Encode(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func endlessRows(b *pgproto3.Backend, columns int) {
	b.Send(&pgproto3.RowDescription{Fields: make([]pgproto3.FieldDescription, columns)})
	row := &pgproto3.DataRow{Values: make([][]byte, columns)}
	for i := range row.Values {
		row.Values[i] = make([]byte, 10_000)
	}
	for range 10_000 {
		b.Send(row)
		if b.Flush() != nil {
			return
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
