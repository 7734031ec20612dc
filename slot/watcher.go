package slot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// Watcher looks after slot and publication while a session streams. What it has learned, the OIDs and the last
// Status, outlives a session: make one per process and Run it once per session.
type Watcher struct {
	postgres postgres.Config
	need     Requirements
	observe  func(Status)
	log      zerolog.Logger

	// Of the goroutine in Run alone.
	tables map[string]seen // as first seen, by configured name

	mu   sync.Mutex
	last Status
}

// NewWatcher makes a watcher. observe is called with every new Status, from Run's goroutine; it must not block and may be nil.
func NewWatcher(pg postgres.Config, need Requirements, observe func(Status), log zerolog.Logger) *Watcher {
	if observe == nil {
		observe = func(Status) {}
	}
	return &Watcher{
		postgres: pg, need: need, observe: observe, log: log,
		tables: make(map[string]seen), last: Status{Slot: Slot{Name: need.Slot.Name}},
	}
}

// Status is the last observation, kept while the server cannot be asked: ObservedAt says how old it is, Error why.
// It may be called from any goroutine.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Run watches over a connection of its own until ctx ends, then returns nil. It returns a *PublicationError when rows would be
// missing, a *LostError when the slot is lost or gone, and an error that is postgres.ErrStopping when the server shuts
// down: whoever streams should let go at once, because the server waits for that. A lost connection that comes back
// is no error, and neither is one that cannot be had for a while.
func (w *Watcher) Run(ctx context.Context) error {
	pause := reconnectMin
	for {
		conn, err := w.connect(ctx)
		if err == nil {
			pause = reconnectMin
			conn, err = w.watch(ctx, conn)
			closeConn(conn)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case isFinal(err):
			w.note(err)
			return err
		}
		w.observe(w.note(err))
		w.log.Debug().Err(err).Dur("backoff", pause).Msg("slot not observed")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, reconnectMax)
	}
}

// watch looks and listens in turns. It returns the connection it holds at the end, and why it ended.
func (w *Watcher) watch(ctx context.Context, conn *pgx.Conn) (*pgx.Conn, error) {
	renewAt := time.Now().Add(renewInterval)
	for {
		if err := w.look(ctx, conn); err != nil {
			if !conn.IsClosed() || isFinal(err) {
				return conn, err
			}
			if conn, err = w.afterLoss(ctx, conn, err); err != nil {
				return nil, err
			}
		}
		err := listen(ctx, conn, w.need.Slot.CheckInterval)
		switch {
		case ctx.Err() != nil:
			return conn, nil
		case err != nil:
			if conn, err = w.afterLoss(ctx, conn, err); err != nil {
				return nil, err
			}
		case time.Now().After(renewAt):
			next, err := w.connect(ctx)
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
func (w *Watcher) afterLoss(ctx context.Context, lost *pgx.Conn, cause error) (*pgx.Conn, error) {
	closeConn(lost)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := w.connect(ctx)
	switch {
	case err == nil:
		w.log.Info().Err(cause).Msg("connection of the slot watcher was ended and made anew")
		return conn, nil
	case errors.Is(cause, postgres.ErrStopping) && (errors.Is(err, postgres.ErrStarting) || errors.Is(err, postgres.ErrUnreachable)):
		return nil, &stoppingError{err}
	}
	return nil, err
}

func (w *Watcher) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := postgres.Connect(ctx, w.postgres)
	if err != nil {
		return nil, err
	}
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

// look observes slot and publication once. An error that is not final leaves the last Status as it is.
func (w *Watcher) look(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	status, err := Get(ctx, conn, w.need.Slot.Name)
	if isMissing(err) {
		gone := w.Status()
		gone.Active, gone.ActivePID, gone.WALStatus, gone.ObservedAt = false, 0, "lost", time.Now()
		w.publish(gone)
		return Disappeared(gone.Name, gone.ConfirmedFlushLSN)
	}
	if err != nil {
		return err
	}
	p, problem := VerifyPublication(ctx, conn, w.need.Publication, w.need.Tables)
	if problem == nil {
		problem = w.sameTables(p)
	}
	switch {
	case sqlState(problem) == "55P03": // a table is locked, so nothing can be inserted into it either
		status.PublicationOK, problem = w.Status().PublicationOK, nil
	case problem != nil && !isFinal(problem):
		return problem
	default:
		ok := problem == nil
		status.PublicationOK = &ok
	}
	w.publish(status)
	if status.Lost() {
		return Verify(status.Slot, status.Database)
	}
	return problem
}

// seen is what must stay the same while a process relays a table: between two looks a change can come and go, and rows written
// meanwhile are not sent.
type seen struct {
	publication uint32 // OID
	membership  uint32 // OID of the table's entry in it
	table       uint32 // OID
	rowFilter   string
}

// sameTables notices a publication or table that was dropped, created anew and put together again between two looks, and a row
// filter that was set. A publication of all tables holds a new table from its first row on.
func (w *Watcher) sameTables(p *Publication) error {
	for _, t := range p.Tables {
		now := seen{publication: p.OID, membership: t.Membership, table: t.OID, rowFilter: t.RowFilter}
		if p.AllTables {
			now.table = 0
		}
		before, known := w.tables[t.Name]
		w.tables[t.Name] = now
		if !known || before == now {
			continue
		}
		var problem string
		fix := "look for rows in the table that were not delivered, then start the relay again"
		switch {
		case before.publication != now.publication:
			problem = "the publication was dropped and created anew: rows inserted in between are not sent"
		case before.table != now.table:
			problem = "the table was dropped and created anew: rows inserted before it was added to the publication again are not sent"
		case before.rowFilter != now.rowFilter:
			problem = fmt.Sprintf("its row filter was changed to %q: rows that do not match are not sent", now.rowFilter)
			fix = "ALTER PUBLICATION " + quoteName(p.Name) + " SET TABLE " + quoteTable(t.Name) + ";   unless the filter is meant; then start the relay again"
		default:
			problem = "the table was taken out of the publication and added again: rows inserted in between are not sent"
		}
		return &PublicationError{Publication: p.Name, Table: t.Name, Problem: problem, SQL: fix}
	}
	return nil
}

func (w *Watcher) publish(s Status) {
	w.mu.Lock()
	before := w.last
	w.last = s
	w.mu.Unlock()
	if before.WALStatus != s.WALStatus && !before.ObservedAt.IsZero() {
		event := w.log.Info()
		if !slices.Contains([]string{"reserved", "extended"}, s.WALStatus) {
			event = w.log.Warn()
		}
		event.Str("wal_status", s.WALStatus).Str("reason", s.InvalidationReason).Stringer("confirmed_flush_lsn", s.ConfirmedFlushLSN).
			Msg("slot changed its WAL status")
	}
	w.observe(s)
}

// note keeps the positions and says why they are old.
func (w *Watcher) note(err error) Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last.Error = err.Error()
	return w.last
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
