package audit

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
)

// judged is what is kept of a row while it is judged.
type judged struct {
	id, key uint64 // hashes
	at      uint32 // place in Written
	commit  uint32 // place among all commits, from 1; 0: only the record's position may have it
	arrival uint32 // place among the first arrivals of its key in its topic, from 1; 0: none
	bits    uint32 // and, once it has arrived, the number of the topic above topicShift
}

const (
	bitJudged uint32 = 1 << iota
	bitKeyed
	bitDelivered
	bitDeadLettered

	topicShift = 16
)

// pass judges the rows of some keys.
type pass struct {
	*judge
	entries   []judged
	ids       hashTable // to entries
	states    []state
	keys      hashTable // to states
	histories histories
	first     bool // of all passes
}

func newPass(j *judge, rows int64, first bool) *pass {
	return &pass{
		judge: j, first: first, entries: make([]judged, 0, rows),
		ids: newHashTable(rows), keys: newHashTable(rows), histories: newHistories(),
	}
}

// index fills the table of ids; all entries must be there.
func (p *pass) index() error {
	for i := range p.entries {
		id := p.entries[i].id
		place, found := p.find(id)
		if found {
			return ErrSameID
		}
		p.ids[place] = uint32(i) + 1 //nolint:gosec // plan refuses as many
		if p.entries[i].bits&bitJudged != 0 {
			p.report.Written++
		} else {
			p.report.NotJudged++
		}
	}
	p.states = make([]state, 0, len(p.entries))
	return nil
}

// find returns the place of a row in ids by the hash of its id.
func (p *pass) find(id uint64) (place int, found bool) {
	return p.ids.find(id, func(at uint32) bool { return p.entries[at].id == id })
}

// readCommits notes the place of each row among the commits.
func (p *pass) readCommits(ctx context.Context) error {
	if p.cfg.Commits == nil {
		return nil
	}
	n := uint32(0)
	return p.cfg.Commits(ctx, func(id []byte) error {
		if n++; n == math.MaxUint32 {
			return fmt.Errorf("%w: at most 4 billion commits can be judged at once", ErrMemory)
		}
		if place, found := p.find(maphash.Bytes(p.seed, id)); found {
			p.entries[p.ids[place]-1].commit = n
		}
		return nil
	})
}

// record judges one record. After the last pass, those without a row in any pass are phantoms.
func (p *pass) record(r *Record, last bool) {
	place, found := 0, false
	if r.ID != nil {
		place, found = p.find(maphash.Bytes(p.seed, r.ID))
	}
	part := &p.parts[r.Partition]
	if part.DeadLetter {
		if found {
			p.entries[p.ids[place]-1].bits |= bitDeadLettered
		}
		return
	}
	set := &p.records[r.Partition]
	// Of each record, so that a pass does not depend on which keys it judges.
	position := p.histories.position(r)
	if p.first {
		p.placed[r.Partition].add(r, position)
	}
	at := r.Offset - part.From
	if !found {
		if set.known.has(at) {
			return
		}
		set.there.set(at)
		if last {
			p.example(Phantom, r)
		}
		return
	}
	set.there.set(at)
	set.known.set(at)
	e := p.ids[place] - 1
	if p.entries[e].bits&bitJudged == 0 {
		set.there.unset(at) // as if it were not there
		return
	}
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
		p.order(r, e, first, position)
	}
}

// finish counts what has not arrived.
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
			p.report.PartialReplays++ // the last record of the key is not its newest event
		}
	}
}

// hashTable finds a number by a hash: open addressing with a quarter of the places free. Zero is
// an empty place, so numbers are stored plus one.
type hashTable []uint32

func newHashTable(n int64) hashTable { return make(hashTable, n+n/3+8) }

// find returns the place of the number that satisfies is; where there is none, the place to store
// it.
func (t hashTable) find(hash uint64, is func(uint32) bool) (place int, found bool) {
	at, _ := bits.Mul64(hash*0xD6E8FEB86659FD93, uint64(len(t)))
	for ; ; at++ {
		if at == uint64(len(t)) {
			at = 0
		}
		switch n := t[at]; {
		case n == 0:
			return int(at), false //nolint:gosec // less than len
		case is(n - 1):
			return int(at), true //nolint:gosec // less than len
		}
	}
}

// bitmap is a set of numbers from zero on.
type bitmap []uint64

func newBitmap(n int64) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) set(n int64)      { b[n/64] |= 1 << (n % 64) }
func (b bitmap) unset(n int64)    { b[n/64] &^= 1 << (n % 64) }
func (b bitmap) has(n int64) bool { return b[n/64]&(1<<(n%64)) != 0 }

// recordSet is what is known of the records of a partition, by offset. It outlives the passes.
type recordSet struct {
	n        int64
	there    bitmap // read, and of a row that is judged or of none
	known    bitmap // of a row
	repeated bitmap // of a row that had arrived before
}

func newRecordSet(p Partition) recordSet {
	if p.DeadLetter {
		return recordSet{}
	}
	n := p.End - p.From
	return recordSet{n: n, there: newBitmap(n), known: newBitmap(n), repeated: newBitmap(n)}
}

// count walks through the records. Offsets without one, such as those of transaction markers, end
// no run of repetitions.
func (s *recordSet) count() (records, phantoms, longest int64) {
	run := int64(0)
	for at := range s.n {
		switch {
		case !s.there.has(at):
			continue
		case s.repeated.has(at):
			run++
			longest = max(longest, run)
		default:
			run = 0
		}
		records++
		if !s.known.has(at) {
			phantoms++
		}
	}
	return records, phantoms, longest
}
