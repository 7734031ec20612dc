// Package stdout is the sink that prints each message as one line of JSON. A message counts as
// delivered when the writer has taken it, so this sink is for looking at, in demos and dry runs: a
// pipe promises nothing.
//
//	encode.go the line of a message
package stdout

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/postrider/postrider/sink"
)

// Sink writes to one writer. Publish is for one goroutine; Close may be called from any.
type Sink struct {
	done sink.Done

	mu     sync.Mutex // guards what follows
	out    *bufio.Writer
	line   []byte
	closed bool
	broken error // of the writer: what follows cannot be in order any more
}

// Open returns a sink.Open whose sinks write to w. Sessions follow each other; w is not closed.
func Open(w io.Writer) sink.Open {
	return func(ctx context.Context, done sink.Done) (sink.Sink, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return &Sink{done: done, out: bufio.NewWriterSize(w, 64<<10)}, nil
	}
}

// Topic is there, whatever its name.
func (s *Sink) Topic(context.Context, string) error { return nil }

// Publish prints the messages and reports them before it returns. A writer that blocks makes it
// block, also after ctx has ended.
func (s *Sink) Publish(ctx context.Context, ms []*sink.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return sink.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.broken != nil:
		return s.broken
	}
	for _, m := range ms {
		s.line = append(Encode(s.line[:0], m), '\n')
		if _, err := s.out.Write(s.line); err != nil {
			break // the writer keeps its error: Flush returns it
		}
	}
	if err := s.out.Flush(); err != nil {
		s.broken = fmt.Errorf("write messages: %w", err)
	}
	for _, m := range ms {
		if s.broken != nil {
			s.done(m, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: s.broken})
			continue
		}
		s.done(m, nil)
	}
	return s.broken
}

// Close has nothing to wait for.
func (s *Sink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
