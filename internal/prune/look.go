package prune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// Relation is a table, or a leaf partition, whose rows are looked at.
type Relation struct {
	OID  uint32
	Name string // schema.name
	// Column distinguishes old rows from new ones: each new row has a greater value than all before,
	// and no update changes it. Empty: there is none.
	Column string
	// ColumnType is its type as pg_catalog.format_type gives it: a type of time, or an integer.
	ColumnType string
}

// Sentinels. All but ErrRefused and ErrUnsent are temporary: nothing is removed until the next
// run.
var (
	ErrRefused = errors.New("rows cannot be pruned")
	ErrUnsent  = errors.New("the slot does not send every row")
	ErrBusy    = errors.New("another session has the lock of these tables")
	ErrBehind  = errors.New("the slot is not confirmed up to what the tables show")
	ErrOpen    = errors.New("transactions are open that began before the slot was looked at")
	ErrChanged = errors.New("the slot, its session or the publication changed while it was looked at")
)

const (
	confirmInterval = 100 * time.Millisecond
	// confirmTimeout is longer than a relay without load takes to confirm: the status interval.
	confirmTimeout = 30 * time.Second
	// flushTimeout is for how long a commit may be visible and not flushed, with the default of
	// wal_writer_delay.
	flushTimeout = 600 * time.Millisecond
	// returnTimeout bounds the wait for a relay that does not stream.
	returnTimeout = 3 * time.Second
	// fenceTimeout bounds the wait for transactions that are older than a coverage that begins.
	fenceTimeout = 10 * time.Second
)

// Prover looks at one slot and the relations that it publishes, over one connection of
// postgres.ConnectRows. It keeps what it saw last; with a new connection make a new Prover,
// since the server may be another one. It is for one goroutine.
type Prover struct {
	conn              *pgx.Conn
	slot, publication string
	key               string // of the saved states and the lock: slot, and a user (beside.go)
	system            string
	retention         time.Duration // for how long marks are needed
	fenceTimeout      time.Duration
	states            map[uint32]*state
}

// NewProver returns a Prover. Errors: the state table is missing or not trusted.
func NewProver(ctx context.Context, conn *pgx.Conn, slotName, publication string,
	retention time.Duration) (*Prover, error) {
	if err := CheckState(ctx, conn); err != nil {
		return nil, err
	}
	system, err := postgres.SystemIdentifier(ctx, conn)
	if err != nil {
		return nil, err
	}
	return &Prover{conn: conn, slot: slotName, publication: publication, key: slotName,
		system: system, retention: retention, fenceTimeout: fenceTimeout,
		states: map[uint32]*state{}}, nil
}

// Mode is what a Look does besides looking.
type Mode int

// The modes.
const (
	Save   Mode = iota // saves the coverage
	DryRun             // saves nothing
	Accept             // makes all rows that are visible now count as delivered, and saves that
)

// Look returns the coverage of each relation as of now. It blocks until the slot is confirmed up
// to the end of the WAL, for half a minute at most; where a coverage begins, also until older
// transactions have ended. After an error nothing is known. ErrUnsent: some inserts into a
// relation are not published; ErrBehind, ErrOpen and ErrChanged are temporary. Only one process
// may call it at a time for a slot: see lock.
func (p *Prover) Look(ctx context.Context, relations []Relation,
	mode Mode) ([]*Coverage, error) {
	if err := p.readStates(ctx); err != nil {
		return nil, err
	}
	l, err := p.snapshot(ctx, relations, nil)
	if err == nil && (mode == Accept || len(l.begins) > 0) {
		l, err = p.snapshotBehindFence(ctx, relations, l)
	}
	if err != nil {
		return nil, err
	}
	now, err := p.awaitConfirmed(ctx, l)
	if err != nil {
		return nil, err
	}
	coverages, due := make([]*Coverage, len(relations)), mode == Accept
	for i, r := range relations {
		s := l.states[i]
		began, begins := l.begins[r.OID]
		switch {
		case mode == Accept:
			s.accept(l.horizon, l.at)
		case begins:
			s.begin(began)
		}
		s.extend(l.horizon, l.at, p.retention)
		s.Identity = now.identity()
		// The saving takes an xid: without other transactions it would follow itself for ever.
		due = due || begins || l.horizon > s.savedHorizon+1
		coverages[i] = &s.Coverage
	}
	if mode == DryRun {
		return coverages, nil
	}
	if due {
		if err := p.save(ctx, relations, l); err != nil {
			return nil, err
		}
	}
	for i, r := range relations {
		p.states[r.OID] = l.states[i]
	}
	return coverages, nil
}

// save saves the states in one transaction.
func (p *Prover) save(ctx context.Context, relations []Relation, l *look) error {
	return pgx.BeginFunc(ctx, p.conn, func(pgx.Tx) error {
		if _, err := p.conn.Exec(ctx, forgetDropped, p.system, p.key); err != nil {
			return fmt.Errorf("write table %s: %w", stateTable, postgres.Error(err))
		}
		for i, r := range relations {
			if err := l.states[i].save(ctx, p.conn, p.system, p.key, r.OID); err != nil {
				return err
			}
			l.states[i].savedHorizon = l.horizon
		}
		return nil
	})
}

// readStates reads the saved states. One that this Prover has saved is continued from memory.
func (p *Prover) readStates(ctx context.Context) error {
	saved, err := readStates(ctx, p.conn, p.system, p.key)
	if err != nil {
		return err
	}
	for oid, s := range saved {
		if own := p.states[oid]; own != nil && own.savedAt.Equal(s.savedAt) {
			saved[oid] = own
		}
	}
	p.states = saved
	return nil
}

// look is what one snapshot shows.
type look struct {
	slot    *stream // read before the snapshot was taken
	horizon uint64  // xmin of the snapshot: every transaction below it has ended
	next    uint64  // xmax
	// end of the WAL, read after the snapshot was taken: a transaction becomes visible after its
	// commit was inserted, so every visible commit is before it
	end    pglogrepl.LSN
	at     time.Time
	states []*state         // in the order of the relations
	begins map[uint32]Range // of relations whose coverage is interrupted, or has not begun
}

// selectLook fixes the snapshot of its transaction, and reads the insert position after that: with
// synchronous_commit = off a visible commit may not be flushed yet.
const selectLook = `SELECT
	pg_catalog.pg_snapshot_xmin(s)::text::bigint, pg_catalog.pg_snapshot_xmax(s)::text::bigint,
	pg_catalog.pg_current_wal_insert_lsn()::text, pg_catalog.clock_timestamp(),
	pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')),
	pg_catalog.current_setting('wal_block_size')::bigint
	FROM pg_catalog.pg_current_snapshot() s`

// snapshot looks at the slot and then at the relations, in one snapshot.
func (p *Prover) snapshot(ctx context.Context, relations []Relation, f *fence) (*look, error) {
	s, err := readStream(ctx, p.conn, p.slot)
	if err != nil {
		return nil, err
	}
	l := &look{slot: s, begins: map[uint32]Range{}}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, p.conn, options, func(pgx.Tx) error {
		if err := l.read(ctx, p.conn); err != nil {
			return err
		}
		for i, r := range relations {
			if err := p.relation(ctx, l, r); err != nil {
				return err
			}
			if f == nil {
				continue
			}
			if l.states[i].Evidence != f.look.states[i].Evidence {
				return ErrChanged
			}
			if _, begins := l.begins[r.OID]; begins {
				if l.begins[r.OID], err = p.beginning(ctx, r, l, f.xid); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// fence is an xid that was assigned after a look: each transaction from it on began when slot and
// publication were as that look shows.
type fence struct {
	look *look
	xid  uint64
}

const selectFence = `SELECT pg_catalog.pg_current_xact_id()::text::bigint`

const selectOldest = `SELECT
	pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint`

// snapshotBehindFence repeats a look when every transaction has ended that was open during it. So
// it sees all rows that the slot may leave out: those that were committed before the slot was
// created, whose commit may have been invisible for some time, and those of transactions that
// wrote before the table was published.
func (p *Prover) snapshotBehindFence(ctx context.Context, relations []Relation,
	before *look) (*look, error) {
	first, err := readStream(ctx, p.conn, p.slot)
	if err != nil {
		return nil, err
	}
	xid, err := p.nextXID(ctx)
	if err != nil {
		return nil, err
	}
	f := &fence{before, xid}
	ended, err := postgres.Poll(ctx, confirmInterval, p.fenceTimeout, func() (bool, error) {
		oldest, err := postgres.One[uint64](ctx, p.conn, selectOldest)
		return oldest >= f.xid, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for open transactions: %w", err)
	}
	if !ended {
		return nil, openError(f.xid)
	}
	l, err := p.snapshot(ctx, relations, f)
	if err == nil && (!l.slot.is(first.identity(), postgres.Major(p.conn)) || l.horizon < f.xid) {
		err = ErrChanged
	}
	return l, err
}

// nextXID assigns an xid in a transaction of its own, and rolls that back: a commit might wait for
// a synchronous standby. The server flushes all WAL up to there soon after.
func (p *Prover) nextXID(ctx context.Context) (xid uint64, err error) {
	tx, err := p.conn.Begin(ctx)
	if err == nil {
		err = tx.QueryRow(ctx, selectFence).Scan(&xid)
		err = errors.Join(err, tx.Rollback(ctx))
	}
	return xid, postgres.Wrap(err, "find the next transaction")
}

// awaitConfirmed blocks until the slot is confirmed up to the end of a look, and returns it.
func (p *Prover) awaitConfirmed(ctx context.Context, l *look) (*stream, error) {
	var now *stream
	began, flushed := time.Now(), false
	confirmed, err := postgres.Poll(ctx, confirmInterval, confirmTimeout, func() (bool, error) {
		var err error
		if now, err = readStream(ctx, p.conn, p.slot); err != nil {
			return false, err
		}
		confirmed := now.ConfirmedFlushLSN >= l.end
		// The server may wait long before it flushes what an open transaction has written.
		if !confirmed && !flushed && now.flushed < l.end && time.Since(began) > flushTimeout {
			flushed = true
			if _, err := p.nextXID(ctx); err != nil {
				return false, err
			}
		}
		if !confirmed && !now.Active && time.Since(began) > returnTimeout {
			return false, behindError(now, l.end)
		}
		return confirmed, nil
	})
	switch {
	case err != nil:
		return nil, err
	case !confirmed:
		return nil, behindError(now, l.end)
	case !now.is(l.slot.identity(), postgres.Major(p.conn)):
		return nil, ErrChanged
	}
	return now, nil
}

func behindError(s *stream, end pglogrepl.LSN) error {
	why := "the relay is slow, or its broker is"
	if !s.Active {
		why = "no relay streams from it"
	}
	return &slot.Error{
		Err: fmt.Errorf("%w: slot %q is confirmed up to %s, the WAL ends at %s, and %s", ErrBehind,
			s.Name, s.ConfirmedFlushLSN, end, why),
		WAL: nothingRemoved, Fix: "postrider status",
	}
}

func openError(xid uint64) error {
	return &slot.Error{
		Err: fmt.Errorf("%w: they are older than %d", ErrOpen, xid),
		WAL: nothingRemoved,
		Fix: "wait for their end:\nSELECT pid, xact_start, state, query FROM pg_stat_activity " +
			"WHERE backend_xid IS NOT NULL ORDER BY xact_start;\n" +
			"SELECT gid, prepared FROM pg_prepared_xacts;",
	}
}

func (l *look) read(ctx context.Context, conn *pgx.Conn) error {
	var end string
	var segment, page uint64
	err := conn.QueryRow(ctx, selectLook).Scan(&l.horizon, &l.next, &end, &l.at, &segment, &page)
	if err != nil {
		return fmt.Errorf("look at transactions and WAL: %w", postgres.Error(err))
	}
	lsn, err := postgres.ParseLSN(end)
	l.end = postgres.EndOfRecord(lsn, segment, page)
	return err
}

// relation decides whether the coverage of a relation lasts.
func (p *Prover) relation(ctx context.Context, l *look, r Relation) (err error) {
	s := &state{}
	if s.Evidence, err = readEvidence(ctx, p.conn, p.publication, r); err != nil {
		return err
	}
	lasts := false
	if saved := p.states[r.OID]; saved != nil {
		s.Coverage, s.savedAt, s.savedHorizon = saved.clone(), saved.savedAt, saved.savedHorizon
		lasts = saved.Evidence == s.Evidence && l.slot.is(saved.Identity, postgres.Major(p.conn))
	}
	lasts = s.setColumn(r.Column, r.ColumnType) && lasts
	l.states = append(l.states, s)
	if !lasts {
		l.begins[r.OID] = Range{}
	}
	return nil
}

// beginning is a range that begins: every transaction before from has ended, so the rows that are
// visible now are all that the slot may leave out.
func (p *Prover) beginning(ctx context.Context, r Relation, l *look, from uint64) (Range, error) {
	began := Range{From: from, Began: l.at, Proven: l.at}
	var err error
	if r.Column == "" {
		began.Unbounded, err = postgres.One[bool](ctx, p.conn, "SELECT EXISTS (SELECT FROM ONLY "+
			slot.QuoteTable(r.Name)+")")
		return began, postgres.Wrap(err, "read table %s", r.Name)
	}
	column, table := postgres.QuoteName(r.Column), slot.QuoteTable(r.Name)
	// A row without a value can get a greater one later, with an xmin of the range.
	began.Unbounded, err = postgres.One[bool](ctx, p.conn, "SELECT EXISTS (SELECT FROM ONLY "+table+
		" WHERE "+column+" IS NULL)")
	if err == nil && !began.Unbounded {
		began.Bound, err = postgres.One[*string](ctx, p.conn, "SELECT pg_catalog.max("+column+
			")::text FROM ONLY "+table)
	}
	return began, postgres.Wrap(err, "read table %s", r.Name)
}
