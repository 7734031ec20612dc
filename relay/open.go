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
	s.window = newWindow(s.stream.SeedLSN(), r.cfg.InFlightMessages, r.cfg.InFlightBytes)
	// The topics may take longer to read than the server waits for a status.
	done := make(chan struct{})
	var alive sync.WaitGroup
	alive.Go(func() { s.stream.KeepAlive(done) })
	err = r.resume(ctx, s)
	close(done)
	alive.Wait()
	if err != nil {
		s.closeDeadLetters()
		_ = s.finish(ctx, err)
		return nil, err
	}
	r.paused, r.held, r.openedAt = false, false, time.Now()
	r.mu.Lock()
	r.session, r.streamed, r.openFrom, r.counted = s, true, r.openedAt, 0
	r.state.Sessions++
	number := r.state.Sessions
	r.mu.Unlock()
	r.parts.Metrics.SessionsOpened.Inc()
	r.parts.Metrics.Connected.Set(1)
	r.enter(Streaming, nil)
	r.parts.Log.Info().Stringer("confirmed_flush_lsn", s.stream.SeedLSN()).
		Int("session", number).
		Str("server_version", s.stream.Identity().ServerVersion).Msg("streaming started")
	return s, nil
}

// openSink opens the configured kind of sink.
func (r *Relay) openSink(ctx context.Context, s *session) (err error) {
	if r.cfg.ExactlyOnce {
		s.transactional, err = r.parts.Broker.OpenTransactional(ctx, s.delivered, s.committed)
		s.sink = s.transactional
		return err
	}
	s.sink, err = r.parts.Broker.OpenSink(ctx, s.delivered)
	if err != nil || r.cfg.Dedup != DedupTail {
		return err
	}
	var can bool
	if s.dedup, can = s.sink.(sink.Deduplicator); !can {
		s.closeSink(sinkCloseTimeout)
		return fmt.Errorf("%w: relay.dedup = %q: this sink cannot read what is published",
			ErrConfiguration, DedupTail)
	}
	return nil
}

// resume compares server and topics with earlier sessions. The slot is ours: no one else
// publishes.
func (r *Relay) resume(ctx context.Context, s *session) error {
	id, seed, timeline := s.stream.Identity(), s.stream.SeedLSN(), r.seen.Timeline
	r.candidates.forget(seed)
	if err := r.recognise(id, seed); err != nil {
		return err
	}
	if r.parts.Rows.Timeline != nil {
		r.parts.Rows.Timeline(id.Timeline)
	}
	if err := r.retryAwaited(ctx, s); err != nil {
		return err
	}
	s.source = r.parts.Source
	s.source.SystemID, s.source.Timeline = id.SystemID, id.Timeline
	if err := s.beginExactlyOnce(ctx); err != nil {
		return err
	}
	if err := s.openDeadLetters(ctx, r.parts.DeadLetters); err != nil {
		return err
	}
	was := r.State().AckedLSN
	if was == 0 || seed <= was {
		return nil
	}
	// After a promotion nothing that was observed of the slot is of this one.
	if moved := r.parts.Server.Moved; moved != nil && !r.paused && r.seen.Timeline == timeline {
		err := moved(ctx, Move{Acked: was, Confirmed: seed, Streamed: r.openedAt, Held: r.held})
		if err != nil {
			return err
		}
	}
	// No error: after a takeover and back it is what has to be.
	r.parts.Log.Warn().Stringer("acked_lsn", was).Stringer("confirmed_flush_lsn", seed).
		Msg("slot was advanced by another session: another relay published the rows between " +
			"these positions, or the slot was recreated and they are not published")
	return nil
}

func (r *Relay) close(s *session) {
	s.closeDeadLetters()
	r.observe()
	r.seen.LSN = max(r.seen.LSN, s.stream.ReceivedLSN())
	r.seen.confirmed = s.stream.ConfirmedFlushLSN()
	r.mu.Lock()
	r.state.Published += s.acknowledged.Load()
	r.session = nil
	r.state.InFlight, r.state.InFlightBytes, r.state.OldestUnacked = 0, 0, time.Time{}
	r.mu.Unlock()
	r.parts.Metrics.Connected.Set(0)
}
