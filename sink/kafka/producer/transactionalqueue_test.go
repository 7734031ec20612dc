package producer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
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
