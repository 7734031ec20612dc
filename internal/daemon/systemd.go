package daemon

import (
	"fmt"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/relay"
)

const (
	// While the process starts or stops, each message requests extendFor of systemd, beyond
	// TimeoutStartSec and TimeoutStopSec. They are sent only while the session loop turns, so a hung
	// process is still ended.
	extendFor   = time.Minute
	extendEvery = 10 * time.Second
	statusEvery = 10 * time.Second
)

// supervisor notifies systemd, if it started the process with Type=notify or notify-reload: of
// readiness, status and the watchdog. It belongs to the goroutine of Daemon.watch. nil: no
// systemd.
type supervisor struct {
	log      zerolog.Logger
	watchdog time.Duration              // WatchdogSec; zero: none
	send     func(message string) error // one datagram

	ready    bool // sent
	stopping bool // sent
	failed   bool // the last message; logged once
	phase    relay.Phase
	progress time.Time // of the relay, as last seen
	fed      time.Time // the watchdog
	extended time.Time
	sent     time.Time // the status
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

// look is called each second. It feeds the watchdog, and requests more time, only if the session
// loop has turned since the last call.
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
	if r.Relay.Phase != s.phase || now.Sub(s.sent) >= statusEvery {
		s.phase, s.sent = r.Relay.Phase, now
		words = append(words, "STATUS="+systemdStatus(r))
	}
	s.notify(words)
}

// started reports whether the relay holds the slot, stands by or is paused. It waits for a
// database or a broker that is away.
func started(st relay.State) bool {
	return st.Ready() && (st.Phase != relay.Streaming || st.ConfirmedFlushLSN != 0) ||
		st.Phase == relay.Paused
}

// stop notifies that the process drains and will end.
func (s *supervisor) stop() {
	if s == nil || s.stopping {
		return
	}
	s.stopping = true
	s.notify([]string{sd.SdNotifyStopping, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d",
		extendFor.Microseconds())})
}

// end sends the last status, which `systemctl status` goes on to show.
func (s *supervisor) end(r status.Report) {
	if s == nil {
		return
	}
	s.stop()
	s.notify([]string{"STATUS=" + systemdStatus(r)})
}

// reload notifies of a reload before and after it. A process that is not ready yet sends nothing:
// systemd would take the end of the reload for readiness.
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
