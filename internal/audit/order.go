package audit

// position is the place of a row among the commits. Only positions of one source compare.
type position struct {
	lsn    uint64 // of the commit; of sourceClaimed, the index in the claimed order
	index  uint32
	source uint16
}

const (
	sourceUnknown uint16 = iota // the position is unknown
	sourceClaimed               // the order is that of Written or Commits

	firstSource // of positions of records
)

func (p position) before(q position) bool {
	return p.lsn < q.lsn || p.lsn == q.lsn && p.index < q.index
}

// keyState is the progress of a key in a topic.
type keyState struct {
	key       uint64
	newest    position // highest in the partition, of the source of the last row
	count     uint32   // rows that arrived, without those that are out of order
	last      uint32   // arrival of the last record's row; last <= count
	partition int32    // index
	topic     uint16
	moved     bool // to another partition
}

// judgeOrder compares a record with the earlier ones of its key.
func (p *pass) judgeOrder(r *Record, e uint32, first bool, at position) {
	s := p.state(r, e, first)
	if s == nil {
		return
	}
	if partition := int32(r.Partition); s.partition != partition { //nolint:gosec // never so many
		if !s.moved {
			p.moved[s.topic]++
			p.example(PartitionChange, r)
		}
		// Records of two partitions have no order.
		s.partition, s.moved, s.newest, s.count, s.last = partition, true, position{}, 0, 0
	}
	if p.entries[e].commit > 0 {
		at = position{lsn: uint64(p.entries[e].commit), source: sourceClaimed}
	}
	switch {
	case first && r.Redriven:
		p.report.OrderNotJudged++
	case r.Redriven:
	case first && p.countOrder(s, at):
		p.report.OutOfOrder++
		p.example(OutOfOrder, r)
	default:
		p.judgeRepetition(s, r, e, first)
	}
}

// state returns the state of the row's key in the record's topic. Nil: it has none, since all its
// rows in this topic arrived in another one first.
func (p *pass) state(r *Record, e uint32, first bool) *keyState {
	topic, key := p.topics[r.Partition], p.entries[e].key
	at, found := p.keys.find(key+uint64(topic)*0x9E3779B97F4A7C15, func(at uint32) bool {
		return p.states[at].key == key && p.states[at].topic == topic
	})
	if !found {
		if !first {
			return nil
		}
		// The capacity suffices: each state has a row that arrived in its topic first.
		partition := int32(r.Partition) //nolint:gosec // never so many
		p.states = append(p.states, keyState{key: key, topic: topic, partition: partition})
		p.keys[at] = uint32(len(p.states)) //nolint:gosec // plan refuses as many
	}
	return &p.states[p.keys[at]-1]
}

// countOrder counts a first arrival, updates newest, and reports whether a later row came before.
func (p *pass) countOrder(s *keyState, at position) bool {
	switch {
	case at.source == sourceUnknown:
		p.report.OrderNotJudged++
		return false
	case s.newest.source == at.source && at.before(s.newest):
		p.report.OrderJudged++
		return true
	case s.newest.source == at.source || s.newest.source == sourceUnknown:
		p.report.OrderJudged++
	default: // positions of two sources do not compare
		p.report.OrderNotJudged++
	}
	s.newest = at
	return false
}

// judgeRepetition compares a record with the order in which the rows of its key first arrived. A
// complete repetition has all rows from an earlier one to the newest. The commit order is not
// needed: of two different orders of the same rows, one is wrong.
func (p *pass) judgeRepetition(s *keyState, r *Record, e uint32, first bool) {
	if s.moved {
		return
	}
	arrival := p.entries[e].arrival
	switch {
	case first:
		s.count++
		arrival = s.count
		p.entries[e].arrival = arrival
	case arrival == 0, p.entries[e].bits>>topicShift != uint32(s.topic):
		return
	}
	if arrival > s.last+1 {
		p.report.PartialReplays++
		p.example(PartialReplay, r)
	}
	s.last = arrival
}

// historyGap separates two histories of a source, in microseconds. A record with a lower LSN and a
// commit later than all before by more than that is of a copy that replaced the server. Within one
// history, times of concurrent commits differ by less.
const historyGap = 1_000_000

// histories numbers the sources of positions. A source whose LSNs fall at a later time has a new
// history, with a number of its own: positions of two histories do not compare.
type histories struct {
	numbers map[string]uint16 // by Position.Source
	last    uint16
	latest  map[partitionSource]*history
}

type partitionSource struct {
	partition int
	source    uint16
}

type history struct {
	source uint16
	lsn    uint64 // highest
	time   int64  // latest
}

func newHistories() histories {
	return histories{
		numbers: map[string]uint16{}, last: firstSource - 1, latest: map[partitionSource]*history{},
	}
}

// position returns the position of a record's row. Call it in the order of each partition.
func (h *histories) position(r *Record) position {
	if r.Position.Source == nil || r.Redriven {
		return position{}
	}
	number, known := h.numbers[string(r.Position.Source)]
	if !known {
		number = h.next()
		h.numbers[string(r.Position.Source)] = number
	}
	at := &r.Position
	latest := h.latest[partitionSource{r.Partition, number}]
	switch {
	case latest == nil:
		latest = &history{source: number}
		h.latest[partitionSource{r.Partition, number}] = latest
	case at.LSN < latest.lsn && at.Time > latest.time+historyGap:
		*latest = history{source: h.next()}
	}
	latest.lsn, latest.time = max(latest.lsn, at.LSN), max(latest.time, at.Time)
	return position{lsn: at.LSN, index: at.Index, source: latest.source}
}

// next returns the next number of a source, or sourceUnknown if there are no more.
func (h *histories) next() uint16 {
	if h.last == 1<<16-1 {
		return sourceUnknown
	}
	h.last++
	return h.last
}
