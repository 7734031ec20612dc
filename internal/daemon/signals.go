package daemon

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// sameSignal is how soon a second signal still counts as the first: a supervisor that signals a
// process and its group, like timeout(1), sends two.
const sameSignal = 250 * time.Millisecond

// Signals returns two contexts: stop ends with the first SIGTERM or SIGINT, kill with the second.
//
// With stop, the open transaction is published to its Commit (session.pump in relay/session.go).
// relay.drain_timeout begins (Relay.attempt in relay/relay.go). What is in flight is awaited, the
// final status sent, the sink closed (session.finish in relay/session.go). Last, Run closes the
// listeners (run.go).
func Signals(ctx context.Context, log zerolog.Logger) (kill, stop context.Context,
	release func()) {
	kill, cancelKill := context.WithCancel(ctx)
	stop, cancelStop := context.WithCancel(ctx)
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	var wg sync.WaitGroup
	wg.Go(func() { // ends with received, waited for by release
		var first time.Time
		for s := range received {
			switch {
			case stop.Err() == nil:
				first = time.Now()
				log.Info().Stringer("signal", s).Msg("stop requested; a second signal stops at once")
				cancelStop()
			case time.Since(first) > sameSignal:
				cancelKill()
			}
		}
	})
	return kill, stop, func() {
		signal.Stop(received) // which sends no more when it returns
		close(received)
		wg.Wait()
		cancelStop()
		cancelKill()
	}
}

// requests are the signals that do not end the daemon.
type requests struct {
	received chan os.Signal
	terminal bool // SIGHUP may mean that the terminal is gone
}

// takeRequests receives them until end is called.
func takeRequests() (r *requests, end func()) {
	// nohup ignores SIGHUP so that the process survives its terminal.
	terminal := !signal.Ignored(syscall.SIGHUP) && hasTerminal()
	r = &requests{received: make(chan os.Signal, 4), terminal: terminal}
	signal.Notify(r.received, syscall.SIGHUP, syscall.SIGUSR1)
	return r, func() { signal.Stop(r.received) }
}

// hungUp reports whether a SIGHUP came because the terminal is closed in which the process was
// started.
func (r *requests) hungUp() bool { return r.terminal && !hasTerminal() }

// hasTerminal reports whether the process has a controlling terminal.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}
