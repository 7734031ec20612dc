package check

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/memory"
	"github.com/postrider/postrider/internal/secret"
)

// process checks where the relay is to run, which is taken to be here. Beside a relay its
// addresses are not free.
func (c *checker) process() []Finding {
	cfg := c.loaded.Config
	findings := []Finding{
		judgeMemory(memory.Limit(os.DirFS("/")), debug.SetMemoryLimit(-1),
			cfg.Relay.InFlightBytes),
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
	findings = append(findings, readable("alerts_webhook", "alerts.webhook", cfg.Alerts.Webhook,
		"a URL that can be read: without it no notification is sent")...)
	return append(findings, checkAlertsCommand(cfg.Alerts.Command)...)
}

// What a relay needs: messages in flight are in memory as read and as sent, and garbage is
// collected before the limit is reached. With 16 MiB in flight the peak was 54 MiB in a container
// of 64 MiB. Shown by TestFault31_ContainerLimitSuffices.
const (
	baseMemory     = 32 << 20
	inFlightCopies = 2
)

// judgeMemory takes bytes: limit is the container's, zero if there is none; goLimit is GOMEMLIMIT,
// math.MaxInt64 if it is not set.
func judgeMemory(limit, goLimit, inFlight int64) Finding {
	need := baseMemory + inFlightCopies*inFlight
	goNeed := int64(float64(need) * memory.GoShare)
	formula := fmt.Sprintf("%s: 32 MiB and twice relay.in_flight_bytes, %s",
		health.Bytes(need), health.Bytes(inFlight))
	smaller := "or relay.in_flight_bytes = \"1MiB\" or less"
	if limit > baseMemory {
		smaller = fmt.Sprintf("or relay.in_flight_bytes = \"%dKiB\"",
			(limit-baseMemory)/inFlightCopies>>10)
	}
	container, environment := "the container's limit is "+health.Bytes(limit),
		"GOMEMLIMIT is "+health.Bytes(goLimit)
	switch {
	case limit > 0 && limit < need:
		return warningFinding("memory", "", container, formula+
			": beyond its limit the system kills the relay, and what was in flight comes twice",
			fmt.Sprintf("give the container %s or more (docker run --memory, "+
				"resources.limits.memory), %s",
				health.Bytes(need), smaller))
	case goLimit < goNeed:
		return warningFinding("memory", "", environment,
			"three quarters of "+formula+": near its limit the relay only collects garbage",
			fmt.Sprintf("GOMEMLIMIT=%dMiB, or no such variable", goNeed>>20))
	case limit > 0:
		return okFinding("memory", "", container+", needed are "+health.Bytes(need))
	case goLimit < math.MaxInt64:
		return okFinding("memory", "", environment+", needed are "+health.Bytes(need))
	}
	return okFinding("memory", "", "no limit")
}

// descriptorsBase is for PostgreSQL, HTTP clients, logs and files. A broker takes up to four
// connections: two for requests, and two for records while one is replaced.
const descriptorsBase, descriptorsPerBroker = 64, 4

func judgeDescriptors(limit uint64, brokers int) Finding {
	need := uint64(descriptorsBase + descriptorsPerBroker*max(brokers, 3)) //nolint:gosec // small
	observed := fmt.Sprintf("at most %d", limit)
	switch {
	case limit == 0:
		observed = "not known"
	case limit < need:
		return warningFinding("file_descriptors", "", observed,
			fmt.Sprintf("%d: every connection takes one", need),
			"ulimit -n 1024; for systemd LimitNOFILE=1024")
	}
	return okFinding("file_descriptors", "", observed)
}

// descriptorLimit is the hard limit, to which Go raises the soft one; zero if not known.
func descriptorLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Max
}

// readable tries to read a secret that comes from a file.
func readable(code, key string, s secret.Secret, required string) []Finding {
	if s.Path() == "" {
		return nil
	}
	path := config.MaskURL(s.Path())
	if _, err := s.Reveal(); err != nil {
		return []Finding{warningFinding(code, path, err.Error(), required, "correct "+key+
			"_file, or let the relay's user read the file: chmod, chown, or systemd's "+
			"LoadCredential=")}
	}
	return []Finding{okFinding(code, path, "can be read")}
}

// adminToken warns of what run warns of when it starts.
func adminToken(s secret.Secret) Finding {
	found := readable("admin_token", "admin.token", s,
		"a token that can be read: until then every request is refused")
	if len(found) > 0 && found[0].Severity != SeverityOK {
		return found[0]
	}
	if token, err := s.Reveal(); err == nil && len(token) < httpserver.ShortToken {
		return warningFinding("admin_token", "", fmt.Sprintf("%d bytes", len(token)),
			fmt.Sprintf("at least %d, at random: a shorter one can be found by trying",
				httpserver.ShortToken), "head -c 32 /dev/urandom | base64")
	}
	return okFinding("admin_token", "", "long enough")
}

// checkAlertsCommand does not run the command, which would send a notification.
func checkAlertsCommand(command []string) []Finding {
	if len(command) == 0 {
		return nil
	}
	program := alerts.Program(command)
	if err := alerts.LookProgram(command); err != nil {
		return []Finding{warningFinding("alerts_command", program, err.Error(),
			"a program that is there and may be run: else no notification is sent",
			"correct alerts.command, or make it executable: chmod +x "+program)}
	}
	return []Finding{okFinding("alerts_command", program, "is there, and may be run")}
}
