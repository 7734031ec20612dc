package faults

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/test/parts"
)

// throughKafkaProxy leads the relay to the shared broker over a proxy of the test's own.
func (r *rig) throughKafkaProxy(t testing.TB) *parts.Proxy {
	t.Helper()
	require.Len(t, r.broker.Brokers(), 1)
	p, err := parts.StartProxy(r.broker.Brokers()[0])
	require.NoError(t, err)
	front, err := startFront(p.Addr(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, front.close())
		require.NoError(t, p.Close())
	})
	r.brokers = []string{front.listener.Addr().String()}
	return p
}

// front makes a proxy before a shared broker possible: clients go to the address that the broker's metadata name, so it puts its
// own there. Everything else passes through unchanged.
type front struct {
	listener net.Listener
	target   string
	host     string
	port     int32
	held     *heldRequest   // nil: none
	wg       sync.WaitGroup // the accept loop, and two goroutines for each connection

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// startFront starts one that holds back a request; held is nil: none.
func startFront(target string, held *heldRequest) (*front, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return nil, err
	}
	f := &front{listener: listener, target: target, host: host, port: int32(number), held: held, conns: map[net.Conn]struct{}{}}
	f.wg.Go(f.accept) // ends when close closes the listener
	return f, nil
}

func (f *front) close() error {
	f.mu.Lock()
	f.closed = true
	for conn := range f.conns {
		_ = conn.Close()
	}
	f.mu.Unlock()
	err := f.listener.Close()
	f.wg.Wait()
	return err
}

func (f *front) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		server, err := net.Dial("tcp", f.target)
		if err != nil || !f.serve(client, server) {
			_ = client.Close()
		}
	}
}

func (f *front) serve(client, server net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = server.Close()
		return false
	}
	f.conns[client], f.conns[server] = struct{}{}, struct{}{}
	asked := &requests{versions: map[uint32]int16{}, held: f.held, late: make(chan []byte, 1)}
	end := func() {
		_, _ = client.Close(), server.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, client)
		delete(f.conns, server)
	}
	// Each ends with either connection, and closes both.
	f.wg.Go(func() { defer end(); asked.pass(server, client) })
	f.wg.Go(func() { defer end(); f.answer(client, server, asked) })
	return true
}

// requests remembers which answers hold addresses.
type requests struct {
	held     *heldRequest // nil: none
	late     chan []byte  // answer to the held request; closed when no more answers come
	mu       sync.Mutex
	versions map[uint32]int16 // of metadata requests, by correlation id
	awaited  []byte           // correlation id of the held request
}

// pass hands requests on.
func (q *requests) pass(to io.Writer, from io.Reader) {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		head, err := in.Peek(6) // length, and which request it is
		if err != nil {
			return
		}
		var frame []byte
		late := false
		if q.held != nil && binary.BigEndian.Uint16(head[4:]) == uint16(kmsg.Produce) {
			frame, late, err = q.held.pass(in)
		} else {
			frame, err = readFrame(in)
		}
		if err != nil {
			return
		}
		q.mu.Lock()
		if len(frame) >= 12 && binary.BigEndian.Uint16(frame[4:]) == uint16(kmsg.Metadata) {
			q.versions[binary.BigEndian.Uint32(frame[8:])] = int16(binary.BigEndian.Uint16(frame[6:]))
		}
		if late {
			q.awaited = frame[8:12]
		}
		q.mu.Unlock()
		if _, err := to.Write(frame); err != nil {
			return
		}
		if late { // its sender is gone, with which this connection ends
			if answer, ok := <-q.late; ok {
				q.held.answered(answer)
			}
		}
	}
}

// take tells whether an answer is one to a metadata request.
func (q *requests) take(correlation uint32) (version int16, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	version, found = q.versions[correlation]
	delete(q.versions, correlation)
	return version, found
}

// isLate reports whether an answer is that to the held request.
func (q *requests) isLate(answer []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.awaited != nil && bytes.Equal(q.awaited, answer[4:8])
}

func (f *front) answer(to io.Writer, from io.Reader, asked *requests) {
	defer close(asked.late)
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		if asked.isLate(frame) {
			asked.late <- frame
			return
		}
		if version, found := asked.take(binary.BigEndian.Uint32(frame[4:])); found {
			if frame, err = f.redirect(frame, version); err != nil {
				return
			}
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// redirect puts the front's address in the place of each broker's.
func (f *front) redirect(frame []byte, version int16) ([]byte, error) {
	metadata := kmsg.NewPtrMetadataResponse()
	metadata.SetVersion(version)
	head := 8 // length, correlation id
	if metadata.IsFlexible() {
		head++ // no tags
	}
	if err := metadata.ReadFrom(frame[head:]); err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	for i := range metadata.Brokers {
		metadata.Brokers[i].Host, metadata.Brokers[i].Port = f.host, f.port
	}
	out := metadata.AppendTo(frame[:head:head])
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

// readFrame returns one request or answer with its length in front.
func readFrame(in *bufio.Reader) ([]byte, error) {
	length, err := in.Peek(4)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(length))
	if len(frame) < 8 {
		return nil, errors.New("frame without a correlation id")
	}
	_, err = io.ReadFull(in, frame)
	return frame, err
}
