package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/sink"
)

// open makes everything of a session, the sink first: without a broker the slot is not held.
func (r *Relay) open(ctx context.Context, fail context.CancelCauseFunc) (*session, error) {
	s := &session{cfg: r.cfg, policies: r.parts.DeadLetters.Policies, log: r.parts.Log,
		metrics: r.parts.Metrics, fail: fail,
		recent: &r.recent, candidates: &r.candidates, missing: &r.missing, published: &r.published,
		clockSkew: r.parts.Server.ClockSkew}
	s.progress.Store(time.Now().UnixNano())
	var err error
	if s.router, err = r.parts.Rows.Router(); err != nil {
		return nil, err
	}
	r.candidates.probing.Store(false)
	if err = r.openSink(ctx, s); err != nil {
		return nil, err
	}
	if s.stream, err = r.parts.Server.OpenStream(ctx); err != nil {
		s.closeSink(sinkCloseTimeout)
		return nil, err
	}
	ready := s.keepAlive()
	defer ready()
	refuse := func(err error) (*session, error) {
		ready()
		s.closeDeadLetters()
		_ = s.finish(ctx, err)
		return nil, err
	}
	r.candidates.forget(s.stream.SeedLSN())
	s.window = newWindow(s.stream.SeedLSN(), r.cfg.InFlightMessages, r.cfg.InFlightBytes)
	timeline := r.seen.Timeline
	if err := r.recognise(s.stream.Identity(), s.stream.SeedLSN()); err != nil {
		return refuse(err)
	}
	if r.parts.Rows.Timeline != nil {
		r.parts.Rows.Timeline(s.stream.Identity().Timeline)
	}
	if err := r.retryAwaited(ctx, s); err != nil {
		return refuse(err)
	}
	if err := r.resume(ctx, s); err != nil {
		return refuse(err)
	}
	if was, seed := r.State().AckedLSN, s.stream.SeedLSN(); was != 0 && seed > was {
		// After a promotion nothing that was observed of the slot is of this one.
		if !r.paused && r.seen.Timeline == timeline && r.parts.Server.Moved != nil {
			if err := r.parts.Server.Moved(ctx,
				Move{Acked: was, Confirmed: seed, Streamed: r.openedAt,
					Held: r.held}); err != nil {
				return refuse(err)
			}
		}
		// No error: after a takeover and back it is what has to be.
		r.parts.Log.Warn().Stringer("acked_lsn", was).Stringer("confirmed_flush_lsn", seed).
			Msg("slot was advanced by another session: another relay published the rows between " +
				"these positions, or the slot was recreated and they are not published")
	}
	ready()
	r.paused, r.held, r.openedAt = false, false, time.Now()
	r.mu.Lock()
	r.session, r.streamed, r.openFrom, r.counted = s, true, r.openedAt, 0
	r.state.Sessions++
	r.mu.Unlock()
	r.parts.Metrics.SessionsOpened.Inc()
	r.parts.Metrics.Connected.Set(1)
	r.enter(Streaming, nil)
	r.parts.Log.Info().Stringer("confirmed_flush_lsn", s.stream.SeedLSN()).
		Int("session", r.state.Sessions).
		Str("server_version", s.stream.Identity().ServerVersion).Msg("streaming started")
	return s, nil
}

// hold keeps the stream alive until ready is called: to read what earlier sessions have left in
// the topics may take longer than the server waits for a status, and then each session would
// publish what had come meanwhile, and confirm nothing of it.
func (s *session) keepAlive() (ready func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.stream.KeepAlive(done) }) // ends with done; waited for by ready
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// openSink opens the kind of sink that the configuration asks for.
func (r *Relay) openSink(ctx context.Context, s *session) (err error) {
	if r.cfg.ExactlyOnce {
		if s.transactional, err = r.parts.Broker.OpenTransactional(ctx, s.delivered,
			s.committed); err != nil {
			return err
		}
		s.sink = s.transactional
		return nil
	}
	if s.sink, err = r.parts.Broker.OpenSink(ctx, s.delivered); err != nil {
		return err
	}
	if r.cfg.Dedup == DedupTail {
		var can bool
		if s.dedup, can = s.sink.(sink.Deduplicator); !can {
			s.closeSink(sinkCloseTimeout)
			return fmt.Errorf("%w: relay.dedup = %q: this sink cannot read what is published",
				ErrConfiguration, DedupTail)
		}
	}
	return nil
}

// resume finds out what earlier sessions have left in the topics. The slot is held: no other relay
// publishes.
func (r *Relay) resume(ctx context.Context, s *session) error {
	id := s.stream.Identity()
	s.source = r.parts.Source
	s.source.SystemID, s.source.Timeline = id.SystemID, id.Timeline
	if err := s.beginExactlyOnce(ctx); err != nil {
		return err
	}
	return s.openDeadLetters(ctx, r.parts.DeadLetters)
}

func (r *Relay) close(s *session) {
	s.closeDeadLetters()
	r.observe()
	r.seen.LSN, r.seen.confirmed = max(r.seen.LSN, s.stream.ReceivedLSN()),
		s.stream.ConfirmedFlushLSN()
	r.mu.Lock()
	r.state.Published += s.acknowledged.Load()
	r.session = nil
	r.state.InFlight, r.state.InFlightBytes, r.state.OldestUnacked = 0, 0, time.Time{}
	r.mu.Unlock()
	r.parts.Metrics.Connected.Set(0)
}
