package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/sink"
)

// open opens a session, the sink first: without a broker it does not occupy the slot.
func (r *Relay) open(ctx context.Context, fail context.CancelCauseFunc) (*session, error) {
	s := &session{cfg: r.cfg, policies: r.parts.DeadLetters.Policies, log: r.parts.Log,
		metrics: r.parts.Metrics, fail: fail,
		recent: &r.recent, candidates: &r.candidates, missing: &r.missing, published: &r.published,
		limiter: r.parts.Limiter, clockSkew: r.parts.Server.ClockSkew}
	s.progress.set(time.Now())
	var err error
	if s.router, err = r.parts.Rows.Router(); err != nil {
		return nil, err
	}
	r.candidates.probing.Store(false)
	r.published.begin()
	if err = r.openSink(ctx, s); err != nil {
		return nil, err
	}
	if s.stream, err = r.parts.Server.OpenStream(ctx); err != nil {
		s.closeSink(sinkCloseTimeout)
		return nil, err
	}
	s.bufferBytes = s.stream.BufferBytes
	s.window = newWindow(s.stream.SeedLSN(), r.cfg.limits())
	// Reading topics may take longer than wal_sender_timeout.
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
	r.paused, r.slotWasHeld, r.openedAt = false, false, time.Now()
	r.mu.Lock()
	r.session, r.streamed, r.openFrom, r.reportedBytes = s, true, r.openedAt, 0
	r.state.Sessions++
	r.state.SystemID = s.source.SystemID
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

// openSink opens the sink that relay.exactly_once and relay.dedup need.
func (r *Relay) openSink(ctx context.Context, s *session) (err error) {
	if r.cfg.ExactlyOnce {
		s.transactional, err = r.parts.Broker.OpenTransactional(ctx, s.delivered, s.committed)
		s.sink = s.transactional
		return err
	}
	s.sink, err = r.parts.Broker.OpenSink(ctx, s.delivered)
	if err != nil || !r.cfg.Deduplicates() {
		return err
	}
	var ok bool
	if s.dedup, ok = s.sink.(sink.Deduplicator); !ok {
		s.closeSink(sinkCloseTimeout)
		return fmt.Errorf("%w: relay.dedup = %q: this sink cannot read what is published",
			ErrConfiguration, DedupTail)
	}
	return nil
}

// resume compares server and topics with earlier sessions. The session occupies the slot, so no
// other process publishes.
func (r *Relay) resume(ctx context.Context, s *session) error {
	id, seed, timeline := s.stream.Identity(), s.stream.SeedLSN(), r.lastServer.Timeline
	r.candidates.forget(seed)
	if err := r.checkServer(id, seed); err != nil {
		return err
	}
	if r.parts.Rows.Timeline != nil {
		r.parts.Rows.Timeline(id.Timeline)
	}
	if err := r.checkAwaited(ctx, s); err != nil {
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
	// After a promotion the observations of the slot are those of another server.
	if moved := r.parts.Server.Moved; moved != nil && !r.paused && id.Timeline == timeline {
		if err := moved(ctx, Move{Acked: was, Confirmed: seed, Streamed: r.openedAt,
			Held: r.slotWasHeld}); err != nil {
			return err
		}
	}
	// Not an error: it is so after another relay took over for a while.
	r.parts.Log.Warn().Stringer("acked_lsn", was).Stringer("confirmed_flush_lsn", seed).
		Msg("slot was advanced by another session: another relay published the rows between " +
			"these positions, or the slot was recreated and they are not published")
	return nil
}

// close sets the State to that of a relay without a session.
func (r *Relay) close(s *session) {
	s.closeDeadLetters()
	r.setGauges()
	r.lastServer.LSN = max(r.lastServer.LSN, s.stream.ReceivedLSN())
	switch {
	case s.openCommit == 0:
	case s.transactional == nil: // rows of this transaction may be published: it must not be missing
		r.lastServer.LSN = max(r.lastServer.LSN, s.openCommit+1)
	default: // consumers never see them
		r.published.forget(s.openCommit)
	}
	r.lastServer.confirmed = s.stream.ConfirmedFlushLSN()
	r.mu.Lock()
	r.state.Published += s.acknowledged.Load()
	r.session = nil
	r.state.InFlight, r.state.InFlightBytes, r.state.OldestUnacked = 0, 0, time.Time{}
	r.mu.Unlock()
	r.parts.Metrics.Connected.Set(0)
}
