package slot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"postrider/postgres"
)

const (
	// A smart shutdown tells nobody and waits for clients to go: only a new connection is refused. So the connection is
	// replaced this often, and a smart shutdown waits for us no longer than that.
	renewInterval = 10 * time.Second
	// How long one look may take. A lock on an outbox table, as by ALTER TABLE, can hold it up.
	observeTimeout = 5 * time.Second
	lockTimeout    = 2 * time.Second
	// Pauses between attempts to connect. A server that is gone for longer is met by the session's own connections too.
	reconnectMin = 250 * time.Millisecond
	reconnectMax = 5 * time.Second
	// A server that shuts down refuses at once; one that does not answer at all is taken for stopped after this.
	probeTimeout = 2 * time.Second
)

// Monitor looks after slot and publication, and watches the server, over one connection. What it has learned outlives a call of Run: make
// one per process, and Run it whenever it has returned.
type Monitor struct {
	postgres postgres.Config
	need     Requirements
	cfg      MonitorConfig
	export   func(Observation)
	log      zerolog.Logger

	// Of the goroutine in Run alone.
	tables     map[string]seen // as first seen, by configured name
	observed   time.Time       // when observe last succeeded
	rights     *rights         // of the login on the present connection; nil: not asked
	readings   readings
	seen       firstSeen
	checkpoint Checkpoint // the last one, as seen
	clockRead  time.Time
	missing    bool // there was no slot when it was last looked for

	skew atomic.Int64 // nanoseconds

	mu          sync.Mutex
	last        Status
	observation Observation // without its Slot, which last is. Its slices are replaced, never written
}

// NewMonitor makes a monitor. export is called with every new Observation, from Run's goroutine; it must not block and may be nil.
func NewMonitor(pg postgres.Config, need Requirements, cfg MonitorConfig, export func(Observation), log zerolog.Logger) *Monitor {
	if export == nil {
		export = func(Observation) {}
	}
	return &Monitor{
		postgres: pg, need: need, cfg: cfg, export: export, log: log,
		tables: make(map[string]seen), last: Status{Slot: Slot{Name: need.Slot.Name}},
	}
}

// Observation is what is known of the server, kept while it cannot be asked: Slot.ObservedAt says how old it is, Slot.Error why. It may
// be called from any goroutine; the slices must not be written.
func (m *Monitor) Observation() Observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.observation
	o.Slot = m.last
	return o
}

// ClockSkew is the server's clock minus ours, as last measured. It may be called from any goroutine, for each message.
func (m *Monitor) ClockSkew() time.Duration { return time.Duration(m.skew.Load()) }

// Status is the last observation, kept while the server cannot be asked: ObservedAt says how old it is, Error why.
// It may be called from any goroutine.
func (m *Monitor) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Run watches over a connection of its own until ctx ends, then returns nil. It returns a *PublicationError when rows would be
// missing, a *LostError when the slot is lost or gone, and an error that is postgres.ErrStopping when the server shuts
// down: whoever streams should let go at once, because the server waits for that. A lost connection that comes back
// is no error, and neither is one that cannot be had for a while.
func (m *Monitor) Run(ctx context.Context) error {
	pause := reconnectMin
	for {
		conn, err := m.connect(ctx)
		if err == nil {
			pause = reconnectMin
			conn, err = m.watch(ctx, conn)
			closeConn(conn)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case isFinal(err):
			m.note(err)
			return err
		}
		m.note(err)
		m.log.Debug().Err(err).Dur("backoff", pause).Msg("slot not observed")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, reconnectMax)
	}
}

// watch looks and listens in turns. It returns the connection it holds at the end, and why it ended.
func (m *Monitor) watch(ctx context.Context, conn *pgx.Conn) (*pgx.Conn, error) {
	renewAt := time.Now().Add(renewInterval)
	for {
		if err := m.look(ctx, conn); err != nil {
			if !conn.IsClosed() || isFinal(err) {
				return conn, err
			}
			if conn, err = m.afterLoss(ctx, conn, err); err != nil {
				return nil, err
			}
		}
		err := listen(ctx, conn, min(m.need.Slot.CheckInterval, max(m.untilObserved(), time.Millisecond)))
		switch {
		case ctx.Err() != nil:
			return conn, nil
		case err != nil:
			if conn, err = m.afterLoss(ctx, conn, err); err != nil {
				return nil, err
			}
		case time.Now().After(renewAt):
			next, err := m.connect(ctx)
			if errors.Is(err, postgres.ErrStarting) {
				return conn, &stoppingError{err}
			}
			if err == nil {
				closeConn(conn)
				conn = next
			}
			renewAt = time.Now().Add(renewInterval)
		}
	}
}

// listen waits on the connection: a shutdown of the server is announced there at once. nil: nothing happened for d.
func listen(ctx context.Context, conn *pgx.Conn, d time.Duration) error {
	waitCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		_, err := conn.WaitForNotification(waitCtx)
		if waitCtx.Err() != nil && !conn.IsClosed() {
			return nil
		}
		if err != nil {
			return postgres.Error(err)
		}
	}
}

// afterLoss finds out what ended the connection: a server that shuts down takes no new one, and then somebody has to be told
// at once. After pg_terminate_backend, or a crash that is over, there is a connection again.
func (m *Monitor) afterLoss(ctx context.Context, lost *pgx.Conn, cause error) (*pgx.Conn, error) {
	closeConn(lost)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := m.connect(ctx)
	switch {
	case err == nil:
		m.log.Info().Err(cause).Msg("connection of the monitor was ended and made anew")
		return conn, nil
	case errors.Is(cause, postgres.ErrStopping) && (errors.Is(err, postgres.ErrStarting) || errors.Is(err, postgres.ErrUnreachable)):
		return nil, &stoppingError{err}
	}
	return nil, err
}

func (m *Monitor) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := postgres.Connect(ctx, m.postgres)
	if err != nil {
		return nil, err
	}
	m.rights = nil
	if err := setTimeout(ctx, conn, "lock_timeout", lockTimeout); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// closeConn says goodbye, with a limit of its own: the session's context may be over.
func closeConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // whatever goes wrong, it is closed
}

// look looks at slot and publication, and at the server if that is due. An error that is not final leaves the last Status as it is.
func (m *Monitor) look(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	status, err := m.status(ctx, conn)
	if isMissing(err) {
		return m.gone()
	}
	if err != nil {
		return err
	}
	if m.missing {
		m.missing = false
		m.readings = nil // positions of another slot
		m.happened("slot_created", fmt.Sprintf("slot %q is there again, confirmed up to %s: what was committed before it was made is not in it", status.Name, status.ConfirmedFlushLSN))
	}
	p, problem := VerifyPublication(ctx, conn, m.need.Publication, m.need.Tables)
	if problem == nil {
		problem = m.sameTables(p)
	}
	switch {
	case sqlState(problem) == "55P03": // a table is locked, so nothing can be inserted into it either
		status.PublicationOK, problem = m.Status().PublicationOK, nil
	case problem != nil && !isFinal(problem):
		return problem
	default:
		ok := problem == nil
		status.PublicationOK = &ok
	}
	m.publish(status)
	if status.Lost() {
		return Verify(status.Slot, status.Database)
	}
	return problem
}

// status reads the slot: alone, or with all else that is known of the server.
func (m *Monitor) status(ctx context.Context, conn *pgx.Conn) (Status, error) {
	if m.untilObserved() <= 0 {
		status, err := m.observe(ctx, conn)
		switch {
		case err == nil, isMissing(err), conn.IsClosed(), ctx.Err() != nil:
			return status, err
		}
		m.observed = time.Now() // not at once again
		m.annotate(Note{"monitor", "the server could not be observed beyond slot and publication: " + err.Error()})
	}
	return Get(ctx, conn, m.need.Slot.Name)
}

// gone is for a slot that is not there. One that was never seen may not have been made yet.
func (m *Monitor) gone() error {
	last := m.Status()
	err := Disappeared(m.need.Slot.Name, last.ConfirmedFlushLSN)
	if last.ObservedAt.IsZero() {
		m.note(err)
		return err
	}
	if !m.missing {
		m.missing = true
		m.happened("slot_missing", fmt.Sprintf("slot %q does not exist any more: somebody dropped or renamed it", last.Name))
	}
	last.Active, last.ActivePID, last.WALStatus, last.ObservedAt, last.Error = false, 0, "lost", time.Now(), ""
	m.publish(last)
	return err
}

func (m *Monitor) publish(s Status) {
	m.mu.Lock()
	before := m.last
	if s.InactiveSince.IsZero() && !s.Active && !before.Active {
		s.InactiveSince = before.InactiveSince // 14 to 16 do not say
	}
	if s.InactiveSince.IsZero() && !s.Active {
		s.InactiveSince = s.ObservedAt
	}
	if s.Active {
		s.InactiveSince = time.Time{}
	}
	m.last = s
	m.mu.Unlock()
	if before.WALStatus != s.WALStatus && !before.ObservedAt.IsZero() {
		event := m.log.Info()
		if !slices.Contains([]string{"reserved", "extended"}, s.WALStatus) {
			event = m.log.Warn()
		}
		event.Str("wal_status", s.WALStatus).Str("reason", s.InvalidationReason).Stringer("confirmed_flush_lsn", s.ConfirmedFlushLSN).
			Msg("slot changed its WAL status")
		if s.Lost() && !m.missing {
			m.happened("slot_invalidated", fmt.Sprintf("slot %q was invalidated: %s", s.Name, cmp.Or(s.InvalidationReason, "WAL that it needs was removed")))
		}
	}
	switch {
	case before.PublicationOK == nil || s.PublicationOK == nil || *before.PublicationOK == *s.PublicationOK:
	case *s.PublicationOK:
		m.happened("publication_repaired", "the publication brings every table again; rows inserted meanwhile are not sent")
	default:
		m.happened("publication_broken", "the publication does not bring every table any more")
	}
	if before.Error != "" && !before.ObservedAt.IsZero() {
		m.happened("connection_back", "the server answers again")
	}
	m.export(m.Observation())
}

// note keeps the positions and says why they are old.
func (m *Monitor) note(err error) {
	m.mu.Lock()
	first := m.last.Error == ""
	m.last.Error = err.Error()
	seen := !m.last.ObservedAt.IsZero()
	m.mu.Unlock()
	if first && seen {
		m.happened("connection_lost", "the server does not answer: "+err.Error())
	}
	m.export(m.Observation())
}

// stoppingError marks the end of a server that does not come back at once, unlike a single connection ended with the same code.
type stoppingError struct{ err error }

func (e *stoppingError) Error() string {
	return fmt.Sprintf("server is shutting down and takes no connection any more: %s", e.err)
}

func (e *stoppingError) Unwrap() []error { return []error{postgres.ErrStopping, e.err} }

// isFinal tells whether the session must end. Everything else heals here.
func isFinal(err error) bool {
	var publication *PublicationError
	var lost *LostError
	var stopping *stoppingError
	return errors.As(err, &publication) || errors.As(err, &lost) || errors.As(err, &stopping)
}
