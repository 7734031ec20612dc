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
	Key         []byte // rows of one key are ordered by their commits; nil: no order
	Transaction uint64 // zero: unknown
	Judged      bool   // false: the row serves to recognise its records, which are not unexpected
}

// Written has the rows to publish. Rows calls each for the same rows in the same order every time.
// The slices of a Row are valid until each returns. Rows returns the first error of each.
type Written interface {
	Count(ctx context.Context) (int64, error)
	Rows(ctx context.Context, each func(*Row) error) error
}

// Partition is a range of offsets of a partition: from From up to End, without End.
type Partition struct {
	Topic      string
	Number     int32
	From, End  int64
	DeadLetter bool // of the dead-letter topic
}

// Record is one record of a topic. Its slices are valid until each returns.
type Record struct {
	Partition int // index in Partitions
	Offset    int64
	ID        []byte   // nil: the record has none
	Key       []byte   // for examples only
	Hash      int64    // of Key by Kafka's default partitioner, plus 1; 0: unknown
	Position  Position // of the row's commit
	Redriven  bool     // a dead letter that was redriven, so out of order
	Early     bool     // from before the judged period: its row may have been deleted
}

// Position is the place of a row among the commits, from the headers of its record. Only positions
// of one source compare.
type Position struct {
	Source []byte // nil: the record has no position or no source
	LSN    uint64 // of the commit
	Index  uint32 // in the transaction
	Time   int64  // of the commit, by the server's clock, in microseconds
}

// Published has the published records. Records calls each for the same records every time: in the
// order of Partitions, and by offset in each.
type Published interface {
	Partitions() []Partition
	Records(ctx context.Context, each func(*Record) error) error
}

// JudgeConfig configures Judge.
type JudgeConfig struct {
	Memory int64 // limit in bytes, at least MinMemory
	// Ordered: the user claims that the order of Written is the commit order. It overrides
	// positions.
	Ordered bool
	// Commits calls each for ids of rows in commit order, the same ones every time. It overrides
	// the positions of these rows. Nil: the positions decide.
	Commits  func(ctx context.Context, each func(id []byte) error) error
	Examples int // of each kind of fault, in Report
}

// Report is the result of Judge. Clean reports whether it has faults.
type Report struct {
	Written      int64 `json:"written"`       // rows that are judged
	NotJudged    int64 `json:"not_judged"`    // rows outside of the judged period
	Records      int64 `json:"records"`       // read from the topics, without dead letters
	Delivered    int64 `json:"delivered"`     // rows that arrived at least once
	DeadLettered int64 `json:"dead_lettered"` // rows that arrived only as dead letters

	Lost       int64 `json:"lost"`
	Duplicated int64 `json:"duplicated"` // records of rows that had arrived before
	// LongestRepeat is the longest run of Duplicated records in a partition.
	LongestRepeat int64 `json:"longest_repeat"`
	// OutOfOrder counts rows that first arrived after a later row of their key, in one partition.
	OutOfOrder     int64 `json:"out_of_order"`
	OrderJudged    int64 `json:"order_judged"`     // rows with a key whose order was judged
	OrderNotJudged int64 `json:"order_not_judged"` // rows with a key and no known commit position
	// PartialReplays counts repetitions that skip a row of the key that had arrived, or end before
	// the newest.
	PartialReplays int64 `json:"torn_replays"`
	Phantom        int64 `json:"phantom"` // records without a row or without an id, not Early
	// PartialTransactions counts transactions of which some rows arrived and some are lost.
	PartialTransactions int64 `json:"torn_transactions"`
	// PartitionChanges counts keys with records in several partitions of a topic. KeysMoved counts
	// those that added partitions, or another partitioner, explain: they are no fault.
	PartitionChanges int64 `json:"partition_changes"`
	KeysMoved        int64 `json:"keys_moved"`

	Passes   int       `json:"passes"` // how often the topics were read, to stay within Memory
	Examples []Example `json:"examples"`
}

// Clean reports whether the judged rows and records have no fault.
func (r *Report) Clean() bool {
	return r.Lost == 0 && r.Duplicated == 0 && r.OutOfOrder == 0 && r.Phantom == 0 &&
		r.PartialReplays == 0 && r.PartialTransactions == 0 && r.PartitionChanges == 0
}

// Memory, in bytes.
const (
	// MinMemory is the lowest limit that Judge accepts.
	MinMemory = 48 << 20
	// baseMemory is for Written and Published while they read, and for garbage.
	baseMemory = 32 << 20
	// rowMemory is for one row of a pass: its entry, the state of its key, and 4/3 slots in the
	// hash table of each.
	rowMemory = 32 + 40 + 2*6
	// bitmaps is the number of bitmaps of a recordSet.
	bitmaps = 3
)

// ErrMemory: the limit is too low. The text has the amount that suffices.
var ErrMemory = errors.New("not enough memory")

// ErrSameID: two rows have the same id. Their records cannot be distinguished.
var ErrSameID = errors.New("two rows have the same id")

// Judge compares the rows of w with the records of p. It keeps a few bytes of each row. If they
// exceed the memory, it judges the keys in several passes, and each reads all rows and records.
// Errors are ErrMemory, ErrSameID, and those of w and p.
//
// Rows are identified by a hash of 64 bits of their ids: among 100 million rows, the chance that
// two have the same hash is 1 in 4,000.
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
	moved     []int64     // keys in several partitions, by the number of the topic
	lost      bitmap      // by index of the row in Written
	report    Report
	shown     map[Kind]int // number of examples
}

// keyRange is the buckets of the keys that one pass judges, from first to last.
type keyRange struct {
	first, last int
	rows        int64
}

const buckets = 1 << 16 // of keys; a pass judges a range of them

func bucketOf(key uint64) int { return int(key >> 48) } //nolint:gosec // 16 bits

// plan divides the keys into passes whose rows fit into the memory.
func (j *judge) plan(ctx context.Context) error {
	var err error
	if j.count, err = j.written.Count(ctx); err != nil {
		return err
	}
	if j.count >= 1<<32-1 {
		return fmt.Errorf("%w: at most 4 billion rows can be judged at once", ErrMemory)
	}
	topics := map[string]uint16{}
	var records int64
	for _, p := range j.parts {
		if _, known := topics[p.Topic]; !known {
			topics[p.Topic] = uint16(len(topics)) //nolint:gosec // no cluster has more
		}
		j.topics = append(j.topics, topics[p.Topic])
		if !p.DeadLetter {
			records += p.End - p.From
		}
	}
	j.placed, j.moved = newPlacements(j.parts, j.topics), make([]int64, len(topics))
	fixed := baseMemory + bitmaps*records/8 + j.count/8
	capacity := (j.cfg.Memory - fixed) / rowMemory
	least := fixed + rowMemory*min(j.count, 100_000)
	if least > max(j.cfg.Memory, MinMemory) || capacity <= 0 {
		return fmt.Errorf("%w: %d rows and %d records need %d MiB at least",
			ErrMemory, j.count, records, least>>20+1)
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
	current := keyRange{}
	for b, n := range rows {
		if n > capacity {
			return fmt.Errorf("%w: one key has about %d rows, which need %d MiB",
				ErrMemory, n, (j.cfg.Memory+(n-capacity)*rowMemory)>>20+1)
		}
		if current.rows+n > capacity {
			j.ranges = append(j.ranges, current)
			current = keyRange{first: b}
		}
		current.last, current.rows = b, current.rows+n
	}
	j.ranges = append(j.ranges, current)
	return nil
}

// rows calls each for every row, with its entry.
func (j *judge) rows(ctx context.Context, each func(*Row, judged) error) error {
	at := uint32(0)
	return j.written.Rows(ctx, func(r *Row) error {
		if int64(at) >= j.count {
			return errors.New("there are more rows than at the beginning of the audit")
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

// pass judges the rows of a range of keys.
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

// countRecords counts records and unexpected ones. Call it after all passes.
func (j *judge) countRecords() {
	for i := range j.records {
		records, unexpected, longest := j.records[i].count()
		j.report.Records += records
		j.report.Phantom += unexpected
		j.report.LongestRepeat = max(j.report.LongestRepeat, longest)
	}
}
