package producer

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// A Publish that has passed its check of the sink before Close would otherwise add a message that
// nothing takes: it would never be reported.
func TestQueue_RefusesWhatComesAfterTheEnd(t *testing.T) {
	q := newWriterQueue()
	first := entry{message: &sink.Message{Value: []byte("1")}}
	require.True(t, q.add(first))
	require.Equal(t, []entry{first}, q.close())
	require.False(t, q.add(entry{message: &sink.Message{Value: []byte("2")}}))
	require.Empty(t, q.take())
}

// The writer can report a message as soon as it is in the queue: reported must not exceed
// published.
func TestTransactional_CountsAMessageBeforeItIsInTheQueue(t *testing.T) {
	s := &TransactionalSink{queue: newWriterQueue()}
	s.setup(kafka.DefaultConfig(), zerolog.Nop(), func(*sink.Message, error) {})
	message := entry{message: &sink.Message{Value: []byte("1")}}
	added := make(chan error, 1)
	s.queue.mu.Lock()
	go func() { added <- s.add(t.Context(), message) }()
	counted := func() bool { return s.published.Load() == 1 }
	require.Eventually(t, counted, patience, time.Millisecond)
	s.queue.mu.Unlock()
	require.NoError(t, <-added)
	require.EqualValues(t, 1, s.published.Load())

	s.queue.close()
	s.refuse()
	require.ErrorIs(t, s.add(t.Context(), message), sink.ErrClosed)
	require.EqualValues(t, 1, s.published.Load(), "what was not taken")
}
