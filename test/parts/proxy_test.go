package parts_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// echo answers every connection with what it gets.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func through(t *testing.T, proxy *parts.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func roundTrip(conn net.Conn, patience time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func TestProxy_MakesTroubleOnDemand(t *testing.T) {
	proxy, err := parts.StartProxy(echo(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })

	conn := through(t, proxy)
	require.NoError(t, roundTrip(conn, 10*time.Second))
	require.Equal(t, 1, proxy.Connections())

	proxy.Delay(50 * time.Millisecond)
	begin := time.Now()
	require.NoError(t, roundTrip(conn, 10*time.Second))
	require.GreaterOrEqual(t, time.Since(begin), 100*time.Millisecond,
		"one delay for each direction")
	proxy.Delay(0)

	proxy.Stall()
	var timeout net.Error
	require.ErrorAs(t, roundTrip(conn, 100*time.Millisecond), &timeout)
	require.True(t, timeout.Timeout())
	proxy.Resume()
	require.NoError(t, roundTrip(conn, 10*time.Second))

	conn = through(t, proxy) // the old one has an unread answer
	require.NoError(t, roundTrip(conn, 10*time.Second))
	proxy.Cut()
	require.Error(t, roundTrip(conn, 10*time.Second))
	require.Zero(t, proxy.Connections())
	require.NoError(t, roundTrip(through(t, proxy), 10*time.Second))

	proxy.Refuse()
	require.Error(t, roundTrip(through(t, proxy), 10*time.Second))
	proxy.Resume()
	require.NoError(t, roundTrip(through(t, proxy), 10*time.Second))
}

func TestProxy_SlicesPacesLosesAndForgets(t *testing.T) {
	proxy, err := parts.StartProxy(echo(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })

	conn := through(t, proxy)
	proxy.Slice(1)
	proxy.Pace(1000)
	begin := time.Now()
	_, err = conn.Write(make([]byte, 50))
	require.NoError(t, err)
	n, err := io.ReadAtLeast(conn, make([]byte, 50), 50)
	require.NoError(t, err)
	require.Equal(t, 50, n)
	require.GreaterOrEqual(t, time.Since(begin), 49*time.Millisecond, "50 bytes at 1,000 a second")
	proxy.Slice(0)
	proxy.Pace(0)

	proxy.Forget()
	var timeout net.Error
	require.ErrorAs(t, roundTrip(conn, 100*time.Millisecond), &timeout)
	require.True(t, timeout.Timeout())
	conn = through(t, proxy)
	require.NoError(t, roundTrip(conn, 10*time.Second), "a new connection")

	proxy.Lose(1, 1)
	require.Error(t, roundTripTwice(conn))
	require.Equal(t, 1, proxy.Lost())
	proxy.Lose(0, 1)
	require.NoError(t, roundTrip(through(t, proxy), 10*time.Second))
}

// roundTripTwice fails also where the answer to the first still comes.
func roundTripTwice(conn net.Conn) error {
	if err := roundTrip(conn, 10*time.Second); err != nil {
		return err
	}
	return roundTrip(conn, 10*time.Second)
}
