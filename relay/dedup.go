package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// signer writes the source headers of transactions into a chunk, which saves allocations.
type signer struct {
	header      string // sink.Source.Header of the session
	chunk       []byte
	committedAt time.Time // commit time of the open transaction
	signature   []byte    // of the open transaction; nil until a message needs it
}

func (s *signer) begin(committedAt time.Time) { s.committedAt, s.signature = committedAt, nil }

func (s *signer) sign(source sink.Source) []byte {
	if s.signature != nil {
		return s.signature
	}
	const chunk, number = 4096, 20 // bytes; an int64 has 20
	if s.header == "" {
		s.header = source.Header()
	}
	if longest := len(s.header) + 1 + number; cap(s.chunk)-len(s.chunk) < longest {
		s.chunk = make([]byte, 0, max(chunk, longest))
	}
	start := len(s.chunk)
	s.chunk = sink.AppendSignature(s.chunk, s.header, s.committedAt)
	s.signature = s.chunk[start:len(s.chunk):len(s.chunk)]
	return s.signature
}

// alreadyPublished reports whether an earlier session has published m, and signs it if not. The
// search is sink/kafka/producer/tail.go.
func (s *session) alreadyPublished(ctx context.Context, e *replication.Event, m *sink.Message,
) (bool, error) {
	// A message outside of a transaction may end where a commit record begins, and so have its
	// position. Dead letters have no order: their handler recognizes them by ID.
	if e.XID == 0 || s.isDeadLetter(m.Topic) {
		return false, nil
	}
	if s.dedup == nil {
		if n := len(m.Headers); n > 0 && m.Headers[n-1].Key == router.HeaderIndex {
			s.sign(m)
		}
		return false, nil
	}
	// Published may read the end of the topic.
	s.inSink.Store(true)
	published, err := s.dedup.Published(ctx, s.source, m)
	s.sinkReturned()
	if published {
		s.metrics.EventsRepeated.Inc()
		return true, err
	}
	s.sign(m)
	return false, err
}

// sign adds the header with the source, by which sessions and audits compare positions.
func (s *session) sign(m *sink.Message) {
	signed := func(h sink.Header) bool { return h.Key == sink.HeaderSource }
	if !slices.ContainsFunc(m.Headers, signed) { // a dead letter may have it from the row
		m.Headers = append(m.Headers,
			sink.Header{Key: sink.HeaderSource, Value: s.signer.sign(s.source)})
	}
}
