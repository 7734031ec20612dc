package audit

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// judged is what is kept of a row while it is judged.
type judged struct {
	id, key uint64 // hashes
	at      uint32 // place in Written
	bits    uint32 // and, once it has arrived, the number of the topic above topicShift
}

const (
	bitJudged uint32 = 1 << iota
	bitKeyed
	bitDelivered
	bitDeadLettered

	topicShift = 16
)

// state is how far the rows of a key have come in a topic. Ranks are indices of entries plus one: entries are sorted by key and then by
// their order, so a higher rank is a later row.
type state struct {
	key       uint64
	high      uint32 // highest rank that arrived in the partition
	last      uint32 // rank that arrived last; 0 <= last <= high
	partition int32  // index
	topic     uint16
	moved     bool
}

// pass judges the rows of some keys.
type pass struct {
	*judge
	entries []judged
	ids     hashTable // to entries
	states  []state
	keys    hashTable // to states
}

func newPass(j *judge, rows int64) *pass {
	return &pass{judge: j, entries: make([]judged, 0, rows), ids: newHashTable(rows), keys: newHashTable(rows)}
}

// index is called when all entries are there.
func (p *pass) index() error {
	slices.SortFunc(p.entries, func(a, b judged) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Compare(a.at, b.at)
	})
	for i := range p.entries {
		id := p.entries[i].id
		place, found := p.ids.find(id, func(at uint32) bool { return p.entries[at].id == id })
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

// record judges one record. In the last pass those that no pass has found a row for are phantoms.
func (p *pass) record(r *Record, last bool) {
	id := maphash.Bytes(p.seed, r.ID)
	place, found := 0, false
	if r.ID != nil {
		place, found = p.ids.find(id, func(at uint32) bool { return p.entries[at].id == id })
	}
	part := &p.parts[r.Partition]
	if part.DeadLetter {
		if found {
			p.entries[p.ids[place]-1].bits |= bitDeadLettered
		}
		return
	}
	set := &p.records[r.Partition]
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
		p.order(r, e, first)
	}
}

// order compares a record with those of its key before it.
func (p *pass) order(r *Record, e uint32, first bool) {
	topic, partition, rank := p.topics[r.Partition], int32(r.Partition), e+1 //nolint:gosec // plan refuses as many
	key := p.entries[e].key
	place, found := p.keys.find(key+uint64(topic)*0x9E3779B97F4A7C15, func(at uint32) bool {
		return p.states[at].key == key && p.states[at].topic == topic
	})
	if !found {
		if !first { // of a row that came by another topic
			return
		}
		p.states = append(p.states, state{key: key, topic: topic, partition: partition}) // has room: each has a row that came first by it
		p.keys[place] = uint32(len(p.states))                                            //nolint:gosec // plan refuses as many
	}
	s := &p.states[p.keys[place]-1]
	if s.partition != partition {
		if !s.moved {
			p.report.PartitionChanges++
			p.example(PartitionChange, r)
		}
		// Nothing orders two partitions.
		s.partition, s.moved, s.high, s.last = partition, true, 0, 0
	}
	if !p.cfg.Ordered {
		return
	}
	switch {
	case first && rank < s.high:
		p.report.OutOfOrder++
		p.example(OutOfOrder, r)
		return // where the key stands is not changed by it
	case !s.moved && rank > s.last && p.leavesOut(s, rank):
		p.report.TornReplays++
		p.example(TornReplay, r)
	}
	s.last, s.high = rank, max(s.high, rank)
}

// leavesOut tells whether a row between the one that arrived last and this one had arrived by the same topic.
func (p *pass) leavesOut(s *state, rank uint32) bool {
	if s.last == 0 {
		return false
	}
	for i := s.last; i < rank-1; i++ { // ranks last+1 to rank-1
		if b := p.entries[i].bits; b&bitDelivered != 0 && uint16(b>>topicShift) == s.topic { //nolint:gosec // 16 bits
			return true
		}
	}
	return false
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
	if !p.cfg.Ordered {
		return
	}
	for i := range p.states {
		if s := &p.states[i]; s.last < s.high && !s.moved {
			p.report.TornReplays++ // whoever keeps the last event of a key is left with an old one
		}
	}
}

// hashTable finds a number by a hash: open addressing with a third of the places free. Zero is an empty place, so numbers are stored plus one.
type hashTable []uint32

func newHashTable(n int64) hashTable { return make(hashTable, n+n/3+8) }

// find returns the place of what is, or, if it is not found, could be stored under the hash.
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
