package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// RecoveryParts are the dependencies of a Recovery.
type RecoveryParts struct {
	Parts
	// OpenTopics connects to the topics. The Recovery closes it.
	OpenTopics func(ctx context.Context) (Topics, error)
	OpenSink   sink.Open
	Router     func() (*router.Router, error)
	// DeadLetters reads the dead letters, once, when no relay writes any more. nil: there are none.
	DeadLetters func(ctx context.Context) (DeadLetters, error)
	// Say shows the user what is being done.
	Say func(format string, args ...any)
}

// DeadLetters are the dead letters of the relay.
type DeadLetters struct {
	// Rows have a dead letter, open or not, and so count as delivered.
	Rows []DeadRow
	// Parks reports whether open dead letters park the key of a message; nil: no key is parked.
	Parks func(m *sink.Message) bool
}

// DeadRow is the row of a dead letter: the relation that it was in, and the id of its event.
type DeadRow struct{ Relation, ID string }

// Topics reads published messages.
type Topics interface {
	// Read calls each with every record of a topic since a time; zero: all. The message is valid
	// until each returns. A topic that does not exist is empty and whole.
	Read(ctx context.Context, topic string, since time.Time, each func(*sink.Message)) (Extent,
		error)
	Close()
}

// Extent is how much of a topic could be read.
type Extent struct {
	// Whole: the topic still has all records that were published to it.
	Whole bool
	// Open: what follows an open transaction of another producer could not be read.
	Open bool
}

// readMargin is how long before Selection.Since the reading of topics begins: clocks differ.
const readMargin = time.Hour

// ErrOpenTransaction means that a topic cannot be read to its end.
var ErrOpenTransaction = errors.New("a transaction of another producer is open")

// ErrIncomplete means that the topics do not show which rows were delivered.
var ErrIncomplete = errors.New("which rows were delivered is not known")

// ErrParked means that rows must follow open dead letters of their keys.
var ErrParked = errors.New("redrive or discard the dead letters first")

// Recovery is one attempt to publish what a lost slot has not delivered. Call Plan or Publish
// once, then Close. It is for one goroutine.
type Recovery struct {
	*source
	parts  RecoveryParts
	sel    Selection
	topics Topics
	report Report

	lost       *slot.Slot   // nil: the slot is missing or usable
	usable     bool         // the slot can be streamed
	created    bool         // this attempt has made the new slot
	publishing bool         // this attempt has begun to publish
	times      []string     // time columns of the tables; empty: none
	since      []time.Time  // of the records of their selected rows; zero: any
	candidates fingerprints // of the selected rows; marked: found in a topic
	deadRows   map[DeadRow]struct{}
	// relations of dead letters that no table is now, by the id of the row
	renamed map[string]string
	parks   func(m *sink.Message) bool // nil: no key is parked
	// table by the name of its partition
	partitions map[string]string
}

// NewRecovery makes a Recovery and takes the lock of the slot. Errors: replication.ErrSlotInUse if
// another process streams from it or publishes the tables, or those of NewTableReader.
func NewRecovery(ctx context.Context, parts RecoveryParts, sel Selection) (*Recovery, error) {
	src, err := openSource(ctx, parts.Parts)
	if err != nil {
		return nil, err
	}
	r := &Recovery{source: src, parts: parts, sel: sel}
	if err := r.readState(ctx); err != nil {
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
	r.close()
}

// readState reads the state of the slot and the tables. It changes nothing.
func (r *Recovery) readState(ctx context.Context) error {
	name := r.Need.Slot.Name
	if err := r.takeLock(ctx); err != nil {
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
			Fix: "stop the relay: its messages in flight would be published twice",
		}
	case status.Lost():
		r.lost = &status.Slot
		r.report.State, r.report.Reason = "lost", status.InvalidationReason
		r.report.ConfirmedFlushLSN = status.ConfirmedFlushLSN
	default:
		if err := slot.Verify(status.Slot, r.conn.Config().Database); err != nil {
			return err
		}
		r.usable = true
		r.report.State, r.report.ConfirmedFlushLSN = "usable", status.ConfirmedFlushLSN
	}
	if r.lost != nil && r.sel.FromXmin == 0 && r.sel.Since.IsZero() && r.sel.coversGap() {
		r.sel.FromXmin = r.lost.CatalogXmin
	}
	return recoveryAdvice(r.describeTables(ctx))
}

// describeTables describes the tables, and restricts them to the selected rows.
func (r *Recovery) describeTables(ctx context.Context) error {
	if err := r.describe(ctx); err != nil {
		return err
	}
	r.partitions = map[string]string{}
	for i, t := range r.tables {
		names, err := slot.Table{Name: t.Name, OID: t.Relation.OID}.PartitionNames(ctx, r.conn)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.Contains(r.Need.Tables, name) {
				r.partitions[name] = t.Name
			}
		}
		sel := r.sel
		if sel.TimeColumn, err = t.timeColumn(sel); err != nil {
			return err
		}
		if t = t.inWrittenOrder(); t.Order.Written {
			r.parts.Say("rows of table %s are published in the order of the transactions that wrote "+
				"them last; if that is not the order of a key's rows, set snapshot.order_by to a column "+
				"with the time of the insert", t.Name)
		}
		r.times = append(r.times, sel.TimeColumn)
		r.since = append(r.since, t.recordsSince(sel))
		r.tables[i] = t.selectRows(sel)
	}
	return nil
}

// recoveryAdvice removes what concerns snapshots from the advice of an error.
func recoveryAdvice(err error) error {
	advised, ok := errors.AsType[*slot.Error](err)
	if !ok {
		return err
	}
	return &slot.Error{Err: err, WAL: "nothing was changed",
		Fix: strings.TrimSuffix(advised.Fix, insteadNoData)}
}

// Plan reports what would be published. It changes nothing.
func (r *Recovery) Plan(ctx context.Context) (*Report, error) {
	if err := r.openTopics(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.report.OpenTransactions, err = slot.OpenTransactions(ctx, r.conn); err != nil {
		return nil, err
	}
	if err := r.beginAsIs(ctx); err != nil {
		return nil, err
	}
	if err := r.compare(ctx); err != nil {
		return nil, err
	}
	r.report.Refusal = r.refuse()
	return &r.report, r.pass(ctx, nil)
}

// Publish publishes the selected rows that were not delivered, and makes the slot usable if they
// cover its gap. After an error another Recovery can repeat it.
func (r *Recovery) Publish(ctx context.Context) (_ *Report, err error) {
	if err := r.openTopics(ctx); err != nil {
		return nil, err
	}
	begin := r.beginVisible
	if !r.usable && r.sel.coversGap() {
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
	w, err := sink.OpenSyncPublisher(ctx, r.parts.OpenSink, nil)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p := &publisher{SyncPublisher: w, limits: r.Limits, check: r.lock.Check,
		pacer: ratelimit.Pacer{Limiter: r.Limiter}}
	r.publishing = true
	if err := r.pass(ctx, p); err != nil {
		return nil, err
	}
	r.report.Published = p.published
	switch {
	case !r.sel.coversGap():
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

// refuse returns why nothing may be published, or nil.
func (r *Recovery) refuse() error {
	for _, t := range r.report.Tables {
		if t.Refused > 0 && !r.sel.SkipRefused {
			return &slot.Error{
				Err: fmt.Errorf("%s of table %s cannot be published, the first: %w", rowsText(t.Refused),
					t.Table, r.report.refused),
				Fix: "correct the configuration so that they can, as for the relay; or leave them out with " +
					"--skip-refused",
			}
		}
	}
	if n := r.report.parked; n > 0 {
		rows := "rows of parked keys are"
		if n == 1 {
			rows = "row of a parked key is"
		}
		return &slot.Error{
			Err: fmt.Errorf("%d %s to be published: publishing before the open dead letters of the same "+
				"key breaks its order: %w", n, rows, ErrParked),
			Fix: "postrider deadletter list   # says which keys are parked\n" +
				"postrider deadletter redrive --key KEY   # or discard, if consumers are never to get " +
				"them, then recover again",
		}
	}
	if n := r.report.renamed; n > 0 && !r.sel.SkipRefused {
		return &slot.Error{
			Err: fmt.Errorf("%s not in the topics, and dead letters of %s, which is none of the tables "+
				"now, have the same ids; if a table was renamed, they are of these rows: %w", rowsAre(n),
				r.report.renamedFrom, ErrIncomplete),
			Fix: "postrider deadletter list --all   # shows the dead letters\n" +
				"postrider recover --id ID --publish   # publishes a row that has none\n" +
				"leave out the rows that have one with --skip-refused",
		}
	}
	for _, t := range r.report.Topics {
		if t.Open && r.candidates.unmarked() > 0 {
			return &slot.Error{
				Err: fmt.Errorf("%s not in the topics, and what follows the transaction in topic %q cannot "+
					"be read: %w", rowsAre(int64(r.candidates.unmarked())), t.Topic, ErrOpenTransaction),
				Fix: "try again when its producer has ended it, or the broker: that aborts it after the " +
					"producer's transaction.timeout.ms (sink.kafka.transaction_timeout of a relay)",
			}
		}
	}
	bounded := r.sel.FromXmin != 0 || !r.sel.Since.IsZero() || len(r.sel.IDs) > 0 || r.sel.Partial
	for _, t := range r.report.Topics {
		if !t.Whole && !bounded && r.candidates.unmarked() > 0 {
			return incomplete("topic %q has lost its older records by retention or "+
				"compaction, and no lost slot shows which rows it had delivered", t.Topic)
		}
		if t.overtaken > 0 {
			return incomplete("%s not in topic %q, though later ones of the same keys are: the topic "+
				"has lost older records by retention or compaction", rowsAre(t.overtaken), t.Topic)
		}
	}
	return nil
}

// incomplete returns ErrIncomplete, with the ways to go on. A row has the time of its insert, and
// is committed later.
func incomplete(format string, args ...any) error {
	return &slot.Error{
		Err: fmt.Errorf(format+": %w", append(args, ErrIncomplete)...),
		Fix: "postrider recover --since TIME   # rows that were inserted before count as delivered, " +
			"committed or not: take a time before the oldest transaction began that was open when the " +
			"relay published last, an hour earlier for example\n" +
			"or, if every row that is not in the topics is wanted, behind what is there: --partial-topics",
	}
}

func rowsAre(n int64) string {
	if n == 1 {
		return "1 row is"
	}
	return fmt.Sprintf("%d rows are", n)
}
