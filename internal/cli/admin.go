package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/relay"
)

// shortToken is the least length of a token that is not warned of, in bytes.
const shortToken = 16

// adminAnswer is what pause and resume answer: what the relay does now. While it drains for a pause the phase is draining, and GET /state
// says when it is paused.
type adminAnswer struct {
	Phase     relay.Phase `json:"phase"`
	Paused    relay.Pause `json:"paused,omitzero"`
	WasPaused bool        `json:"was_paused,omitempty"` // of a resume
}

// levelAnswer is the answer to a change of the log's level.
type levelAnswer struct {
	Level string `json:"level"`
	Was   string `json:"was"`
}

// listenAdmin serves admin.listen, if there is one, until the returned function is called. What is odd about it is a warning: the relay does
// without.
func (d *daemon) listenAdmin(ctx context.Context, log zerolog.Logger) (end func(), err error) {
	c := d.cfg.Admin
	if c.Listen == "" {
		return func() {}, nil
	}
	log = log.With().Str("component", "admin").Str("slot", d.cfg.Slot.Name).Logger()
	server := httpserver.NewAdmin(c, httpserver.AdminHandlers{
		State: func() any { return d.state() }, Pause: d.pause, Resume: d.resume,
		LogLevel: func(level string) (any, error) { return d.setLogLevel(level, log) }, Log: log,
	})
	end, err = serve(ctx, server, log, "admin.listen")
	if err != nil {
		return nil, err
	}
	switch token, err := c.Token.Reveal(); {
	case err != nil:
		log.Warn().Err(err).Msg("admin token cannot be read; every request is refused until it can")
	case len(token) < shortToken:
		log.Warn().Str("next", "head -c 32 /dev/urandom | base64").Msg("admin token is so short that it can be found by trying")
	}
	if server.Exposed() {
		log.Warn().Stringer("listen", server.Addr()).Str("next", `set admin.listen = "127.0.0.1:8433", and reach it through ssh or kubectl port-forward`).
			Msg("admin listener can be reached from other machines, and its token is sent without encryption")
	}
	return end, nil
}

func (d *daemon) pause(limit time.Duration, reason string) (any, error) {
	until := time.Time{}
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	p, err := d.relay.Pause(reason, until)
	if err != nil {
		return nil, err
	}
	return adminAnswer{Phase: d.relay.State().Phase, Paused: p}, nil
}

func (d *daemon) resume() any {
	was := d.relay.Resume()
	return adminAnswer{Phase: d.relay.State().Phase, WasPaused: was}
}

func (d *daemon) setLogLevel(name string, log zerolog.Logger) (any, error) {
	if !slices.Contains(config.LogLevels, name) {
		return nil, fmt.Errorf("level is %q: it must be one of %s", name, strings.Join(config.LogLevels, ", "))
	}
	was := d.live.level.get().String()
	d.live.level.configure(config.Log{Level: name})
	log.Info().Str("log_level", name).Str("log_level_before", was).Msg("log level changed until the next reload or restart")
	return levelAnswer{Level: name, Was: was}, nil
}

// serve runs a server until the returned function is called. key is the one of its address.
func serve(ctx context.Context, server *httpserver.Server, log zerolog.Logger, key string) (end func(), err error) {
	name, _, _ := strings.Cut(key, ".")
	if err := server.Listen(); err != nil {
		code := exitConfig
		if errors.Is(err, httpserver.ErrInUse) {
			code = exitTemporary // maybe the process before us, which is still draining
		}
		return nil, &failure{
			code: code, err: err, wal: keptMaybe,
			next: fmt.Sprintf("postrider status   # does a relay answer there?\nor choose a free address for %s, \"\" for none", key),
		}
	}
	if addr := server.Addr(); addr != nil {
		log.Info().Stringer("listen", addr).Msg(name + " listener started")
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { // ends with cancel, waited for by end
		defer close(ended)
		if err := server.Serve(serving); err != nil {
			log.Error().Err(err).Msg(name + " listener ended")
		}
	}()
	return func() { cancel(); <-ended }, nil
}
