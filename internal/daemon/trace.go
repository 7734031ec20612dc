package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/trace"
)

// The limits of a search on the page, which has no login.
const (
	pageMaxRead = 16 << 20
	pageMaxScan = 8 << 20
)

// trace looks for an event for the page. Tables of other roles are read only if the configuration
// lets the relay read them: whoever asks is not the operator.
func (d *Daemon) trace(ctx context.Context, id string) (code int, answer any) {
	// Time is left to write the answer where a broker does not answer.
	if deadline, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-time.Second))
		defer cancel()
	}
	request := trace.Request{ID: id, MaxRead: pageMaxRead, MaxScan: pageMaxScan,
		Consented: d.cfg.Snapshot.On()}
	found, err := trace.Run(ctx, d.cfg, request, func(context.Context) *trace.Relay {
		return &trace.Relay{State: d.Relay.State(), Recent: d.Relay.Recent()}
	})
	if found != nil {
		found.Redact()
		found.ChangeHints(d.env.Hint)
		return http.StatusOK, found
	}
	f := new(exit.Error)
	if !errors.As(err, &f) {
		f = exit.Explain(err)
	}
	code = http.StatusServiceUnavailable
	switch f.Code {
	case exit.Usage:
		code = http.StatusBadRequest
	case exit.Permission:
		code = http.StatusForbidden
	}
	return code, httpserver.AdminError{Error: err.Error(), Next: d.env.Hint(f.Next)}
}
