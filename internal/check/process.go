package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/memory"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/status"
)

// process checks where the relay is to run, which is taken to be here. Beside a relay its
// addresses are not free.
func (c *checker) process() []Finding {
	cfg := c.loaded.Config
	fs := findings{
		judgeMemory(memory.Limit(os.DirFS("/")), debug.SetMemoryLimit(-1), cfg.Relay.InFlightBytes),
		judgeDescriptors(descriptorLimit(), len(cfg.Sink.Kafka.Brokers)),
	}
	if !c.beside {
		fs.add(c.listen("http_listen", cfg.HTTP.Listen)...)
		fs.add(c.listen("admin_listen", cfg.Admin.Listen)...)
	}
	if cfg.Admin.Listen != "" {
		fs.add(adminToken(cfg.Admin.Token))
		fs.add(adminExposed(cfg.Admin.Listen)...)
	}
	fs.add(readable("alerts_webhook", "alerts.webhook", cfg.Alerts.Webhook,
		"a URL that can be read: without it no notification is sent")...)
	fs.add(checkAlertsCommand(cfg.Alerts.Command)...)
	return fs
}

// judgeMemory takes bytes: limit is the container's, zero if there is none; goLimit is GOMEMLIMIT,
// math.MaxInt64 if it is not set.
func judgeMemory(limit, goLimit, inFlight int64) Finding {
	need := memory.Base + memory.InFlightCopies*inFlight
	goNeed := int64(float64(need) * memory.GoShare)
	formula := fmt.Sprintf("%s: 32 MiB and twice relay.in_flight_bytes, %s", health.Bytes(need),
		health.Bytes(inFlight))
	needed := ", needed are " + health.Bytes(need)
	container := found("memory", "", "the container's limit is "+health.Bytes(limit))
	environment := found("memory", "", "GOMEMLIMIT is "+health.Bytes(goLimit))
	switch {
	case limit > 0 && limit < need:
		smaller := `"1MiB" or less`
		if limit > memory.Base {
			smaller = fmt.Sprintf(`"%dKiB"`, (limit-memory.Base)/memory.InFlightCopies>>10)
		}
		return container.warn(
			formula+": beyond its limit the system kills the relay, and what was in flight comes twice",
			"give the container "+health.Bytes(need)+" or more (docker run --memory, "+
				"resources.limits.memory), or relay.in_flight_bytes = "+smaller)
	case goLimit < goNeed:
		return environment.warn(
			"three quarters of "+formula+": near its limit the relay only collects garbage",
			fmt.Sprintf("GOMEMLIMIT=%dMiB, or no such variable", goNeed>>20))
	case limit > 0:
		container.Observed += needed
		return container
	case goLimit < math.MaxInt64:
		environment.Observed += needed
		return environment
	}
	return found("memory", "", "no limit")
}

// descriptorsBase is for PostgreSQL, HTTP clients, logs and files. A broker takes up to four
// connections: two for requests, and two for records while one is replaced.
const descriptorsBase, descriptorsPerBroker = 64, 4

func judgeDescriptors(limit uint64, brokers int) Finding {
	need := uint64(descriptorsBase + descriptorsPerBroker*max(brokers, 3)) //nolint:gosec // small
	f := found("file_descriptors", "", fmt.Sprintf("at most %d", limit))
	switch {
	case limit == 0:
		f.Observed = "not known"
	case limit < need:
		return f.warn(fmt.Sprintf("%d: every connection takes one", need),
			"ulimit -n 1024; for systemd LimitNOFILE=1024")
	}
	return f
}

// descriptorLimit is the hard limit, to which Go raises the soft one; zero if not known.
func descriptorLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Max
}

// listen tries whether an address can be listened on. If it is taken, the relay of the same slot
// may have it.
func (c *checker) listen(code, address string) []Finding {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err == nil {
		_ = l.Close()
		return []Finding{found(code, address, "free")}
	}
	key := strings.Replace(code, "_", ".", 1)
	f := found(code, address, err).fail("a free address: the relay does not start without",
		"choose another for "+key+", or stop the process that has it: ss -ltnp")
	switch {
	case !errors.Is(err, syscall.EADDRINUSE), c.relay == nil:
	case c.own:
		// The admin listener answers nothing without the token: it is taken to be the same relay's.
		f = found(code, address, fmt.Sprintf("the relay has it, process %d", c.relay.PID))
	case code == "http_listen":
		f.Observed = c.relay.Whose(c.loaded.Config.Slot.Name) + " answers"
		f.Required = "an address of its own for each relay on one machine"
	}
	return []Finding{f}
}

// findRelay gets the report of the relay that answers at http.listen, if one does.
func (c *checker) findRelay(ctx context.Context) {
	c.relay, c.own = nil, false
	if r, err := status.FromDaemon(ctx, c.loaded.Config.HTTP); err == nil && r.PID != 0 {
		c.relay, c.own = &r, r.About(ctx, c.loaded.Config)
	}
}

// adminExposed warns of an admin listener that other machines reach.
func adminExposed(address string) []Finding {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host != "" && postgres.Local(host) {
		return nil
	}
	return []Finding{found("admin_listen", address,
		"can be reached from other machines, and the token is sent without encryption").warn(
		"the loopback interface",
		`set admin.listen = "127.0.0.1:8433", and reach it through ssh or kubectl port-forward`)}
}

// readable tries to read a secret that comes from a file.
func readable(code, key string, s secret.Secret, required string) []Finding {
	if s.Path() == "" {
		return nil
	}
	f := found(code, config.MaskURL(s.Path()), "can be read")
	if _, err := s.Reveal(); err != nil {
		f.Observed = err.Error()
		f = f.warn(required, "correct "+key+"_file, or let the relay's user read the file: chmod, "+
			"chown, or systemd's LoadCredential=")
	}
	return []Finding{f}
}

// adminToken warns of what run warns of when it starts.
func adminToken(s secret.Secret) Finding {
	unread := readable("admin_token", "admin.token", s,
		"a token that can be read: until then every request is refused")
	if len(unread) > 0 && unread[0].Severity != SeverityOK {
		return unread[0]
	}
	if token, err := s.Reveal(); err == nil && len(token) < httpserver.ShortToken {
		return found("admin_token", "", fmt.Sprintf("%d bytes", len(token))).warn(
			fmt.Sprintf("at least %d, at random: a shorter one can be found by trying",
				httpserver.ShortToken), "head -c 32 /dev/urandom | base64")
	}
	return found("admin_token", "", "long enough")
}

// checkAlertsCommand does not run the command, which would send a notification.
func checkAlertsCommand(command []string) []Finding {
	if len(command) == 0 {
		return nil
	}
	program := alerts.Program(command)
	f := found("alerts_command", program, "is there, and may be run")
	if err := alerts.LookProgram(command); err != nil {
		f.Observed = err.Error()
		f = f.warn("a program that is there and may be run: else no notification is sent",
			"correct alerts.command, or make it executable: chmod +x "+program)
	}
	return []Finding{f}
}
