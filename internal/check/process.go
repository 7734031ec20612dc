package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/memory"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot"
)

// process looks at where the relay is to run, which is taken to be here. Beside a relay the addresses are its own.
func (c *checker) process() []slot.Finding {
	cfg := c.loaded.Config
	findings := []slot.Finding{
		judgeMemory(memory.Limit(os.DirFS("/")), debug.SetMemoryLimit(-1), cfg.Relay.InFlightBytes),
		judgeDescriptors(descriptorLimit(), len(cfg.Sink.Kafka.Brokers)),
	}
	if !c.beside {
		findings = append(findings, c.listen("http_listen", cfg.HTTP.Listen)...)
		findings = append(findings, c.listen("admin_listen", cfg.Admin.Listen)...)
	}
	if cfg.Admin.Listen != "" {
		findings = append(findings, adminToken(cfg.Admin.Token))
		findings = append(findings, adminExposed(cfg.Admin.Listen)...)
	}
	findings = append(findings, readable("alerts_webhook", "alerts.webhook", cfg.Alerts.Webhook, "an URL that can be read: without it nobody is told")...)
	return append(findings, checkAlertsCommand(cfg.Alerts.Command)...)
}

// What a relay needs: what is in flight is there as it was read and as it is sent; garbage is collected before the limit is reached
// (limitMemory). With 16 MiB in flight, at their peak, 54 MiB were taken in a container of 64 MiB. TestFault31_ContainerLimitSuffices
const (
	baseMemory     = 32 << 20
	inFlightCopies = 2
)

// judgeMemory takes bytes. limit is that of the container, zero if there is none; goLimit is GOMEMLIMIT, math.MaxInt64 if it is not set.
func judgeMemory(limit, goLimit, inFlight int64) slot.Finding {
	need := baseMemory + inFlightCopies*inFlight
	f := slot.Finding{Severity: slot.SeverityOK, Code: "memory", Observed: "no limit"}
	formula := fmt.Sprintf("%s: 32 MiB and twice relay.in_flight_bytes, %s", health.Bytes(need), health.Bytes(inFlight))
	smaller := "or relay.in_flight_bytes = \"1MiB\" or less"
	if limit > baseMemory {
		smaller = fmt.Sprintf("or relay.in_flight_bytes = \"%dKiB\"", (limit-baseMemory)/inFlightCopies>>10)
	}
	switch {
	case limit > 0 && limit < need:
		f.Severity, f.Observed = slot.SeverityWarning, "the container's limit is "+health.Bytes(limit)
		f.Required = formula + ": beyond its limit the system kills the relay, and what was in flight comes twice"
		f.Fix = fmt.Sprintf("give the container %s or more (docker run --memory, resources.limits.memory), %s", health.Bytes(need), smaller)
	case goLimit < int64(float64(need)*memory.GoShare):
		f.Severity, f.Observed = slot.SeverityWarning, "GOMEMLIMIT is "+health.Bytes(goLimit)
		f.Required = "three quarters of " + formula + ": near its limit the relay only collects garbage"
		f.Fix = fmt.Sprintf("GOMEMLIMIT=%dMiB, or no such variable", int64(float64(need)*memory.GoShare)>>20)
	case limit > 0:
		f.Observed = "the container's limit is " + health.Bytes(limit) + ", needed are " + health.Bytes(need)
	case goLimit < math.MaxInt64:
		f.Observed = "GOMEMLIMIT is " + health.Bytes(goLimit) + ", needed are " + health.Bytes(need)
	}
	return f
}

// descriptorsBase is for PostgreSQL, HTTP clients, logs and files; each broker takes up to four connections, two for asking and two for
// publishing while one is replaced.
const descriptorsBase, descriptorsPerBroker = 64, 4

func judgeDescriptors(limit uint64, brokers int) slot.Finding {
	need := uint64(descriptorsBase + descriptorsPerBroker*max(brokers, 3)) //nolint:gosec // a handful
	f := slot.Finding{Severity: slot.SeverityOK, Code: "file_descriptors", Observed: fmt.Sprintf("at most %d", limit)}
	switch {
	case limit == 0:
		f.Observed = "not known"
	case limit < need:
		f.Severity, f.Required = slot.SeverityWarning, fmt.Sprintf("%d: every connection takes one", need)
		f.Fix = "ulimit -n 1024; for systemd LimitNOFILE=1024"
	}
	return f
}

func descriptorLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Max // Go raises its own to that
}

// listen tries whether an address can be listened on. If it is taken, a relay of the same slot may have it.
func (c *checker) listen(code, address string) []slot.Finding {
	if address == "" {
		return nil
	}
	f := slot.Finding{Severity: slot.SeverityOK, Code: code, Subject: address, Observed: "free"}
	l, err := net.Listen("tcp", address)
	if err == nil {
		_ = l.Close()
		return []slot.Finding{f}
	}
	f.Severity, f.Class, f.Observed = slot.SeverityError, slot.ClassConfiguration, err.Error()
	f.Required = "a free address: the relay does not start without"
	f.Fix = "choose another for " + strings.Replace(code, "_", ".", 1) + ", or stop who has it: ss -ltnp"
	switch ours := c.loaded.Config.Slot.Name; {
	case !errors.Is(err, syscall.EADDRINUSE), c.relay == nil:
	case c.relay.Slot.Name == ours:
		// The admin listener answers nobody without the token; it is taken to be the same process'.
		f = slot.Finding{Severity: slot.SeverityOK, Code: code, Subject: address, Observed: fmt.Sprintf("the relay has it, process %d", c.relay.PID)}
	case code == "http_listen":
		f.Observed = fmt.Sprintf("the relay of slot %q answers", c.relay.Slot.Name)
		f.Required = "an address of its own for each relay on one machine"
	}
	return []slot.Finding{f}
}

// relayTimeout bounds the question to whoever listens on our address.
const relayTimeout = 2 * time.Second

// relayAt is the report of the relay that answers at a URL, nil if none does.
func relayAt(ctx context.Context, url string) *status.Report {
	if url == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/status", nil)
	if err != nil {
		return nil
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = answer.Body.Close() }()
	var r status.Report
	if answer.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(answer.Body, 4<<20)).Decode(&r) != nil || r.PID == 0 {
		return nil
	}
	return &r
}

// readable tries to read a secret that comes from a file.
func readable(code, key string, s secret.Secret, required string) []slot.Finding {
	if s.Path() == "" {
		return nil
	}
	f := slot.Finding{Severity: slot.SeverityOK, Code: code, Subject: config.MaskURL(s.Path()), Observed: "can be read"}
	if _, err := s.Reveal(); err != nil {
		f.Severity, f.Observed, f.Required = slot.SeverityWarning, err.Error(), required
		f.Fix = "correct " + key + "_file, or let the relay's user read the file: chmod, chown, or systemd's LoadCredential="
	}
	return []slot.Finding{f}
}

// adminToken: run warns of the same when it starts.
func adminToken(s secret.Secret) slot.Finding {
	if found := readable("admin_token", "admin.token", s, "a token that can be read: until then every request is refused"); found != nil && found[0].Severity != slot.SeverityOK {
		return found[0]
	}
	f := slot.Finding{Severity: slot.SeverityOK, Code: "admin_token", Observed: "long enough"}
	if token, err := s.Reveal(); err == nil && len(token) < httpserver.ShortToken {
		f.Severity, f.Observed = slot.SeverityWarning, fmt.Sprintf("%d bytes", len(token))
		f.Required = fmt.Sprintf("at least %d, at random: a shorter one can be found by trying", httpserver.ShortToken)
		f.Fix = "head -c 32 /dev/urandom | base64"
	}
	return f
}

// adminExposed: the token goes over the network as it is.
func adminExposed(address string) []slot.Finding {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host != "" && postgres.Local(host) {
		return nil
	}
	return []slot.Finding{{
		Severity: slot.SeverityWarning, Code: "admin_listen", Subject: address, Observed: "can be reached from other machines, and the token is sent without encryption",
		Required: "the loopback interface", Fix: `set admin.listen = "127.0.0.1:8433", and reach it through ssh or kubectl port-forward`,
	}}
}

// checkAlertsCommand does not run it: it would tell somebody.
func checkAlertsCommand(command []string) []slot.Finding {
	if len(command) == 0 {
		return nil
	}
	f := slot.Finding{Severity: slot.SeverityOK, Code: "alerts_command", Subject: alerts.Program(command), Observed: "is there, and may be run"}
	if err := alerts.LookProgram(command); err != nil {
		f.Severity, f.Observed = slot.SeverityWarning, err.Error()
		f.Required = "a program that is there and may be run: else nobody is told"
		f.Fix = "correct alerts.command, or make it executable: chmod +x " + alerts.Program(command)
	}
	return []slot.Finding{f}
}
