package kafka

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

// What a sink that was closed has not sent never comes: its connections are gone, and it gets no
// others, though it may still have goroutines.
func TestSink_SendsNothingAfterItsConnectionsWereCut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	accepted := make(chan net.Conn, 2)
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	cfg := quick(listener.Addr().String())
	d := NewDialer(&cfg)
	conn, err := d.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	peer := <-accepted
	d.Cut(sink.ErrClosed)
	_, err = conn.Write([]byte("late"))
	require.Error(t, err)
	n, err := peer.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, syscall.ECONNRESET, "what was not sent is discarded")
	require.NoError(t, peer.Close())
	_, err = d.Dial("tcp", listener.Addr().String())
	require.ErrorIs(t, err, sink.ErrClosed)
}
