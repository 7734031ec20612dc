package daemon

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
)

// notifySocket is what systemd listens on. The function returns the next message.
func notifySocket(t *testing.T) (path string, received func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	return path, func() string {
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
}

// told is a supervisor whose messages go into a list instead.
func told() (*supervisor, *[]string) {
	var messages []string
	return &supervisor{send: func(m string) error { messages = append(messages, m); return nil }}, &messages
}

// looked is a report of a relay whose loop turned at a time.
func looked(phase relay.Phase, turned time.Time) status.Report {
	return status.Report{Relay: relay.State{Phase: phase, LastProgress: turned, ConfirmedFlushLSN: 1}, Verdict: health.Verdict{State: health.OK}}
}

func TestSupervisor_TellsSystemd(t *testing.T) {
	path, received := notifySocket(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "60000000")
	t.Setenv("WATCHDOG_PID", "")
	s := newSupervisor(os.Getenv, zerolog.Nop())
	require.Equal(t, time.Minute, s.watchdog)

	now := time.Now()
	r := looked(relay.Streaming, now)
	r.Slot = slot.Status{LagBytes: new(int64(1536)), RetainedBytes: new(int64(16 << 20))}
	s.look(now, r)
	require.Equal(t, "READY=1\nWATCHDOG=1\nSTATUS=streaming, lag 1.5 KiB, retained 16.0 MiB", received())

	reloaded := false
	s.reload(func() {
		reloaded = true
		require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=[0-9]+$`, received())
	})
	require.True(t, reloaded)
	require.Equal(t, "READY=1", received())

	s.stop()
	require.Equal(t, "STOPPING=1\nEXTEND_TIMEOUT_USEC=60000000", received())
	r.Relay.Phase, r.Verdict = relay.Halted, health.Verdict{State: health.Failing, Reason: "slot \"a\"\nis lost"}
	s.end(r)
	require.Equal(t, "STATUS=halted, lag 1.5 KiB, retained 16.0 MiB: slot \"a\" is lost", received(), "one line: another would be another assignment")
}

func TestSupervisor_IsReadyWhenTheSlotIsHeldOrSomebodyElseHoldsIt(t *testing.T) {
	for phase, want := range map[relay.Phase]bool{
		relay.Starting: false, relay.BackingOff: false, relay.Halted: false,
		relay.Streaming: true, relay.Snapshotting: true, relay.Standby: true, relay.Paused: true,
	} {
		s, messages := told()
		s.look(time.Now(), looked(phase, time.Now()))
		require.Equal(t, want, strings.Contains(strings.Join(*messages, "\n"), "READY=1"), phase)
		require.Equal(t, want, s.ready)
	}
	s, _ := told()
	r := looked(relay.Streaming, time.Now())
	r.Relay.ConfirmedFlushLSN = 0
	s.look(time.Now(), r)
	require.False(t, s.ready, "no position of the slot is known")
}

func TestSupervisor_AsksForTimeWhileItStartsAndStopsAsLongAsTheLoopTurns(t *testing.T) {
	s, messages := told()
	extended := func() bool {
		n := len(*messages)
		said := n > 0 && strings.Contains((*messages)[n-1], "EXTEND_TIMEOUT_USEC=60000000")
		*messages = nil
		return said
	}
	now := time.Now()
	look := func(phase relay.Phase, turned time.Time) bool {
		now = now.Add(extendEvery)
		s.look(now, looked(phase, turned))
		return extended()
	}
	require.True(t, look(relay.Starting, now))
	require.True(t, look(relay.BackingOff, now), "the database is away: nothing is wrong with the process")
	turned := now
	require.True(t, look(relay.BackingOff, turned.Add(time.Second)))
	require.False(t, look(relay.BackingOff, turned.Add(time.Second)), "it hangs")
	require.False(t, look(relay.Streaming, now), "it has started")
	s.stop()
	require.True(t, extended())
	require.True(t, look(relay.Draining, now))
	require.False(t, look(relay.Draining, s.progress))
}

func TestSupervisor_FeedsTheWatchdogOnlyWhileTheLoopTurns(t *testing.T) {
	s, messages := told()
	s.watchdog = 20 * time.Second
	fed := func(now, turned time.Time) bool {
		*messages = nil
		s.look(now, looked(relay.Streaming, turned))
		return strings.Contains(strings.Join(*messages, "\n"), "WATCHDOG=1")
	}
	now := time.Now()
	require.True(t, fed(now, now))
	require.False(t, fed(now.Add(9*time.Second), now.Add(9*time.Second)), "not more often than is needed")
	require.True(t, fed(now.Add(10*time.Second), now.Add(10*time.Second)))
	for i := 11; i < 60; i++ { // it turned once more and then hangs: what it did since the last meal does not count
		require.False(t, fed(now.Add(time.Duration(i)*time.Second), now.Add(11*time.Second)), i)
	}
	require.True(t, fed(now.Add(time.Minute), now.Add(time.Minute)))
}

func TestSupervisor_SaysWhatItDoesWhenThatChanges(t *testing.T) {
	s, messages := told()
	now := time.Now()
	s.look(now, looked(relay.Standby, now))
	s.look(now.Add(time.Second), looked(relay.Standby, now))
	s.look(now.Add(2*time.Second), looked(relay.Streaming, now))
	require.Equal(t, []string{"READY=1\nSTATUS=standby", "STATUS=streaming"}, *messages)
	s.look(now.Add(12*time.Second), looked(relay.Streaming, now))
	require.Len(t, *messages, 3, "figures change, but not each second")
}

func TestSupervisor_DoesNotTakeAReloadForReadiness(t *testing.T) {
	s, messages := told()
	s.look(time.Now(), looked(relay.BackingOff, time.Now()))
	*messages = nil
	s.reload(func() {})
	require.Empty(t, *messages)
}

func TestSupervisor_IsSilentWithoutSystemd(t *testing.T) {
	s := newSupervisor(func(string) string { return "" }, zerolog.Nop())
	require.Nil(t, s)
	reloaded := false
	s.look(time.Now(), status.Report{})
	s.reload(func() { reloaded = true })
	s.stop()
	s.end(status.Report{})
	require.True(t, reloaded)
}

func TestSupervisor_SaysOnceThatTheSocketIsGone(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	t.Setenv("NOTIFY_SOCKET", gone)
	t.Setenv("WATCHDOG_USEC", "many")
	var log bytes.Buffer
	s := newSupervisor(func(string) string { return gone }, zerolog.New(&log))
	require.Contains(t, log.String(), "watchdog is not fed")
	now := time.Now()
	for i := range 3 {
		s.look(now.Add(time.Duration(i)*time.Minute), looked(relay.Streaming, now))
	}
	require.Equal(t, 1, strings.Count(log.String(), "systemd not notified"))
}
