package monitor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/partition"
)

const (
	// A smart shutdown is not announced and waits for clients to disconnect; it only refuses new
	// connections. So the connection is replaced this often, for 20 ms of the server's CPU.
	renewInterval = 30 * time.Second
	// How long a look may take. A lock on an outbox table, as by ALTER TABLE, can delay it.
	lookTimeout = 5 * time.Second
	// Between the first look that finds no streaming session, and the next.
	secondLook = 500 * time.Millisecond
	// Pauses between attempts to connect to a server that refuses.
	reconnectMin = 250 * time.Millisecond
	reconnectMax = 5 * time.Second
	// Pauses between attempts to connect to a server that is away: a tenth of the time since it
	// answered, within these limits. Each costs a server that starts a process and a log line.
	probeMin = 100 * time.Millisecond
	probeMax = 500 * time.Millisecond
	// Longest attempt to connect to one host, unless postgres.url has a connect_timeout: the name
	// of a host that does not answer may resolve to another address by now. It does not bound the
	// command or the service that gives the password.
	connectTimeout = 4 * time.Second
	// A server that shuts down refuses at once; one that does not answer counts as stopped after
	// this.
	probeTimeout = 2 * time.Second
	// How many check intervals without a first look are worth a line in the log.
	unobservedIntervals = 3
)

// Monitor watches slot, publication and server over one connection. A process has one Monitor, and
// calls Run once.
type Monitor struct {
	postgres postgres.Config
	need     slot.Requirements
	cfg      Config
	export   func(Observation)
	log      zerolog.Logger
	renew    time.Duration       // renewInterval
	probe    time.Duration       // probeTimeout
	Assigner *partition.Assigner // looks at the partitions when due; may be nil
	Limiter  *ratelimit.Limiter  // of what the relay publishes; may be nil
	Hint     func(string) string // makes of a hint what is to be typed here
	*presence

	// Used only by Run's goroutine.
	connected     time.Time // when the present connection was made
	serverStarted time.Time
	observed      time.Time // when observe last succeeded
	rights        *rights   // of the login; nil: not read
	readings      readings
	seen          firstSeen
	still         standstills // of what else keeps WAL
	checkpoint    Checkpoint  // the last one
	// when checkpoint and the clock were last read
	checkpointRead, clockRead time.Time
	missing                   bool      // the last look found no slot
	unreachable               bool      // no answer since the last Status
	idleSince                 time.Time // begin of the last look, if it found no stream; else zero
	answers                   bool      // a look has had an answer
	unobserved                bool      // the log has that none had one

	skew atomic.Int64 // nanoseconds; see ClockSkew

	publicationMu sync.Mutex        // held from read to compare; guards the next three
	lastGood      *slot.Publication // of the last look that found no problem; nil: there was none
	boundaries    boundaries        // of the looks until then
	begun         bool              // Begin has looked

	mu          sync.Mutex // guards what follows
	last        slot.Status
	observation Observation // Slot is in last; slices are replaced, never written
}

// New returns a monitor. Run calls export with every new Observation, from its goroutine. export
// must not block and may be nil.
func New(pg postgres.Config, need slot.Requirements, cfg Config, export func(Observation),
	log zerolog.Logger) *Monitor {
	if export == nil {
		export = func(Observation) {}
	}
	return &Monitor{
		postgres: pg, need: need, cfg: cfg, export: export, log: log,
		renew: renewInterval, probe: probeTimeout, presence: newPresence(),
		Hint: func(hint string) string { return hint },
		last: slot.Status{Slot: slot.Slot{Name: need.Slot.Name}},
	}
}

// Observation returns the last observation, kept while the server is away: Slot.ObservedAt is its
// time, Slot.Error the reason. Safe for concurrent use; the slices must not be written.
func (m *Monitor) Observation() Observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.observation
	o.Slot = m.last
	return o
}

// ClockSkew returns the server's clock minus ours, as last measured; zero if that is within the
// error of measurement. Safe for concurrent use, and cheap.
func (m *Monitor) ClockSkew() time.Duration { return time.Duration(m.skew.Load()) }

// Status returns the last observation of the slot, kept while the server is away: ObservedAt is
// its time, Error the reason. Safe for concurrent use.
func (m *Monitor) Status() slot.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Run watches over its own connection until ctx ends. It calls problem with each error that has to
// end the stream, and with the time at which the look that found it began:
//
//   - *slot.PublicationError: rows would be missing
//   - *slot.LostError: the slot is lost or missing
//   - postgres.ErrStaleConnection: no session streams; it ends only streams that were opened
//     before that look
//   - postgres.ErrStopping: the server shuts down, and the shutdown waits for the stream
func (m *Monitor) Run(ctx context.Context, problem func(err error, began time.Time)) {
	refusals, lastAnswer, started := 0, time.Now(), time.Now()
	for {
		began := time.Now()
		conn, err := m.connect(ctx)
		if err == nil {
			err = m.watch(ctx, conn, problem)
			lastAnswer = time.Now()
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > reconnectMax { // it was connected for a while
			refusals = 0
		}
		switch stopping := new(stoppingError); {
		case errors.As(err, &stopping):
			problem(err, time.Now())
		case errors.Is(err, postgres.ErrStarting): // the server starts or shuts down: every stream ends
			problem(&stoppingError{err}, time.Now())
		}
		m.noteFailure(err)
		m.noteUnobserved(err, time.Since(started))
		pause := min(max(time.Since(lastAnswer)/10, probeMin), probeMax)
		if !serverAway(err) {
			pause = min(reconnectMin<<min(refusals, 10), reconnectMax)
			refusals++
		}
		m.log.Debug().Err(err).Dur("backoff", pause).Msg("slot not observed")
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// serverAway reports whether err is that of a server that is away for a moment.
func serverAway(err error) bool {
	return errors.Is(err, postgres.ErrUnreachable) || errors.Is(err, postgres.ErrStarting) ||
		errors.Is(err, postgres.ErrStopping) || errors.Is(err, postgres.ErrNotWritable)
}

// watch looks and listens in turns until it fails. It closes conn.
func (m *Monitor) watch(ctx context.Context, conn *pgx.Conn,
	problem func(err error, began time.Time)) error {
	defer func() {
		if conn != nil {
			postgres.Close(conn)
		}
	}()
	for {
		began := time.Now()
		found, err := m.look(ctx, conn)
		if err == nil {
			m.noteAnswer(conn)
			m.noteObserved()
		}
		if found == nil && err == nil {
			began, found = m.stale(began)
		}
		if found != nil {
			problem(found, began)
		}
		if err == nil {
			err = listen(ctx, conn, m.untilLook(conn, found))
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !conn.IsClosed():
			return err
		case err != nil:
			lived := time.Since(m.connected)
			if conn, err = m.afterLoss(ctx, conn, err); err != nil {
				return err
			}
			if lived < reconnectMin { // do not reconnect at once
				postgres.Close(conn)
				return errShortLived
			}
		case time.Since(m.connected) > m.renew:
			// Closed before the next one opens: the monitor never has two connections.
			postgres.CloseBoth(conn)
			if conn, err = m.connect(ctx); errors.Is(err, postgres.ErrStarting) {
				return &stoppingError{err}
			}
			if err != nil {
				return err
			}
		}
	}
}

// errShortLived ends a watch whose connection the server ends too soon.
var errShortLived = errors.New(
	"the server ends the connections of the monitor soon after they are made")

// untilLook returns the time until the next look, after one that found a problem or nil. It is
// short after a look without a stream, whose relay may have a stale connection, and on a standby,
// which may be promoted.
func (m *Monitor) untilLook(conn *pgx.Conn, found error) time.Duration {
	next := min(m.need.Slot.CheckInterval, max(m.untilObserved(), time.Millisecond))
	if found == nil && !m.idleSince.IsZero() || postgres.OnStandby(conn) {
		next = min(next, secondLook)
	}
	return next
}

// listen waits for an error of the connection, which announces a shutdown at once. It returns nil
// if there is none for d.
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

// afterLoss makes a new connection after cause has ended one. A server that shuts down refuses it,
// and the stream has to end at once. After pg_terminate_backend or a crash the server accepts it.
func (m *Monitor) afterLoss(ctx context.Context, lost *pgx.Conn, cause error) (*pgx.Conn, error) {
	postgres.Close(lost)
	ctx, cancel := context.WithTimeout(ctx, m.probe)
	defer cancel()
	conn, err := m.connect(ctx)
	switch {
	case err == nil:
		m.log.Info().Err(cause).Msg("connection of the monitor was ended and replaced")
		return conn, nil
	case errors.Is(cause, postgres.ErrStopping) && !postgres.IsLogin(err) &&
		(errors.Is(err, postgres.ErrStarting) || errors.Is(err, postgres.ErrUnreachable)):
		return nil, &stoppingError{err}
	}
	return nil, err
}

// settings prepares a connection. A timeout of the role must not end it while it is idle. Planning
// and JIT compilation take longer than the statements, which are always the same.
const settings = `SELECT pg_catalog.pg_postmaster_start_time(),
	pg_catalog.set_config('idle_session_timeout', '0', false),
	pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
	pg_catalog.set_config('jit', 'off', false)`

func (m *Monitor) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := postgres.ConnectWithin(ctx, m.postgres, connectTimeout)
	if err != nil {
		m.failed()
		return nil, err
	}
	m.connected = time.Now()
	if m.rights != nil && time.Since(m.rights.refusedAt) > refusalAge { // may be granted by now
		m.rights = nil
	}
	var started time.Time
	if err = postgres.SetTimeout(ctx, conn, "lock_timeout", slot.LockTimeout); err == nil {
		err = postgres.Wrap(conn.QueryRow(ctx, settings).Scan(&started, nil, nil, nil),
			"set up the connection of the monitor")
	}
	if err != nil {
		postgres.Close(conn)
		m.failed()
		return nil, err
	}
	m.serverStarted = started
	m.noteAnswer(conn)
	return conn, nil
}

// noteAnswer records that the server of conn answers.
func (m *Monitor) noteAnswer(conn *pgx.Conn) {
	if m.answered(m.serverStarted, postgres.OnStandby(conn)) {
		m.observed = time.Time{} // it may be another server
	}
}

// noteUnobserved logs once that no look has had an answer since Run began, some time ago. Of a
// later failure recorded events tell.
func (m *Monitor) noteUnobserved(err error, since time.Duration) {
	if m.answers || m.unobserved || since < unobservedIntervals*m.need.Slot.CheckInterval {
		return
	}
	m.unobserved = true
	m.log.Warn().Err(err).Str("slot", m.need.Slot.Name).Dur("duration", since).
		Str("next", m.Hint("postrider check")).
		Msg("slot and publication not observed since the start: a change of the publication or of " +
			"its tables is not noticed")
}

// noteObserved records that a look has had an answer.
func (m *Monitor) noteObserved() {
	m.answers = true
	if m.unobserved {
		m.unobserved = false
		m.log.Info().Str("slot", m.need.Slot.Name).Msg("slot and publication are observed now")
	}
}

// stoppingError is the error of a server that shuts down, and not of a single connection that was
// ended with the same SQLSTATE.
type stoppingError struct{ err error }

func (e *stoppingError) Error() string { return e.err.Error() }

func (e *stoppingError) Unwrap() []error { return []error{postgres.ErrStopping, e.err} }
