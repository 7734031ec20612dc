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
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/partition"
)

const (
	// A smart shutdown is not announced and waits for clients to go; only a new connection is
	// refused. So the connection is replaced this often. A new one costs the server 20 ms of CPU.
	renewInterval = 30 * time.Second
	// How long one look may take. A lock on an outbox table, as by ALTER TABLE, can hold it up.
	observeTimeout = 5 * time.Second
	// Between the look that is the first to see that no session streams, and the next.
	secondLook = 500 * time.Millisecond
	// Pauses between attempts to connect to a server that refuses.
	reconnectMin = 250 * time.Millisecond
	reconnectMax = 5 * time.Second
	// Pauses between attempts to connect to a server that is away: a tenth of the time that it is,
	// within these limits. An attempt costs a server that starts or stops a process and a log line.
	probeMin = 100 * time.Millisecond
	probeMax = 500 * time.Millisecond
	// Longest attempt to connect to one host, unless postgres.url has a connect_timeout: the name of
	// a host that does not answer may lead to another address by now.
	connectTimeout = 4 * time.Second
	// A server that shuts down refuses at once; one that does not answer at all is taken for stopped
	// after this.
	probeTimeout = 2 * time.Second
)

// Monitor looks after slot and publication, and watches the server, over one connection. Make one
// per process, and Run it once.
type Monitor struct {
	postgres postgres.Config
	need     slot.Requirements
	cfg      Config
	export   func(Observation)
	log      zerolog.Logger
	renew    time.Duration       // renewInterval
	Assigner *partition.Assigner // shown the partitions once in a while; nil: there is none
	*presence

	// Of the goroutine in Run alone.
	connected     time.Time // when the present connection was made
	serverStarted time.Time
	observed      time.Time // when observe last succeeded
	rights        *rights   // of the login; nil: not read
	readings      readings
	seen          firstSeen
	checkpoint    Checkpoint // the last one, as seen
	clockRead     time.Time
	missing       bool      // there was no slot when it was last looked for
	unreachable   bool      // there was no answer since the last Status
	idleSince     time.Time // begin of the look before this one, if that saw no stream

	skew atomic.Int64 // nanoseconds; see ClockSkew

	looking    sync.Mutex        // held while the publication is read and compared
	lastGood   *slot.Publication // of the last look that found nothing wrong; nil: there was none
	boundaries boundaries        // of the looks until then
	begun      bool              // Begin has looked

	mu          sync.Mutex
	last        slot.Status
	observation Observation // without its Slot, which last is. Its slices are replaced, never written
}

// New makes a monitor. export is called with every new Observation, from Run's goroutine; it must
// not block and may be nil.
func New(pg postgres.Config, need slot.Requirements, cfg Config, export func(Observation),
	log zerolog.Logger) *Monitor {
	if export == nil {
		export = func(Observation) {}
	}
	pg.ConnectTimeout = min(pg.ConnectTimeout, connectTimeout)
	return &Monitor{
		postgres: pg, need: need, cfg: cfg, export: export, log: log,
		renew: renewInterval, presence: newPresence(),
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

// ClockSkew is the server's clock minus ours, as last measured: zero within the error of
// measurement. Safe for concurrent use, for each message.
func (m *Monitor) ClockSkew() time.Duration { return time.Duration(m.skew.Load()) }

// Status is the last observation of the slot, kept while the server is away: ObservedAt is its
// time, Error the reason. Safe for concurrent use.
func (m *Monitor) Status() slot.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Run watches over a connection of its own until ctx ends. From its goroutine it calls problem
// with what ends a stream and when the look began that found it: at each look a *PublicationError
// when rows would be missing and a *LostError when the slot is lost or gone; ErrStaleConnection of
// package postgres when no session streams, for streams that began before that look; and its
// ErrStopping when the server shuts down, which waits for the stream.
func (m *Monitor) Run(ctx context.Context, problem func(err error, began time.Time)) {
	refusals, there := 0, time.Now()
	for {
		began := time.Now()
		conn, err := m.connect(ctx)
		if err == nil {
			err = m.watch(ctx, conn, problem)
			there = time.Now()
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > reconnectMax { // it went well for a while
			refusals = 0
		}
		switch stopping := new(stoppingError); {
		case errors.As(err, &stopping):
			problem(err, time.Now())
		case errors.Is(err, postgres.ErrStarting): // it is about to end every stream, or has done so
			problem(&stoppingError{err}, time.Now())
		}
		m.note(err)
		pause := min(max(time.Since(there)/10, probeMin), probeMax)
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

// serverAway reports whether err is that of a server that may be there at any moment.
func serverAway(err error) bool {
	return errors.Is(err, postgres.ErrUnreachable) || errors.Is(err, postgres.ErrStarting) ||
		errors.Is(err, postgres.ErrStopping) || errors.Is(err, postgres.ErrNotWritable)
}

// watch looks and listens in turns, and returns what ended that. conn is closed then.
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
			if lived < reconnectMin { // a server that ends each connection at once must wait for the next
				postgres.Close(conn)
				return errShortLived
			}
		case time.Since(m.connected) > m.renew:
			// The server never has two connections of the monitor.
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

// errShortLived ends a watch whose connections are ended again and again.
var errShortLived = errors.New(
	"the server ends the connections of the monitor soon after they are made")

// untilLook is the time to the next look, after one that found a problem or nil. After the first
// look that sees no stream the next one comes soon: rows wait while a relay has a connection that
// the server has closed. So it does on a standby, which may be promoted.
func (m *Monitor) untilLook(conn *pgx.Conn, found error) time.Duration {
	next := min(m.need.Slot.CheckInterval, max(m.untilObserved(), time.Millisecond))
	if found == nil && !m.idleSince.IsZero() || onStandby(conn) {
		next = min(next, secondLook)
	}
	return next
}

// listen waits on the connection: a shutdown of the server is announced there at once. nil:
// nothing happened for d.
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

// afterLoss finds out what ended the connection: a server that shuts down refuses a new one, and
// the stream has to end at once. After pg_terminate_backend or a crash there is a connection
// again.
func (m *Monitor) afterLoss(ctx context.Context, lost *pgx.Conn, cause error) (*pgx.Conn, error) {
	postgres.Close(lost)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := m.connect(ctx)
	switch {
	case err == nil:
		m.log.Info().Err(cause).Msg("connection of the monitor was ended and replaced")
		return conn, nil
	case errors.Is(cause, postgres.ErrStopping) &&
		(errors.Is(err, postgres.ErrStarting) || errors.Is(err, postgres.ErrUnreachable)):
		return nil, &stoppingError{err}
	}
	return nil, err
}

// A role's timeout must not end a connection that waits most of the time. Planning takes longer
// than the statements, which are always the same; no plan is worth compiling.
const settings = `SELECT pg_catalog.pg_postmaster_start_time(),
	pg_catalog.set_config('idle_session_timeout', '0', false),
	pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
	pg_catalog.set_config('jit', 'off', false)`

func (m *Monitor) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := postgres.Connect(ctx, m.postgres)
	if err != nil {
		m.failed()
		return nil, err
	}
	m.connected = time.Now()
	if m.rights != nil && time.Since(m.rights.refusedAt) > refusalAge { // a grant is to show soon
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

// noteAnswer notes an answer of the server of conn.
func (m *Monitor) noteAnswer(conn *pgx.Conn) {
	if m.answered(m.serverStarted, onStandby(conn)) {
		m.observed = time.Time{} // it may be another server
	}
}

// stoppingError marks the end of a server that does not come back at once, unlike a single
// connection ended with the same code.
type stoppingError struct{ err error }

func (e *stoppingError) Error() string { return e.err.Error() }

func (e *stoppingError) Unwrap() []error { return []error{postgres.ErrStopping, e.err} }
