package audit

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
)

// judged is the entry of a row.
type judged struct {
	id, key uint64 // hashes
	at      uint32 // index in Written
	commit  uint32 // index in the commit order, from 1; 0: unknown, use the record's position
	arrival uint32 // index among the first arrivals of its key in its topic, from 1; 0: none
	bits    uint32 // flags; after the arrival, above topicShift, the number of the topic
}

const (
	bitJudged uint32 = 1 << iota
	bitKeyed
	bitDelivered
	bitDeadLettered

	topicShift = 16
)

// pass is the state of judging the rows of a range of keys.
type pass struct {
	*judge
	entries   []judged
	ids       hashTable // to entries
	states    []keyState
	keys      hashTable // to states
	histories histories
	first     bool // it is the first pass
}

func newPass(j *judge, rows int64, first bool) *pass {
	return &pass{
		judge: j, first: first, entries: make([]judged, 0, rows),
		ids: newHashTable(rows), keys: newHashTable(rows), histories: newHistories(),
	}
}

// index fills ids from entries, which must be complete.
func (p *pass) index() error {
	for i := range p.entries {
		id := p.entries[i].id
		slot, found := p.find(id)
		if found {
			return ErrSameID
		}
		p.ids[slot] = uint32(i) + 1 //nolint:gosec // plan refuses as many
		if p.entries[i].bits&bitJudged != 0 {
			p.report.Written++
		} else {
			p.report.NotJudged++
		}
	}
	p.states = make([]keyState, 0, len(p.entries))
	return nil
}

// find returns the slot of a row in ids by the hash of its id.
func (p *pass) find(id uint64) (slot int, found bool) {
	return p.ids.find(id, func(at uint32) bool { return p.entries[at].id == id })
}

// readCommits sets the index of each row in the commit order.
func (p *pass) readCommits(ctx context.Context) error {
	if p.cfg.Commits == nil {
		return nil
	}
	n := uint32(0)
	return p.cfg.Commits(ctx, func(id []byte) error {
		if n++; n == math.MaxUint32 {
			return fmt.Errorf("%w: at most 4 billion commits can be judged at once", ErrMemory)
		}
		if slot, found := p.find(maphash.Bytes(p.seed, id)); found {
			p.entries[p.ids[slot]-1].commit = n
		}
		return nil
	})
}

// record judges one record. In the last pass, a record without a row in any pass is unexpected.
func (p *pass) record(r *Record, last bool) {
	slot, found := 0, false
	if r.ID != nil {
		slot, found = p.find(maphash.Bytes(p.seed, r.ID))
	}
	part := &p.parts[r.Partition]
	if part.DeadLetter {
		if found {
			p.entries[p.ids[slot]-1].bits |= bitDeadLettered
		}
		return
	}
	set := &p.records[r.Partition]
	// Histories come from all records, so that every pass finds the same ones.
	position := p.histories.position(r)
	if p.first {
		p.placed[r.Partition].add(r, position)
	}
	at := r.Offset - part.From
	if !found {
		if r.Early || set.ofRow.has(at) {
			return
		}
		set.counted.set(at)
		if last {
			p.example(Phantom, r)
		}
		return
	}
	set.ofRow.set(at)
	e := p.ids[slot] - 1
	if p.entries[e].bits&bitJudged == 0 {
		set.counted.unset(at) // set by an earlier pass, which has no entry of it
		return
	}
	set.counted.set(at)
	first := p.entries[e].bits&bitDelivered == 0
	if first {
		p.entries[e].bits |= bitDelivered | uint32(p.topics[r.Partition])<<topicShift
		p.report.Delivered++
	} else {
		set.repeated.set(at)
		p.report.Duplicated++
		p.example(Duplicated, r)
	}
	if p.entries[e].bits&bitKeyed != 0 {
		p.judgeOrder(r, e, first, position)
	}
}

// finish counts the rows that have not arrived, and the keys whose last record is a repetition.
func (p *pass) finish() {
	for i := range p.entries {
		e := &p.entries[i]
		switch {
		case e.bits&bitJudged == 0 || e.bits&bitDelivered != 0:
		case e.bits&bitDeadLettered != 0:
			p.report.DeadLettered++
		default:
			p.report.Lost++
			p.lost.set(int64(e.at))
		}
	}
	for i := range p.states {
		if s := &p.states[i]; s.last < s.count && !s.moved {
			p.report.PartialReplays++ // the last record is not of the newest row
		}
	}
}

// hashTable finds a number by a hash: open addressing with a quarter of the slots free. A slot has
// the number plus one, or zero if it is free.
type hashTable []uint32

func newHashTable(n int64) hashTable { return make(hashTable, n+n/3+8) }

// find returns the slot of the number that matches; without any, the slot to store it in.
func (t hashTable) find(hash uint64, matches func(uint32) bool) (slot int, found bool) {
	at, _ := bits.Mul64(hash*0xD6E8FEB86659FD93, uint64(len(t)))
	for ; ; at++ {
		if at == uint64(len(t)) {
			at = 0
		}
		switch n := t[at]; {
		case n == 0:
			return int(at), false //nolint:gosec // less than len
		case matches(n - 1):
			return int(at), true //nolint:gosec // less than len
		}
	}
}

// bitmap is a set of integers from zero on.
type bitmap []uint64

func newBitmap(n int64) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) set(n int64)      { b[n/64] |= 1 << (n % 64) }
func (b bitmap) unset(n int64)    { b[n/64] &^= 1 << (n % 64) }
func (b bitmap) has(n int64) bool { return b[n/64]&(1<<(n%64)) != 0 }

// recordSet has the results of a partition's records, by offset, over all passes.
type recordSet struct {
	n        int64
	counted  bitmap // of a judged row or of none
	ofRow    bitmap // of a row
	repeated bitmap // of a row that had arrived before
}

func newRecordSet(p Partition) recordSet {
	if p.DeadLetter {
		return recordSet{}
	}
	n := p.End - p.From
	return recordSet{n: n, counted: newBitmap(n), ofRow: newBitmap(n), repeated: newBitmap(n)}
}

// count returns the counts, and the longest run of repetitions. Offsets without a record, such as
// transaction markers, do not end a run.
func (s *recordSet) count() (records, unexpected, longest int64) {
	run := int64(0)
	for at := range s.n {
		switch {
		case !s.counted.has(at):
			continue
		case s.repeated.has(at):
			run++
			longest = max(longest, run)
		default:
			run = 0
		}
		records++
		if !s.ofRow.has(at) {
			unexpected++
		}
	}
	return records, unexpected, longest
}
