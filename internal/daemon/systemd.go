package daemon

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/relay"
)

const (
	// While it starts or stops, each message asks systemd for that much more time, beyond TimeoutStartSec and TimeoutStopSec. They are sent
	// only while the loop turns, so a process that hangs is still ended.
	extendFor   = time.Minute
	extendEvery = 10 * time.Second
	statusEvery = 10 * time.Second
)

// supervisor is systemd, if it started us with Type=notify or notify-reload: it wants to know when we are ready, what we do, and that we
// still do it. It belongs to the goroutine in daemon.watch. nil: there is none, and nothing is told.
type supervisor struct {
	log      zerolog.Logger
	watchdog time.Duration              // WatchdogSec; zero: none
	send     func(message string) error // one datagram

	ready    bool // told
	stopping bool // told
	failed   bool // the last message; said once
	phase    relay.Phase
	progress time.Time // of the relay, as last seen
	fed      time.Time // the watchdog
	extended time.Time
	told     time.Time // the status
}

// newSupervisor reads what systemd put into the environment.
func newSupervisor(getenv func(string) string, log zerolog.Logger) *supervisor {
	if getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	s := &supervisor{log: log, send: func(message string) error {
		_, err := sd.SdNotify(false, message)
		return err
	}}
	var err error
	if s.watchdog, err = sd.SdWatchdogEnabled(false); err != nil {
		log.Warn().Err(err).Msg("systemd's watchdog is not fed")
	}
	return s
}

// look is called each second. The watchdog is fed, and more time to start or to stop asked for, only if the loop has turned since the last
// look: not because this goroutine has.
func (s *supervisor) look(now time.Time, r status.Report) {
	if s == nil {
		return
	}
	turned := r.Relay.LastProgress.After(s.progress)
	s.progress = r.Relay.LastProgress
	var words []string
	if !s.ready && started(r.Relay) {
		s.ready = true
		words = append(words, sd.SdNotifyReady)
	}
	if turned && (!s.ready || s.stopping) && now.Sub(s.extended) >= extendEvery {
		s.extended = now
		words = append(words, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extendFor.Microseconds()))
	}
	if turned && s.watchdog > 0 && now.Sub(s.fed) >= s.watchdog/2 {
		s.fed = now
		words = append(words, sd.SdNotifyWatchdog)
	}
	if r.Relay.Phase != s.phase || now.Sub(s.told) >= statusEvery {
		s.phase, s.told = r.Relay.Phase, now
		words = append(words, "STATUS="+systemdStatus(r))
	}
	s.notify(words)
}

// started: the slot is held, or it is known that somebody else holds it, or nobody wants it to be. A database or a broker that is away is
// waited for.
func started(st relay.State) bool {
	return st.Ready() && (st.Phase != relay.Streaming || st.ConfirmedFlushLSN != 0) || st.Phase == relay.Paused
}

// stop says that the process drains and will end.
func (s *supervisor) stop() {
	if s == nil || s.stopping {
		return
	}
	s.stopping = true
	s.notify([]string{sd.SdNotifyStopping, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extendFor.Microseconds())})
}

// end leaves the last status behind, which `systemctl status` goes on to show.
func (s *supervisor) end(r status.Report) {
	if s == nil {
		return
	}
	s.stop()
	s.notify([]string{"STATUS=" + systemdStatus(r)})
}

// reload tells of a reload before and after it. Before the process is ready systemd asks for none, and would take the end of one for
// readiness.
func (s *supervisor) reload(reload func()) {
	if s == nil || !s.ready {
		reload()
		return
	}
	s.notify([]string{sd.SdNotifyReloading, strings.TrimSpace(sd.SdNotifyMonotonicUsec())})
	reload()
	s.notify([]string{sd.SdNotifyReady})
}

func (s *supervisor) notify(words []string) {
	if len(words) == 0 {
		return
	}
	err := s.send(strings.Join(words, "\n"))
	if err != nil && !s.failed {
		s.log.Warn().Err(err).Msg("systemd not notified")
	}
	s.failed = err != nil
}

// systemdStatus is one line: "streaming, lag 0 B, retained 16.0 MiB".
func systemdStatus(r status.Report) string {
	line := string(r.Relay.Phase)
	if r.Slot.LagBytes != nil {
		line += ", lag " + health.Bytes(*r.Slot.LagBytes)
	}
	if r.Slot.RetainedBytes != nil {
		line += ", retained " + health.Bytes(*r.Slot.RetainedBytes)
	}
	if r.Verdict.State != health.OK && r.Verdict.State != health.Standby {
		line += ": " + terminal.OneLine(r.Verdict.Reason)
	}
	return line
}
