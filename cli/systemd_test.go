package cli

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSupervisor_TellsSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	received := func() string {
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}

	a := &app{Process: Process{Env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=60000000", "WATCHDOG_PID=42"}}}
	s := a.newSupervisor(42)
	require.Equal(t, 30*time.Second, s.feedEvery())
	require.NoError(t, s.ready())
	require.Equal(t, "READY=1", received())
	require.NoError(t, s.alive("streaming,\nlag 0 B"))
	require.Equal(t, "WATCHDOG=1\nSTATUS=streaming, lag 0 B", received())
	require.NoError(t, s.stopping())
	require.Equal(t, "STOPPING=1", received())
}

func TestSupervisor_IsSilentWithoutSystemd(t *testing.T) {
	s := (&app{}).newSupervisor(42)
	require.Zero(t, s.feedEvery())
	require.NoError(t, s.ready())
	require.NoError(t, s.alive("streaming"))
}

func TestSupervisor_LeavesTheWatchdogOfAnotherProcess(t *testing.T) {
	a := &app{Process: Process{Env: []string{"WATCHDOG_USEC=60000000", "WATCHDOG_PID=41"}}}
	require.Zero(t, a.newSupervisor(42).feedEvery())
	a.Env = []string{"WATCHDOG_USEC=many"}
	require.Zero(t, a.newSupervisor(42).feedEvery())
}

func TestSupervisor_SaysThatTheSocketIsGone(t *testing.T) {
	a := &app{Process: Process{Env: []string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "gone")}}}
	require.ErrorContains(t, a.newSupervisor(42).ready(), "notify systemd")
}
