package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/status"
)

// listen tries whether an address can be listened on. If it is taken, the relay of the same slot
// may have it.
func (c *checker) listen(code, address string) []Finding {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err == nil {
		_ = l.Close()
		return []Finding{okFinding(code, address, "free")}
	}
	f := configFinding(code, address, err.Error(),
		"a free address: the relay does not start without",
		"choose another for "+strings.Replace(code, "_", ".", 1)+", or stop who has it: ss -ltnp")
	switch {
	case !errors.Is(err, syscall.EADDRINUSE), c.relay == nil:
	case c.relay.Slot.Name == c.loaded.Config.Slot.Name:
		// The admin listener answers nothing without the token: it is taken to be the same
		// relay's.
		f = okFinding(code, address, fmt.Sprintf("the relay has it, process %d", c.relay.PID))
	case code == "http_listen":
		f.Observed = fmt.Sprintf("the relay of slot %q answers", c.relay.Slot.Name)
		f.Required = "an address of its own for each relay on one machine"
	}
	return []Finding{f}
}

// relayAt is the report of the relay that answers at http.listen, nil if none does.
func relayAt(ctx context.Context, c httpserver.Config) *status.Report {
	r, err := status.FromDaemon(ctx, c)
	if err != nil || r.PID == 0 {
		return nil
	}
	return &r
}

// adminExposed warns of an admin listener that other machines reach.
func adminExposed(address string) []Finding {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host != "" && postgres.Local(host) {
		return nil
	}
	return []Finding{warningFinding("admin_listen", address,
		"can be reached from other machines, and the token is sent without encryption",
		"the loopback interface",
		`set admin.listen = "127.0.0.1:8433", and reach it through ssh or kubectl port-forward`)}
}
