package cli

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// supervisor is systemd, if it started us with Type=notify: it wants to know when we are ready, what we do, and that we still
// do it. The zero value is "no such supervisor"; every method is then without effect.
type supervisor struct {
	socket   string        // address of the datagram socket
	interval time.Duration // WatchdogSec; zero: no watchdog
}

// newSupervisor reads what systemd put into the environment.
func (a *app) newSupervisor(pid int) supervisor {
	s := supervisor{socket: a.env("NOTIFY_SOCKET")}
	if strings.HasPrefix(s.socket, "@") {
		s.socket = "\x00" + s.socket[1:] // abstract namespace
	}
	usec, err := strconv.ParseInt(a.env("WATCHDOG_USEC"), 10, 64)
	if err == nil && usec > 0 && (a.env("WATCHDOG_PID") == "" || a.env("WATCHDOG_PID") == strconv.Itoa(pid)) {
		s.interval = time.Duration(usec) * time.Microsecond
	}
	return s
}

// ready says that configuration and listeners are up.
func (s supervisor) ready() error { return s.notify("READY=1") }

// stopping says that the process drains and will end.
func (s supervisor) stopping() error { return s.notify("STOPPING=1") }

// alive feeds the watchdog and shows status in `systemctl status`. Call it from what has to make progress, not from a timer.
func (s supervisor) alive(status string) error {
	return s.notify("WATCHDOG=1\nSTATUS=" + strings.ReplaceAll(status, "\n", " "))
}

// feedEvery is how often alive has to be called: half of what systemd allows. Zero: there is no watchdog.
func (s supervisor) feedEvery() time.Duration { return s.interval / 2 }

func (s supervisor) notify(state string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
