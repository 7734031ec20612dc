package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/status"
)

// levelAnswer is the response to a change of the log level.
type levelAnswer struct {
	Level string `json:"level"`
	Was   string `json:"was"`
}

// listenAdmin serves admin.listen, if it is set, until end is called. An unreadable or short token
// and an address that other machines reach are warnings: the relay runs without the listener.
func (d *Daemon) listenAdmin(ctx context.Context, log zerolog.Logger) (end func(), err error) {
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
	case len(token) < httpserver.ShortToken:
		log.Warn().Str("next", "head -c 32 /dev/urandom | base64").
			Msg("admin token is so short that it can be found by trying")
	}
	if server.Exposed() {
		log.Warn().Stringer("listen", server.Addr()).Str("next",
			`set admin.listen = "127.0.0.1:8433", and reach it through ssh or kubectl port-forward`).
			Msg("admin listener can be reached from other machines, and its token is sent without " +
				"encryption")
	}
	return end, nil
}

func (d *Daemon) pause(limit time.Duration, reason string) (any, error) {
	var until time.Time
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	p, err := d.Relay.Pause(reason, until)
	if err != nil {
		return nil, err
	}
	return status.AdminAnswer{Phase: d.Relay.State().Phase, Paused: p}, nil
}

func (d *Daemon) resume() any {
	was := d.Relay.Resume()
	return status.AdminAnswer{Phase: d.Relay.State().Phase, WasPaused: was}
}

func (d *Daemon) setLogLevel(name string, log zerolog.Logger) (any, error) {
	if !slices.Contains(config.LogLevels, name) {
		return nil, fmt.Errorf("level is %q: it must be one of %s", name,
			strings.Join(config.LogLevels, ", "))
	}
	was := d.level.Get().String()
	d.level.Configure(config.Log{Level: name})
	log.Info().Str("log_level", name).Str("log_level_before", was).
		Msg("log level changed until the next reload or restart")
	return levelAnswer{Level: name, Was: was}, nil
}

// serve runs a server until the returned function is called. key is the one of its address.
func serve(ctx context.Context, server *httpserver.Server, log zerolog.Logger,
	key string) (end func(), err error) {
	name, _, _ := strings.Cut(key, ".")
	if err := server.Listen(); err != nil {
		code := exit.Config
		if errors.Is(err, httpserver.ErrInUse) {
			code = exit.Temporary // maybe the process before us, which is still draining
		}
		return nil, &exit.Error{
			Code: code, Err: err, WAL: exit.KeptMaybe,
			Next: "postrider status   # does a relay answer there?\n" +
				"or give this relay a free address of its own in " + key + `, "" for none`,
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
