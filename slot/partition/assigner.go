package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// Assigner decides to which outbox table a row belongs, by the OID under which it comes and by
// what was true when it was committed, never by likeness. Safe for concurrent use.
//
// The stream describes a relation again behind each change of its place in a tree: what holds for
// the first row of a *replication.Relation holds for all of its rows. Whether it was a partition
// follows from catalog rows that have not changed since (proof), or from what this process saw
// earlier (assigned). Locks order the two: ATTACH and DETACH wait for the writers of a partition,
// and these for the change.
type Assigner struct {
	slot, publication string
	tables            []string
	decisions         []replication.Assignment
	log               zerolog.Logger

	mu       sync.Mutex            // guards the fields below
	next     time.Time             // when LookIfDue looks
	timeline string                // positions of another one mean nothing
	oids     map[string]seenTable  // by outbox table, as last seen
	spans    map[uint32][]assigned // by relation
	// up to here nothing but the outbox tables themselves brings their rows
	plain   sight
	settled map[string]struct{} // decisions that were reported as no longer needed
	// relations that were decided on and do not exist: none of their rows commits behind it
	gone map[uint32]pglogrepl.LSN
}

// seenTable is the relation that has the name of an outbox table.
type seenTable struct {
	oid  uint32
	from pglogrepl.LSN // rows committed behind it are behind the look that saw it
}

// assigned is the table of a relation's rows, or none, from one commit to another.
type assigned struct {
	table string // empty: none
	link  string // by which it is a partition, where that was seen; it can go on with it
	from  pglogrepl.LSN
	sight
}

// sight is how far something was seen: what commits up to a position, without the transactions
// that were invisible then.
type sight struct {
	to       pglogrepl.LSN
	snapshot *slot.Snapshot
}

func (s sight) covers(row FirstRow) bool { return row.LSN <= s.to && s.snapshot.Sees(row.XID) }

// further is the one of two that reaches further.
func (s sight) further(other sight) sight {
	if other.to >= s.to {
		return other
	}
	return s
}

// New makes an Assigner. slotName is the slot that is streamed.
func New(cfg replication.Config, slotName string, log zerolog.Logger) *Assigner {
	return &Assigner{
		slot: slotName, publication: cfg.Publication, tables: cfg.Tables, decisions: cfg.Assignments(),
		log:  log,
		oids: map[string]seenTable{}, spans: map[uint32][]assigned{}, settled: map[string]struct{}{},
		gone: map[uint32]pglogrepl.LSN{},
	}
}

// FirstRow is the first row of a relation as it is described now.
type FirstRow struct {
	Relation *replication.Relation
	LSN      pglogrepl.LSN // of the commit
	XID      uint32
	Index    uint32
}

// Assign finds the outbox table of a row; empty: none. That holds for later rows of the same
// *replication.Relation up to a position; zero: for all. An *UnassignedError if it is not known.
func (a *Assigner) Assign(ctx context.Context, conn *pgx.Conn,
	row FirstRow) (table string, upTo pglogrepl.LSN, err error) {
	if table, known := a.Remembered(row); known {
		return table, 0, nil
	}
	if err := AwaitChanges(ctx, conn, row.XID); err != nil {
		if d, decided := a.decided(row); decided {
			return d.Table, d.UpTo, nil
		}
		return "", 0, err
	}
	e, before, err := a.readProof(ctx, conn, row.Relation.OID)
	if err != nil {
		return "", 0, fmt.Errorf("find out which table the rows of %s belong to: %w", row.Relation, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.see(e, before)
	verdict := a.judge(e, row)
	if verdict.known() {
		return verdict.table(), 0, nil
	}
	if d, decided := a.decided(row); decided {
		return d.Table, d.UpTo, nil
	}
	return "", 0, a.unassigned(row, e, verdict)
}

// decided returns the operator's decision about a row.
func (a *Assigner) decided(row FirstRow) (replication.Assignment, bool) {
	for _, d := range a.decisions {
		if d.Covers(row.Relation, row.LSN) {
			a.log.Info().Str("relation", row.Relation.String()).Uint32("oid", d.OID).
				Str("decision", d.String()).
				Msg("rows are assigned by replication.partitions")
			return d, true
		}
	}
	return replication.Assignment{}, false
}

// Remembered is Assign without a query, where that is exact.
func (a *Assigner) Remembered(row FirstRow) (table string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rel := row.Relation
	if t, is := a.oids[rel.String()]; is && t.oid == rel.OID {
		return rel.String(), true
	}
	for _, s := range a.spans[rel.OID] {
		if s.from <= row.LSN && s.covers(row) {
			return s.table, true
		}
	}
	if a.plain.covers(row) && !slices.Contains(a.tables, rel.String()) && !a.isTable(rel.OID) {
		return "", true
	}
	return "", false
}

// isTable reports whether an OID is that of an outbox table. a.mu is held.
func (a *Assigner) isTable(oid uint32) bool {
	for _, t := range a.oids {
		if t.oid == oid {
			return true
		}
	}
	return false
}

// readProof reads the proof, and where the WAL was before that.
func (a *Assigner) readProof(ctx context.Context, conn *pgx.Conn,
	oid uint32) (*proof, walPosition, error) {
	before, err := readPosition(ctx, conn)
	if err != nil {
		return nil, before, err
	}
	e, err := a.queryProof(ctx, conn, oid)
	return e, before, err
}

// see records what the evidence shows of the outbox tables. a.mu is held.
func (a *Assigner) see(e *proof, before walPosition) {
	a.onTimeline(before.timeline)
	plain := len(e.Tables) == len(a.tables)
	for _, t := range e.Tables {
		name := a.tables[t.N-1]
		if a.oids[name].oid != t.OID {
			a.oids[name] = seenTable{oid: t.OID, from: e.behind}
		}
		plain = plain && t.Kind != "p" && e.namedBefore(t.nameProof)
	}
	if plain {
		a.plain = a.plain.further(sight{before.flushed, e.snapshot})
	}
}

// On sets the timeline of the rows that follow.
func (a *Assigner) On(timeline int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onTimeline(timelineName(timeline))
}

// timelineName is a timeline as in the name of a WAL file.
func timelineName(timeline int32) string { return fmt.Sprintf("%08X", timeline) }

// onTimeline forgets what was seen on another timeline: its positions and OIDs are not those of
// this one. a.mu is held.
func (a *Assigner) onTimeline(timeline string) {
	if a.timeline != timeline {
		a.timeline, a.plain = timeline, sight{}
		clear(a.oids)
		clear(a.spans)
	}
}

// walPosition is where the WAL was before a look: what was flushed by then is seen by it.
type walPosition struct {
	flushed  pglogrepl.LSN
	timeline string
}

func readPosition(ctx context.Context, conn *pgx.Conn) (p walPosition, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text,
		pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()), 1,
		8)`).Scan(&p.flushed, &p.timeline)
	return p, postgres.Error(err)
}
