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

// sameSignal is how soon a signal after the first is still the first: a supervisor that signals a process and its group, like
// timeout(1), does it twice.
const sameSignal = 250 * time.Millisecond

// signals returns two contexts: stop ends with the first SIGTERM or SIGINT, kill with the second.
func Signals(ctx context.Context, log zerolog.Logger) (kill, stop context.Context, release func()) {
	kill, cancelKill := context.WithCancel(ctx)
	stop, cancelStop := context.WithCancel(ctx)
	received := make(chan os.Signal, 2)
	var first time.Time
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case s := <-received:
				if stop.Err() == nil {
					first = time.Now()
					log.Info().Stringer("signal", s).Msg("stop requested; a second signal stops at once")
					cancelStop()
					continue
				}
				if time.Since(first) > sameSignal {
					cancelKill()
				}
			case <-done:
				return
			}
		}
	})
	return kill, stop, func() {
		signal.Stop(received)
		close(done)
		wg.Wait()
		cancelStop()
		cancelKill()
	}
}

// requests are the signals that ask the daemon for something else than its end.
type requests struct {
	received chan os.Signal
	terminal bool // SIGHUP may mean that the terminal is gone
}

// takeRequests receives them until end is called.
func takeRequests() (r *requests, end func()) {
	// With nohup the signal is ignored so far: whoever used it wants the process to survive its terminal.
	r = &requests{received: make(chan os.Signal, 4), terminal: !signal.Ignored(syscall.SIGHUP) && hasTerminal()}
	signal.Notify(r.received, syscall.SIGHUP, syscall.SIGUSR1)
	return r, func() { signal.Stop(r.received) }
}

// hungUp tells whether a SIGHUP came because the window is closed that the process was started in. Nobody would see it go on.
func (r *requests) hungUp() bool { return r.terminal && !hasTerminal() }

// hasTerminal tells whether the process has a controlling terminal.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}
