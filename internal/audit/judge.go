package audit

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
)

// Row is one row of an outbox table, or one line of a write log.
type Row struct {
	ID          []byte // unique
	Key         []byte // rows of one key have an order, that of their commits; nil: it has none
	Transaction uint64 // zero: not known
	Judged      bool   // false: only its records are known, so that they are no phantoms
}

// Written is what should have been published. Rows gives the same rows in the same order at each
// call. The slices of a Row are valid until each returns. An error of each ends Rows, which
// returns it.
type Written interface {
	Count(ctx context.Context) (int64, error)
	Rows(ctx context.Context, each func(*Row) error) error
}

// Partition is the part of a partition from one offset up to another, which is not included.
type Partition struct {
	Topic      string
	Number     int32
	From, End  int64
	DeadLetter bool // of the topic of dead letters
}

// Record is one record of a topic. The slices are valid until each returns.
type Record struct {
	Partition int // index in Partitions
	Offset    int64
	ID        []byte   // nil: it has none
	Key       []byte   // for examples only
	Hash      int64    // of the key's bytes by Kafka's default partitioner, plus 1; 0: not known
	Position  Position // of the row's commit
	Redriven  bool     // a dead letter that was redriven, at any time and so in no order
}

// Position is the place of a row among all that were committed, as its record says. Positions
// compare only within one source.
type Position struct {
	Source []byte // nil: the record has no position, or none with a source
	LSN    uint64 // of the commit
	Index  uint32 // in the transaction
	Time   int64  // of the commit, by the server's clock, in microseconds
}

// Published is what was published. Records gives all records, one partition after the other in the
// order of Partitions, each by offset, and the same ones at each call.
type Published interface {
	Partitions() []Partition
	Records(ctx context.Context, each func(*Record) error) error
}

// JudgeConfig is the memory that Judge may take, and what it reports.
type JudgeConfig struct {
	Memory int64 // in bytes, at least MinMemory
	// Ordered: the order of Written is that of the commits, as the user claims. It overrides
	// positions.
	Ordered bool
	// Commits gives the ids of rows in the order of their commits, the same ones at each call. For
	// the rows that it gives it overrides positions. Nil: the order is not known in this way.
	Commits  func(ctx context.Context, each func(id []byte) error) error
	Examples int // of each kind, how many are reported in detail
}

// Report is the result of Judge. An exact relay has zeros from Lost on.
type Report struct {
	Written      int64 `json:"written"`       // rows that are judged
	NotJudged    int64 `json:"not_judged"`    // rows outside of the time that is judged
	Records      int64 `json:"records"`       // read from the topics, without dead letters
	Delivered    int64 `json:"delivered"`     // rows that arrived at least once
	DeadLettered int64 `json:"dead_lettered"` // rows that arrived only as dead letters

	Lost       int64 `json:"lost"`
	Duplicated int64 `json:"duplicated"` // records of rows that had arrived before
	// LongestRepeat is how many such records follow each other in a partition, at most.
	LongestRepeat int64 `json:"longest_repeat"`
	// OutOfOrder are rows that arrived first behind a later row of their key, in one partition.
	OutOfOrder     int64 `json:"out_of_order"`
	OrderJudged    int64 `json:"order_judged"`     // rows with a key whose order was judged
	OrderNotJudged int64 `json:"order_not_judged"` // rows with a key and no known place of commit
	// PartialReplays are repetitions that leave out a row of the key that had arrived, or end
	// before the newest.
	PartialReplays int64 `json:"torn_replays"`
	Phantom        int64 `json:"phantom"` // records of no row, and those without an id
	// PartialTransactions are those of which some rows arrived and some are lost.
	PartialTransactions int64 `json:"torn_transactions"`
	// PartitionChanges are keys with records in more than one partition of a topic; KeysMoved are
	// those where partitions that were added can explain it, so they are not judged.
	PartitionChanges int64 `json:"partition_changes"`
	KeysMoved        int64 `json:"keys_moved"`

	Passes   int       `json:"passes"` // how often the topics were read, to stay within the memory
	Examples []Example `json:"examples"`
}

// Clean reports whether nothing that was judged is wrong.
func (r *Report) Clean() bool {
	return r.Lost == 0 && r.Duplicated == 0 && r.OutOfOrder == 0 && r.Phantom == 0 &&
		r.PartialReplays == 0 && r.PartialTransactions == 0 && r.PartitionChanges == 0
}

// The memory that is taken, in bytes.
const (
	// MinMemory is the least that Judge works with.
	MinMemory = 48 << 20
	// baseMemory is for what Written and Published need while they read, and for garbage.
	baseMemory = 32 << 20
	// rowMemory is for one row of a pass: what is kept of it, the state of its key, and 4/3 of a
	// place in the table of each.
	rowMemory = 32 + 40 + 2*6
	// bitmaps are kept of all records: there, of a row, repeated.
	bitmaps = 3
)

// ErrMemory: the memory does not suffice; its text has the amount that does.
var ErrMemory = errors.New("not enough memory")

// ErrSameID: two rows have one id, so that their records cannot be distinguished.
var ErrSameID = errors.New("two rows have the same id")

// Judge compares what was written with what was published, and blocks until that is done. It keeps
// a few bytes of each row. Where they exceed the memory, it takes the keys in several passes, and
// reads rows and topics again for each. Errors are ErrMemory, ErrSameID, and those of w and p.
//
// Rows are known by a hash of 64 bits of their ids: with 100 million rows the chance that two
// share one is 1 in 4,000.
func Judge(ctx context.Context, cfg JudgeConfig, w Written, p Published) (Report, error) {
	j := &judge{
		cfg: cfg, written: w, published: p, parts: p.Partitions(),
		seed: maphash.MakeSeed(), shown: map[Kind]int{}, report: Report{Examples: []Example{}},
	}
	if err := j.plan(ctx); err != nil {
		return j.report, err
	}
	j.report.Passes = len(j.ranges)
	for i, r := range j.ranges {
		if err := j.pass(ctx, r, i == 0, i == len(j.ranges)-1); err != nil {
			return j.report, err
		}
	}
	j.countRecords()
	j.countMoved()
	err := j.examineLost(ctx)
	slices.SortStableFunc(j.report.Examples, func(a, b Example) int {
		return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind)
	})
	return j.report, err
}

type judge struct {
	cfg       JudgeConfig
	written   Written
	published Published
	parts     []Partition
	topics    []uint16 // of each partition: the number of its topic
	seed      maphash.Seed
	count     int64 // rows
	ranges    []keyRange
	records   []recordSet // of each partition
	placed    []placement // of each partition
	moved     []int64     // keys in more than one partition, by the number of the topic
	lost      bitmap      // by the place of the row in Written
	report    Report
	shown     map[Kind]int // examples
}

// keyRange is what one pass judges: the rows whose key's bucket is first, last, or between.
type keyRange struct {
	first, last int
	rows        int64
}

const buckets = 1 << 16 // into which the keys are divided for passes

func bucketOf(key uint64) int { return int(key >> 48) } //nolint:gosec // 16 bits

// plan divides the keys so that the rows of a pass fit into the memory.
func (j *judge) plan(ctx context.Context) error {
	var err error
	if j.count, err = j.written.Count(ctx); err != nil {
		return err
	}
	if j.count >= 1<<32-1 {
		return fmt.Errorf("%w: at most 4 billion rows can be judged at once", ErrMemory)
	}
	topics := map[string]uint16{}
	var places int64
	for _, p := range j.parts {
		if _, known := topics[p.Topic]; !known {
			topics[p.Topic] = uint16(len(topics)) //nolint:gosec // no cluster has more
		}
		j.topics = append(j.topics, topics[p.Topic])
		if !p.DeadLetter {
			places += p.End - p.From
		}
	}
	j.placed, j.moved = newPlacements(j.parts, j.topics), make([]int64, len(topics))
	fixed := baseMemory + bitmaps*places/8 + j.count/8
	capacity := (j.cfg.Memory - fixed) / rowMemory
	least := fixed + rowMemory*min(j.count, 100_000)
	if least > max(j.cfg.Memory, MinMemory) || capacity <= 0 {
		return fmt.Errorf("%w: %d rows and %d records need %d MiB at least",
			ErrMemory, j.count, places, least>>20+1)
	}
	for _, p := range j.parts {
		j.records = append(j.records, newRecordSet(p))
	}
	j.lost = newBitmap(j.count)
	if j.count <= capacity {
		j.ranges = []keyRange{{0, buckets - 1, j.count}}
		return nil
	}
	var rows [buckets]int64
	err = j.rows(ctx, func(_ *Row, e judged) error { rows[bucketOf(e.key)]++; return nil })
	if err != nil {
		return err
	}
	now := keyRange{}
	for b, n := range rows {
		if n > capacity {
			return fmt.Errorf("%w: one key has about %d rows, which need %d MiB",
				ErrMemory, n, (j.cfg.Memory+(n-capacity)*rowMemory)>>20+1)
		}
		if now.rows+n > capacity {
			j.ranges = append(j.ranges, now)
			now = keyRange{first: b}
		}
		now.last, now.rows = b, now.rows+n
	}
	j.ranges = append(j.ranges, now)
	return nil
}

// rows gives each row with what is kept of it.
func (j *judge) rows(ctx context.Context, each func(*Row, judged) error) error {
	at := uint32(0)
	return j.written.Rows(ctx, func(r *Row) error {
		if int64(at) >= j.count {
			return errors.New("there are more rows than were counted: they changed meanwhile")
		}
		e := judged{id: maphash.Bytes(j.seed, r.ID), at: at}
		if j.cfg.Ordered {
			e.commit = at + 1
		}
		e.key = e.id
		if r.Key != nil {
			e.key = maphash.Bytes(j.seed, r.Key)
			e.bits |= bitKeyed
		}
		if r.Judged {
			e.bits |= bitJudged
		}
		at++
		return each(r, e)
	})
}

// pass judges the rows of some keys.
func (j *judge) pass(ctx context.Context, keys keyRange, first, last bool) error {
	p := newPass(j, keys.rows, first)
	err := j.rows(ctx, func(_ *Row, e judged) error {
		if b := bucketOf(e.key); b >= keys.first && b <= keys.last {
			p.entries = append(p.entries, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.index(); err != nil {
		return err
	}
	if err := p.readCommits(ctx); err != nil {
		return err
	}
	err = j.published.Records(ctx, func(r *Record) error { p.record(r, last); return nil })
	if err != nil {
		return err
	}
	p.finish()
	return nil
}

// countRecords counts what is known of the records only when all rows have been seen.
func (j *judge) countRecords() {
	for i := range j.records {
		records, phantoms, longest := j.records[i].count()
		j.report.Records += records
		j.report.Phantom += phantoms
		j.report.LongestRepeat = max(j.report.LongestRepeat, longest)
	}
}
