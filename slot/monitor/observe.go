package monitor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

const (
	keptEvents = 20
	// How long a measurement of the clock is kept, unless a later one has a smaller error.
	clockAge = time.Minute
)

// untilObserved returns the time until the next observation is due.
func (m *Monitor) untilObserved() time.Duration { return m.cfg.Interval - time.Since(m.observed) }

// observe updates the Observation, and returns the status of the slot. After an error the
// Observation is unchanged, except for slot.ErrNotFound.
func (m *Monitor) observe(ctx context.Context, conn *pgx.Conn) (slot.Status, error) {
	a, err := m.query(ctx, conn)
	if err != nil {
		return slot.Status{}, err
	}
	all, rows := a.statuses()
	m.observed = a.after
	before := m.Observation()
	o := Observation{
		Server: a.server(), Limit: a.limit(m.cfg.VolumeSize), Decoding: a.decoding(),
		Stream: a.walsender(), Clock: m.clock(before.Clock, a),
		Notes: m.rights.notes(conn.Config().User, m.cfg.VolumeSize),
	}
	m.seen.round()
	at := slices.IndexFunc(all, func(s slot.Status) bool { return s.Name == m.need.Slot.Name })
	own := before.Slot
	found := at >= 0 && !all[at].Unfinished()
	if found {
		own = all[at]
		o.CatalogXminAge = rows[own.Name].CatalogXminAge
		m.noticeNewSlot(own, o.Decoding)
	}
	if at >= 0 {
		all = slices.Delete(all, at, at+1)
	}
	for i := range all {
		s := &all[i]
		// by the server's clock; PostgreSQL 17 and later report it
		if s.Active {
			s.InactiveSince = time.Time{}
		} else if s.InactiveSince.IsZero() {
			s.InactiveSince = m.seen.since("inactive "+s.Name, a.Now)
		}
	}
	o.Blockers = a.blockers(&m.seen)
	if m.cfg.OtherSlots {
		o.Others = all
	}
	m.recordServerChanges(before.Server, o.Server)
	limited := m.Limiter.State()
	if found {
		m.readings = m.readings.add(reading{at: a.after, wal: own.CurrentWALLSN,
			confirmed: own.ConfirmedFlushLSN, restart: own.RestartLSN, pages: a.Pages,
			limited: limited})
	}
	o.Standbys = a.standbys(own.Slot, all, m.readings)
	o.Rates, o.Distance = m.readings.rates(), m.readings.distance()
	m.still.round()
	o.Distance.Others = m.stillOthers(o.Others, a)
	if o.Archive = a.archive(); o.Archive != nil {
		o.Archive.Still = m.still.still("archive", o.Archive.LSN, pglogrepl.LSN(a.Current), a.after)
	}
	o.Pace = m.readings.pace(limited)
	o.Limit.Checkpoint = m.lastCheckpoint(a, o.Clock)
	o.Slot = own
	o.Forecast = forecast(o)
	m.mu.Lock()
	o.Events = m.observation.Events
	m.observation = o
	m.mu.Unlock()
	if !found {
		return slot.Status{}, slot.NotFound(m.need.Slot.Name)
	}
	return own, nil
}

// query requests an observation, without what the server refuses.
func (m *Monitor) query(ctx context.Context, conn *pgx.Conn) (timedAnswer, error) {
	var r rights
	if m.rights != nil {
		r = *m.rights
	} else if err := r.read(ctx, conn); err != nil {
		return timedAnswer{}, err
	}
	for {
		a, err := queryServer(ctx, conn, r, m.need.Slot.Name, m.cfg.VolumeSize)
		if err == nil {
			m.rights = &r
			return a, nil
		}
		less, ok := r.without(err, m.cfg.VolumeSize)
		if postgres.SQLState(err) == "" || conn.IsClosed() || !ok {
			return timedAnswer{}, err
		}
		r = less
	}
}

// recordServerChanges records a restart or promotion of the server, or a failover.
func (m *Monitor) recordServerChanges(before, now Server) {
	switch {
	case before.StartedAt.IsZero():
		return
	case before.Standby && !now.Standby:
		m.record("promoted", "the server was promoted: it was a standby")
	case before.Timeline > 0 && now.Timeline > before.Timeline:
		m.record("failover", fmt.Sprintf("another server answers: timeline %d, before it was %d",
			now.Timeline, before.Timeline))
	case !before.StartedAt.Equal(now.StartedAt):
		m.record("server_restarted",
			"the server was restarted at "+now.StartedAt.UTC().Format(time.RFC3339))
	default:
		return
	}
	m.readings, m.still = nil, standstills{}
	m.checkpoint = Checkpoint{}
}

// stillOthers returns for how long restart_lsn of other slots has not moved while WAL was written.
func (m *Monitor) stillOthers(others []slot.Status, a timedAnswer) map[string]Seconds {
	still := map[string]Seconds{}
	for _, s := range others {
		if d := m.still.still("slot "+s.Name, s.RestartLSN, pglogrepl.LSN(a.Current), a.after); d > 0 {
			still[s.Name] = d
		}
	}
	return still
}

// lastCheckpoint returns the last completed checkpoint, and estimates how long it took.
func (m *Monitor) lastCheckpoint(a timedAnswer, clock *Clock) *Checkpoint {
	if a.Checkpoint == nil {
		return nil
	}
	now := Checkpoint{StartedAt: a.Checkpoint.Time, RedoLSN: pglogrepl.LSN(a.Checkpoint.Redo),
		Took: m.checkpoint.Took}
	recent := a.after.Sub(m.checkpointRead) <= 2*m.cfg.Interval
	m.checkpointRead = a.after
	if was := m.checkpoint.StartedAt; !was.IsZero() && !was.Equal(now.StartedAt) && recent {
		// It ended between the last observation and this one.
		ended := a.Now.Add(-m.cfg.Interval / 2)
		now.Took = Seconds(max(0, ended.Sub(now.StartedAt).Seconds()))
	}
	m.checkpoint = now
	now.Pages = m.readings.pagesSince(now.StartedAt.Add(-clock.Skew.Duration()), m.cfg.Interval)
	return &now
}

// clock returns the last measurement of the clock while it is younger than clockAge and has the
// smaller error, else a new one. If their errors do not explain how they differ, a clock was set
// meanwhile: then the last one is wrong.
func (m *Monitor) clock(before *Clock, a timedAnswer) *Clock {
	now := a.clock()
	if before != nil && before.Error < now.Error && before.agrees(now) &&
		a.after.Sub(m.clockRead) < clockAge {
		kept := *before
		kept.at = now.at // our clock that counts on from it stops while a machine is suspended
		return &kept
	}
	m.clockRead = a.after
	m.skew.Store(int64(now.skew()))
	return now
}

// record logs an event and adds it to the Observation.
func (m *Monitor) record(code, text string) {
	m.log.Warn().Str("slot", m.need.Slot.Name).Str("event", code).Str("reason", text).
		Msg("server or slot changed")
	m.mu.Lock()
	defer m.mu.Unlock()
	events := append([]Event{{At: time.Now(), Code: code, Text: text}}, m.observation.Events...)
	m.observation.Events = events[:min(len(events), keptEvents)]
}

// annotate adds a note, which the next observation removes.
func (m *Monitor) annotate(n Note) {
	m.mu.Lock()
	defer m.mu.Unlock()
	notes := slices.DeleteFunc(slices.Clone(m.observation.Notes),
		func(o Note) bool { return o.Value == n.Value })
	m.observation.Notes = append(notes, n)
}
