package kafka

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

// A broker that hangs reads nothing. What is written to it then waits in the kernel of the relay, and
// must not arrive once the connection is closed.
func TestDialer_DiscardsWhatWasNotSent(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *dialer, net.Conn){
		"the session is cut": func(_ *testing.T, d *dialer, _ net.Conn) { d.cut(sink.ErrClosed) },
		"the connection is closed": func(t *testing.T, _ *dialer, conn net.Conn) {
			require.NoError(t, conn.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			cfg := quick(listener.Addr().String())
			d := newDialer(&cfg)
			defer d.cut(sink.ErrClosed)
			conn, err := d.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			broker, err := listener.Accept()
			require.NoError(t, err)
			defer broker.Close()

			require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
			sent, err := conn.Write(make([]byte, 64<<20))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nothing is left unsent")
			end(t, d, conn)

			require.NoError(t, broker.SetReadDeadline(time.Now().Add(patience)))
			arrived, err := io.Copy(io.Discard, broker)
			t.Logf("%d bytes taken by the kernel, %d arrived: %v", sent, arrived, err)
			require.Less(t, arrived, int64(sent))
			require.True(t, errors.Is(err, syscall.ECONNRESET), "%v", err)
		})
	}
}
