package httpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	pollInterval = time.Second      // of the parts, for all clients together
	slowClient   = 10 * time.Second // a write that takes longer ends the client
	maxStreams   = 16               // each has a connection and about a megabyte for its compression
)

// stream sends changed parts to every open page. There are no queues: a client gets the newest
// parts when it can take them, so a slow one gets fewer and costs no memory.
type stream struct {
	parts []Part
	log   zerolog.Logger
	slow  time.Duration // slowClient, but for tests
	limit int           // maxStreams, but for tests

	closed chan struct{} // ends the poller and every client
	poller sync.WaitGroup

	mu      sync.Mutex // guards what follows, and the close of closed
	clients int
	running bool          // the poller; it ends by itself after the last client
	version uint64        // number of the last poll; 0: none since the poller started
	at      time.Time     // of that poll
	latest  []update      // by part; empty while the poller does not run
	polled  chan struct{} // closed, and replaced, after each poll
}

// update is the JSON of a part since a poll.
type update struct {
	data    []byte // nil: not encoded yet
	version uint64 // of the poll that found it changed
}

func newStream(parts []Part, log zerolog.Logger) *stream {
	return &stream{
		parts: parts, log: log, slow: slowClient, limit: maxStreams,
		closed: make(chan struct{}), polled: make(chan struct{}),
	}
}

// close ends every client at once and waits for the poller. Call it once.
func (s *stream) close() {
	s.mu.Lock() // so that enter starts no poller after Wait
	close(s.closed)
	s.mu.Unlock()
	s.poller.Wait()
}

// enter counts a client, and starts the poller for the first. false: there are too many.
func (s *stream) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
	}
	if s.clients >= s.limit {
		return false
	}
	s.clients++
	if !s.running {
		s.running = true
		s.latest = make([]update, len(s.parts))
		// Ends by itself within a second of the last client, or by close, which waits for it.
		s.poller.Go(s.run)
	}
	return true
}

func (s *stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients--
}

// run polls the parts for all clients, while there are any.
func (s *stream) run() {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for s.poll() {
		select {
		case <-tick.C:
		case <-s.closed:
			return
		}
	}
}

// poll returns false, and the poller ends, without clients.
func (s *stream) poll() bool {
	// Without the lock: parts have locks of their own.
	now := make([][]byte, len(s.parts))
	for i, p := range s.parts {
		now[i] = s.encode(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == 0 {
		s.running, s.latest, s.version = false, nil, 0 // the next client gets no old parts
		return false
	}
	s.version++
	s.at = time.Now()
	for i := range s.latest {
		if now[i] != nil && !bytes.Equal(now[i], s.latest[i].data) {
			s.latest[i] = update{now[i], s.version}
		}
	}
	close(s.polled)
	s.polled = make(chan struct{})
	return true
}

// encode returns nil for a part that fails: a bug of the page must not end the relay.
func (s *stream) encode(p Part) (data []byte) {
	defer func() {
		if fault := recover(); fault != nil {
			s.log.Error().Str("part", p.Name).Interface("error", fault).
				Msg("part of the status page failed")
			data = nil
		}
	}()
	data, err := json.Marshal(p.Get())
	if err != nil {
		s.log.Error().Str("part", p.Name).Err(err).Msg("part of the status page not encoded")
		return nil
	}
	return data
}

// since returns the parts that changed after a version, as server-sent events, the last version,
// and a channel that the next poll closes.
func (s *stream) since(version uint64) (events []byte, last uint64, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	for i, u := range s.latest {
		if u.version > version {
			fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", s.parts[i].Name, u.data)
		}
	}
	if s.version > version {
		// A sign of life even if nothing changes, with our clock for the ages on the page. It comes
		// last, as the end of what belongs together.
		fmt.Fprintf(&b, "event: tick\ndata: {\"at\":%q}\n\n", s.at.UTC().Format(time.RFC3339Nano))
	}
	return b.Bytes(), s.version, s.polled
}
