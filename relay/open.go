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
	s := &session{cfg: r.cfg, policies: r.parts.Policies, log: r.parts.Log, metrics: r.parts.Metrics, fail: fail,
		recent: &r.recent, suspects: &r.suspects, missing: &r.missing, handed: &r.handed, clockSkew: r.parts.ClockSkew}
	s.progress.Store(time.Now().UnixNano())
	var err error
	if s.router, err = r.parts.Router(); err != nil {
		return nil, err
	}
	r.suspects.alone.Store(false)
	if err = r.openSink(ctx, s); err != nil {
		return nil, err
	}
	if s.stream, err = r.parts.OpenStream(ctx); err != nil {
		s.closeSink(sinkCloseTimeout)
		return nil, err
	}
	ready := s.hold()
	defer ready()
	refuse := func(err error) (*session, error) {
		ready()
		if s.desk != nil {
			s.desk.Close()
		}
		_ = s.finish(ctx, err)
		return nil, err
	}
	r.suspects.forget(s.stream.SeedLSN())
	s.window = newWindow(s.stream.SeedLSN(), r.cfg.InFlightMessages, r.cfg.InFlightBytes)
	timeline := r.seen.Timeline
	if err := r.recognise(s.stream.Identity(), s.stream.SeedLSN()); err != nil {
		return refuse(err)
	}
	if r.parts.Timeline != nil {
		r.parts.Timeline(s.stream.Identity().Timeline)
	}
	if err := r.askForAwaited(ctx, s); err != nil {
		return refuse(err)
	}
	if err := r.goOn(ctx, s); err != nil {
		return refuse(err)
	}
	if was, seed := r.State().AckedLSN, s.stream.SeedLSN(); was != 0 && seed > was {
		// After a promotion nothing that was observed of the slot is of this one.
		if !r.paused && r.seen.Timeline == timeline && r.parts.Moved != nil {
			if err := r.parts.Moved(ctx, Move{Acked: was, Confirmed: seed, Streamed: r.openedAt, Held: r.held}); err != nil {
				return refuse(err)
			}
		}
		// No error: after a takeover and back it is what has to be.
		r.parts.Log.Warn().Stringer("acked_lsn", was).Stringer("confirmed_flush_lsn", seed).Msg("slot was moved on by somebody else: " +
			"another relay published the rows between these positions, or the slot was advanced or made anew and they are not published")
	}
	ready()
	r.paused, r.held = false, false
	r.mu.Lock()
	r.session, r.streamed, r.openFrom = s, true, time.Now()
	r.openedAt = r.openFrom
	r.state.Sessions++
	r.mu.Unlock()
	r.parts.Metrics.SessionsOpened.Inc()
	r.parts.Metrics.Connected.Set(1)
	r.enter(Streaming, nil)
	r.parts.Log.Info().Stringer("confirmed_flush_lsn", s.stream.SeedLSN()).Int("session", r.state.Sessions).
		Str("server_version", s.stream.Identity().ServerVersion).Msg("streaming started")
	return s, nil
}

// hold keeps the stream alive until ready is called: to read what earlier sessions have left in the topics may take longer than the server waits for a
// status, and then each session would publish what had come meanwhile, and confirm nothing of it.
func (s *session) hold() (ready func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.stream.KeepAlive(done) }) // ends with done; waited for by ready
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// openSink opens the kind of sink that the configuration asks for.
func (r *Relay) openSink(ctx context.Context, s *session) (err error) {
	if r.cfg.ExactlyOnce {
		if s.transactional, err = r.parts.OpenTransactional(ctx, s.delivered, s.committed); err != nil {
			return err
		}
		s.sink = s.transactional
		return nil
	}
	if s.sink, err = r.parts.OpenSink(ctx, s.delivered); err != nil {
		return err
	}
	if r.cfg.Dedup == DedupTail {
		var can bool
		if s.dedup, can = s.sink.(sink.Deduplicator); !can {
			s.closeSink(sinkCloseTimeout)
			return fmt.Errorf("%w: relay.dedup = %q: this sink cannot read what is published", ErrConfiguration, DedupTail)
		}
	}
	return nil
}

// goOn finds out what earlier sessions have left in the topics. The slot is held: nobody else publishes.
func (r *Relay) goOn(ctx context.Context, s *session) (err error) {
	id := s.stream.Identity()
	s.source = sink.Source{SystemID: id.SystemID, Timeline: id.Timeline, Database: r.parts.Database, Slot: r.parts.Slot, Events: r.parts.Events}
	if s.transactional != nil {
		stored, err := s.transactional.Begin(ctx, s.source)
		if err != nil {
			return err
		}
		if err := s.goOnBehind(stored); err != nil {
			return err
		}
	}
	if r.parts.Policies.On() {
		if s.desk, err = r.parts.OpenDesk(ctx, s.source, s.stream.SeedLSN()); err != nil {
			return err
		}
	}
	return nil
}

func (r *Relay) close(s *session) {
	if s.desk != nil {
		s.desk.Close()
	}
	r.observe()
	r.seen.LSN, r.seen.confirmed = max(r.seen.LSN, s.stream.ReceivedLSN()), s.stream.ConfirmedFlushLSN()
	r.mu.Lock()
	r.state.Published += s.published.Load()
	r.session = nil
	r.state.InFlight, r.state.InFlightBytes, r.state.OldestUnacked = 0, 0, time.Time{}
	r.mu.Unlock()
	r.parts.Metrics.Connected.Set(0)
}
