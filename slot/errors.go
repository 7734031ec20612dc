package slot

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// Errors of this package wrap these, or sentinels of replication or postgres. Most are an Error, a
// LostError or a PublicationError, which have advice.
var (
	ErrNotFound   = replication.ErrSlotMissing // no slot of this name
	ErrExists     = errors.New("replication slot exists already")
	ErrNoFreeSlot = errors.New("no free replication slot")
	ErrForeign    = errors.New("publication belongs to another role")
	ErrBlocked    = errors.New("creation of the replication slot waits for open transactions")
	ErrServer     = errors.New("server does not meet the requirements")
	ErrNoSnapshot = errors.New("rows already in the table cannot be published")
	ErrRewritten  = errors.New("the table was rewritten")
)

// Error is a failure with advice.
type Error struct {
	Err error
	WAL string // what it means for the WAL that PostgreSQL keeps; empty if nothing
	Fix string // SQL, command or setting to type next
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Advice is what the user needs besides the text.
func (e *Error) Advice() (wal, fix string) { return e.WAL, e.Fix }

// LostError is for a slot that is gone, or has lost WAL that was not delivered yet.
type LostError struct {
	Name   string
	Reason string // pg_replication_slots.invalidation_reason, or what else is known; empty if nothing
	// ConfirmedFlushLSN is where the gap begins: everything before it was delivered. Zero: not known.
	ConfirmedFlushLSN pglogrepl.LSN
	CatalogXmin       uint32    // no transaction that was not delivered is older; zero: not known
	InactiveSince     time.Time // zero: not known
	Gone              bool      // there is no slot of this name any more
	Advanced          bool      // the slot was recreated or advanced by another process
	Gap               *Gap      // nil: not looked at
}

func (e *LostError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "slot %q is lost", e.Name)
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.ConfirmedFlushLSN != 0 {
		fmt.Fprintf(&b, ": everything before %s was delivered, what was committed after it was not",
			e.ConfirmedFlushLSN)
	}
	if !e.InactiveSince.IsZero() {
		fmt.Fprintf(&b, "; no session has read from it since %s", e.InactiveSince.UTC().
			Format(time.RFC3339))
	}
	if e.Gap != nil {
		if gap := e.Gap.String(); gap != "" {
			b.WriteString("; " + gap)
		}
	}
	return b.String()
}

// Unwrap makes it replication.ErrSlotLost.
func (e *LostError) Unwrap() error { return replication.ErrSlotLost }

// Advice is what the user needs besides the text.
func (e *LostError) Advice() (wal, fix string) {
	recover := "postrider recover"
	if (e.Gone || e.Advanced) && e.CatalogXmin != 0 {
		recover += fmt.Sprintf(" --from-xmin %d", e.CatalogXmin)
	}
	fix = "stop the job that cleans up the outbox, then look what is missing, which changes " +
		"nothing; with --publish it is published, and the slot is recreated:\n" + recover
	if e.Advanced {
		return "none is kept for the gap; the slot keeps what comes after it",
			fix + "\nif another relay has published the rows between, or they are not wanted: start " +
				"this one again"
	}
	consent := "postrider slot create " + e.Name
	if !e.Gone {
		consent = fmt.Sprintf("postrider slot drop %s --yes; %s", e.Name, consent)
	}
	return "the server keeps no WAL for this slot any more; rows committed since are in the table " +
			"only",
		fix + "\nif they are not wanted, a slot that begins now:\n" + consent
}

// PublicationError reports a publication that does not publish the rows of a table, publishes them
// under another name, or did one of these for some time.
type PublicationError struct {
	Publication string
	Table       string // as configured; empty: the publication itself
	Problem     string
	SQL         string // repairs it; empty if SQL alone cannot
	// Between From and To something has changed that decides which rows are in the stream. For a
	// problem that lasts, From is where all was still well. Zero: not known.
	From, To  pglogrepl.LSN
	FromXmin  uint32 // no transaction that inserted rows after From is older; zero: not known
	Elsewhere bool   // the rows are in another table, which had the name
	InTable   bool   // the table holds rows that are not in the WAL; since when is not known
	NoSlot    bool   // there is no slot, as far as was looked
}

func (e *PublicationError) Error() string {
	text := e.Problem
	if e.To != 0 {
		text += fmt.Sprintf(" between %s and %s: rows inserted in between", e.From, e.To)
		if e.Elsewhere {
			text += " into another table of its name"
		}
		text += " may be missing from the topics"
	}
	switch {
	case e.Table == "":
		return fmt.Sprintf("publication %q %s", e.Publication, text)
	case e.To == 0: // a present problem: Problem is a predicate, as in `table x is not in ...`
		return fmt.Sprintf("table %s %s", e.Table, text)
	}
	return fmt.Sprintf("table %s, publication %q: %s", e.Table, e.Publication, text)
}

// Unwrap makes it replication.ErrPublicationMissing, which halts the relay.
func (e *PublicationError) Unwrap() error { return replication.ErrPublicationMissing }

// Advice is what the user needs besides the text.
func (e *PublicationError) Advice() (wal, fix string) {
	find := e.find()
	if e.To != 0 && e.Elsewhere {
		return "the slot keeps WAL while the relay is stopped, but rows of the other table are never " +
				"sent: they are in that table, if it is still there",
			"find the table that had this name meanwhile, and insert what was written to it; then start " +
				"the relay:\n" +
				"INSERT INTO " + QuoteTable(e.Table) +
				" SELECT * FROM other_table; -- the name that it has now"
	}
	if e.To != 0 {
		fix = "stop the job that cleans up the outbox; see which rows are missing, which changes " +
			"nothing; with --publish they are published; then start the relay:\n" + find
		if e.SQL != "" {
			fix += "\nunless the row filter or column list is meant:\n" + e.SQL
		}
		return "the slot keeps WAL while the relay is stopped, but rows that the publication did not " +
			"publish are never sent: they are in the table", fix
	}
	wal = "the slot keeps WAL while the relay is stopped, but rows written while the publication " +
		"does not hold their table are never sent: look for them in the table"
	switch {
	case e.NoSlot:
		wal = NoSlotYet
	case e.InTable:
		wal = "the slot keeps WAL while the relay is stopped, but rows that are not in the WAL are " +
			"never sent: they are in the table"
	}
	if (e.InTable || e.From != 0) && e.SQL != "" {
		since := ""
		if e.From != 0 {
			since = " that were inserted after " + e.From.String()
		}
		return wal, e.SQL + "\nthen see which rows" + since +
			" are missing; with --publish they are published:\n" + find
	}
	return wal, e.SQL
}

// find is the command that finds the rows.
func (e *PublicationError) find() string {
	find := "postrider recover"
	if e.FromXmin != 0 && !e.InTable {
		find += fmt.Sprintf(" --from-xmin %d", e.FromXmin)
	}
	return find
}

// Locked adds to the error of a statement that waited for a table longer than LockTimeout who has
// the lock. Other errors are returned as they are.
func Locked(err error) error {
	if _, advised := errors.AsType[*Error](err); advised || postgres.SQLState(err) != "55P03" {
		return err
	}
	return &Error{
		Err: fmt.Errorf("%w for longer than %s: %w", postgres.ErrLocked, LockTimeout, err),
		Fix: "wait for the ALTER TABLE, LOCK or VACUUM FULL that has it, or for the sessions that " +
			"this one waits for:\n" +
			"SELECT pid, relation::regclass, granted, pg_blocking_pids(pid), query FROM pg_locks " +
			"LEFT JOIN pg_stat_activity USING (pid) " +
			"WHERE mode = 'AccessExclusiveLock' AND relation IS NOT NULL;",
	}
}
