package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// Parts are what a Recovery is made of.
type Parts struct {
	Postgres    postgres.Config
	Need        slot.Requirements
	Replication replication.Config
	// Roles says which columns of a table its order may depend on.
	Roles func(table string) slot.Roles
	// OpenTopics connects to where messages can be read back. The Recovery closes it.
	OpenTopics func(ctx context.Context) (Topics, error)
	OpenSink   sink.Open
	Router     func() (*router.Router, error)
	// DeadLetters is the topic with rows that count as delivered though they are in no other; empty: there is none. DeadLetter says which row one of its
	// records is of.
	DeadLetters string
	DeadLetter  func(m *sink.Message) (relation, id string)
	// Parked tells, once all of them were read, whether open ones park the key of a message: it belongs behind them. nil: none does.
	Parked func(m *sink.Message) bool
	Limits Limits
	// Say is told what is being done, for people.
	Say func(format string, args ...any)
	Log zerolog.Logger
}

// Limits bound what is read and not yet acknowledged.
type Limits struct {
	Messages int
	Bytes    int64
}

// Topics is where messages can be read back.
type Topics interface {
	// Read gives every record of a topic as it is now, from a time on, zero for all, and tells whether the topic still has all that was ever published to it. The
	// message is each's until it returns. A topic that does not exist has no records, and all of them.
	Read(ctx context.Context, topic string, since time.Time, each func(*sink.Message)) (whole bool, err error)
	Close()
}

// Selection says which rows are looked for in the topics. Its zero value: all that the slot cannot have delivered, as far as the slot still tells, else all.
type Selection struct {
	FromXmin   uint32 // catalog_xmin of the slot that was lost, where the slot itself is not there to tell
	Since      time.Time
	Until      time.Time
	TimeColumn string // for Since and Until; empty: found
	IDs        []string
	// Partial leaves out of account that the topics do not have their beginnings any more: what is not in them is published.
	Partial bool
	// SkipRefused leaves out rows that the router refuses.
	SkipRefused bool
}

// closing: all rows of the gap are selected, so that the slot can be made anew.
func (s Selection) closing() bool { return len(s.IDs) == 0 && s.Until.IsZero() }

// readMargin is how long before Selection.Since topics are read: clocks differ.
const readMargin = time.Hour

// ErrIncomplete marks a refusal: the topics do not tell which rows were delivered.
var ErrIncomplete = errors.New("which rows were delivered is not known")

// ErrParked marks a refusal: rows belong behind open dead letters of their keys.
var ErrParked = errors.New("redrive or discard the dead letters first")

// Recovery is one attempt. Run it once, then Close it. It belongs to one goroutine.
type Recovery struct {
	parts  Parts
	sel    Selection
	lock   *slot.Lock // nil: not taken
	conn   *pgx.Conn  // in a transaction while rows are read
	topics Topics
	report Report

	lost       *slot.Slot // still there; nil: missing, or not lost
	usable     bool       // the slot can be streamed
	consistent pglogrepl.LSN
	made       bool                    // this attempt has made the new slot
	begun      bool                    // and begun to publish
	inserted   map[slot.RowID]struct{} // rows that come by the slot
	tables     []*slot.Copied          // narrowed to the rows in question
	times      []string                // their time columns; empty: none
	candidates candidates
	letters    map[letter]struct{}
	partitions map[string]string // the table, by the name of a partition under which its rows may come
}

type letter struct{ relation, id string }

// New makes a Recovery and takes the right to publish rows of the tables for the slot. Errors wrap replication.ErrSlotInUse if another process streams
// from the slot or publishes the tables, or are those of slot.DescribeCopied.
func New(ctx context.Context, parts Parts, sel Selection) (*Recovery, error) {
	conn, err := postgres.ConnectRows(ctx, parts.Postgres)
	if err != nil {
		return nil, err
	}
	r := &Recovery{parts: parts, sel: sel, conn: conn}
	if err := r.look(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the connections, and with them the lock.
func (r *Recovery) Close() {
	if r.topics != nil {
		r.topics.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.conn.Close(ctx) // whatever goes wrong, it is closed
	if r.lock != nil {
		r.lock.Close()
	}
}

// look finds out how it stands, and changes nothing.
func (r *Recovery) look(ctx context.Context) error {
	name := r.parts.Need.Slot.Name
	var err error
	if r.lock, err = slot.TryLock(ctx, r.parts.Postgres, name); err != nil {
		return err
	}
	status, err := slot.Get(ctx, r.conn, name)
	r.report = Report{Slot: name, State: "missing", CurrentLSN: status.CurrentWALLSN}
	switch {
	case errors.Is(err, slot.ErrNotFound):
	case err != nil:
		return err
	case status.Active:
		return &slot.Error{
			Err: slot.Held(name, status.ActivePID),
			WAL: "none is lost: the slot stays as it is",
			Fix: "stop the relay: what it has on its way would be published twice",
		}
	case status.Lost():
		r.lost = &status.Slot
		r.report.State, r.report.Reason, r.report.ConfirmedFlushLSN = "lost", status.InvalidationReason, status.ConfirmedFlushLSN
	default:
		if err := slot.Verify(status.Slot, r.conn.Config().Database); err != nil {
			return err
		}
		r.usable = true
		r.report.State, r.report.ConfirmedFlushLSN = "usable", status.ConfirmedFlushLSN
	}
	if r.lost != nil && r.sel.FromXmin == 0 && r.sel.Since.IsZero() && r.sel.closing() {
		r.sel.FromXmin = r.lost.CatalogXmin
	}
	return r.describe(ctx)
}

// describe looks at the tables.
func (r *Recovery) describe(ctx context.Context) error {
	p, err := slot.VerifyPublication(ctx, r.conn, r.parts.Need.Publication, r.parts.Need.Tables)
	if err != nil {
		return err
	}
	r.partitions = map[string]string{}
	for _, t := range p.Tables {
		names, err := t.PartitionNames(ctx, r.conn)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.Contains(r.parts.Need.Tables, name) {
				r.partitions[name] = t.Name
			}
		}
		copied, err := slot.DescribeCopied(ctx, r.conn, t, r.parts.Need.Tables, r.parts.Roles(t.Name))
		if err != nil {
			return unreadable(err)
		}
		column, err := copied.TimeColumn(r.sel.TimeColumn)
		if err != nil {
			return err
		}
		bounded := !r.sel.Since.IsZero() || !r.sel.Until.IsZero()
		if bounded && column == "" {
			return fmt.Errorf("table %s has no column that says when a row was inserted, or several: name it with --time-column", t.Name)
		}
		copied = copied.InWrittenOrder()
		if copied.Order.Written {
			r.parts.Say("rows of table %s are published in the order of the transactions that wrote them last; "+
				"if that is not the order of a key's rows, set snapshot.order_by to a column with the time of the insert", t.Name)
		}
		r.tables = append(r.tables, copied.Select(slot.Selection{
			FromXmin: r.sel.FromXmin, Since: r.sel.Since, Until: r.sel.Until, TimeColumn: column, IDs: r.sel.IDs,
		}))
		r.times = append(r.times, column)
	}
	return nil
}

// unreadable takes what concerns snapshots out of an advice.
func unreadable(err error) error {
	advised := new(slot.Error)
	if !errors.As(err, &advised) {
		return err
	}
	return &slot.Error{Err: err, WAL: "nothing was changed", Fix: strings.TrimSuffix(advised.Fix, slot.InsteadNoData)}
}

// Plan finds out what would be published, and changes nothing.
func (r *Recovery) Plan(ctx context.Context) (*Report, error) {
	if err := r.openTopics(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.report.OpenTransactions, err = slot.OpenTransactions(ctx, r.conn); err != nil {
		return nil, err
	}
	if err := r.beginNow(ctx); err != nil {
		return nil, err
	}
	if err := r.compare(ctx); err != nil {
		return nil, err
	}
	r.report.Refusal = r.refuse()
	return &r.report, r.pass(ctx, nil)
}

// Publish publishes, and makes the slot usable if all of its gap was selected. After an error it can be repeated.
func (r *Recovery) Publish(ctx context.Context) (_ *Report, err error) {
	if err := r.openTopics(ctx); err != nil {
		return nil, err
	}
	begin := r.beginVisible
	if !r.usable && r.sel.closing() {
		begin = r.beginAtNewSlot
	}
	if err := begin(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = r.interrupted(ctx, err)
		}
	}()
	if err := r.compare(ctx); err != nil {
		return nil, err
	}
	if err := r.refuse(); err != nil {
		return nil, err
	}
	p, err := r.openPublisher(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r.begun = true
	if err := r.pass(ctx, p); err != nil {
		return nil, err
	}
	r.report.Published = p.published
	switch {
	case !r.sel.closing():
	case r.usable:
		err = r.dropSpare(ctx)
	default:
		err = r.replace(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &r.report, nil
}

func rowsText(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// refuse keeps from publishing what may be published already.
func (r *Recovery) refuse() error {
	for _, t := range r.report.Tables {
		if t.Refused > 0 && !r.sel.SkipRefused {
			return &slot.Error{
				Err: fmt.Errorf("%s of table %s cannot be published, the first: %w", rowsText(t.Refused), t.Table, r.report.refused),
				Fix: "correct the configuration so that they can, as for the relay; or leave them out with --skip-refused",
			}
		}
	}
	if n := r.report.parked; n > 0 {
		rows := "rows of parked keys are"
		if n == 1 {
			rows = "row of a parked key is"
		}
		return &slot.Error{
			Err: fmt.Errorf("%d %s to be published: to publish before the open dead letters of the same key breaks its order: %w", n, rows, ErrParked),
			Fix: "postrider deadletter list   # says which keys are parked\n" +
				"postrider deadletter redrive --key KEY   # or discard, if consumers are never to get them, then recover again",
		}
	}
	bounded := r.sel.FromXmin != 0 || !r.sel.Since.IsZero() || len(r.sel.IDs) > 0 || r.sel.Partial
	for _, t := range r.report.Topics {
		if !t.Whole && !bounded && r.candidates.missing() > 0 {
			return &slot.Error{
				Err: fmt.Errorf("topic %q has lost its older records by retention or compaction, and the slot is not there to tell which rows it had delivered: %w",
					t.Topic, ErrIncomplete),
				Fix: "postrider recover --since TIME   # rows from before count as delivered; the time when the relay published last\n" +
					"or, if every row that is not in the topics is wanted: --partial-topics",
			}
		}
	}
	return nil
}
