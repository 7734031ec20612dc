package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/stdout"
	"github.com/postrider/postrider/slot"
)

// DryRun relays from a temporary slot to stdout until a signal comes. The slot belongs to the
// replication connection, so it is gone with it, however this process ends. It prints the rows
// that are in the tables since a time first, unless since is zero; what is committed meanwhile
// comes from the slot, a row that is committed while it is made from both.
func DryRun(ctx context.Context, cfg config.Config, env Environment, since time.Time,
	log zerolog.Logger) error {
	cfg.Slot.Name = slot.TemporaryName("tail")
	cfg.Relay.HeartbeatInterval = 0 // what is printed is rows
	kill, stop, release := Signals(ctx, log)
	defer release()
	kill, end := context.WithCancel(kill)
	defer end()
	parts := Unmeasured(env, cfg, log).Temporary()
	parts.Broker.OpenSink = stdout.Open(env.Stdout)
	var unprinted error
	if open := parts.DeadLetters.Open; !since.IsZero() {
		// The last step of a session that opens: one that fails before is tried again.
		parts.DeadLetters.Open = func(ctx context.Context, source sink.Source, begin pglogrepl.LSN) (
			deadletter.Handler, error) {
			letters, err := open(ctx, source, begin)
			if err == nil {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(stop, cancel)()
				switch err = printExisting(ctx, cfg, since, env.Stdout); {
				case err == nil:
				case stop.Err() != nil:
					err = stop.Err() // which the relay takes for a clean stop
				default:
					unprinted = err
					end() // else the relay would print again
				}
			}
			return letters, err
		}
	}
	err := relay.New(cfg.Relay, parts).Run(kill, stop)
	if unprinted != nil {
		return unprinted
	}
	if err != nil {
		f := exit.Explain(err)
		f.WAL = "nothing changed: the relay's slot was not touched"
		return f
	}
	return nil
}

// Temporary is parts with a slot that ends with the connection, and that is the only one touched.
func (p *Pipeline) Temporary() relay.Parts {
	p.preview()
	parts := p.parts()
	parts.Server.Prepare = func(ctx context.Context, first bool) error {
		if !first {
			return ErrTemporarySlotGone
		}
		return p.prepareTables(ctx)
	}
	parts.Server.Watch = func(ctx context.Context, _ func(error, time.Time)) { <-ctx.Done() }
	parts.Server.OpenStream = func(ctx context.Context) (*replication.Stream, error) {
		pg, err := postgres.ReplicationLogin(ctx, p.Config.Postgres)
		if err != nil {
			return nil, err
		}
		opened := p.reportBlocked(ctx)
		s, err := replication.OpenTemporary(ctx, pg, p.Config.Replication, p.Config.Slot.Name,
			p.Component("replication"))
		opened()
		if err != nil {
			return nil, unfit(slot.RefusedStream(ctx, p.Config.Postgres, p.Config.Slot.Name, err))
		}
		return s, nil
	}
	return parts
}

// ErrTemporarySlotGone ends a relay with a temporary slot after its first session.
var ErrTemporarySlotGone = fmt.Errorf("%w: the connection was lost, and the temporary slot with "+
	"it", relay.ErrConfiguration)

// blockedNotice is the interval between two log lines about what the creation of a temporary slot
// waits for.
const blockedNotice = 3 * time.Second

// reportBlocked logs, until end is called, which transactions the creation of a slot waits for.
// The server waits for them without a limit and reports nothing.
func (p *Pipeline) reportBlocked(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { // ends with cancel, waited for by end
		tick := time.NewTicker(blockedNotice)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			conn, err := postgres.Connect(ctx, p.Config.Postgres)
			if err != nil {
				continue // the connection that waits reports it
			}
			f := exit.Explain(slot.Blocked(ctx, conn, p.Config.Slot.Name, nil))
			postgres.Close(conn)
			if ctx.Err() == nil {
				log := p.Component("replication")
				log.Warn().Str("reason", f.Error()).Str("next", p.env.Hint(f.Next)).
					Msg("temporary slot not created yet")
			}
		}
	})
	return func() { cancel(); reporting.Wait() }
}

// FindHandover reads the slot to the last event that Debezium published, without moving the slot.
func FindHandover(
	ctx context.Context, env Environment, cfg config.Config, last replication.LastEvent,
) (replication.Handover, error) {
	pg, isRow, err := rows(ctx, env, cfg)
	if err != nil {
		return replication.Handover{}, err
	}
	found, err := replication.FindHandover(
		ctx, pg, cfg.Replication, cfg.Slot.Name, last, isRow, zerolog.Nop())
	return found, postgres.Error(err)
}

// FindTransaction reads the slot to the transaction that commits at an LSN, without moving the
// slot.
func FindTransaction(
	ctx context.Context, env Environment, cfg config.Config, commit pglogrepl.LSN,
) (replication.Transaction, error) {
	pg, isRow, err := rows(ctx, env, cfg)
	if err != nil {
		return replication.Transaction{}, err
	}
	found, err := replication.FindTransaction(
		ctx, pg, cfg.Replication, cfg.Slot.Name, commit, isRow, zerolog.Nop())
	return found, postgres.Error(err)
}

// rows returns how to connect, and which events are rows or messages of the relay: those that the
// router of run routes. A row with an error is one of them.
func rows(ctx context.Context, env Environment, cfg config.Config) (
	*pgconn.Config, func(*replication.Event) bool, error,
) {
	p := Unmeasured(env, cfg, zerolog.Nop()) // run logs the warnings about rows
	p.preview()
	if err := p.prepareTables(ctx); err != nil {
		return nil, nil, err
	}
	r, err := p.NewRouter()
	if err != nil {
		return nil, nil, err
	}
	pg, err := postgres.ReplicationLogin(ctx, cfg.Postgres)
	return pg, func(ev *replication.Event) bool {
		m, err := r.Route(ev)
		return m != nil || err != nil
	}, err
}
