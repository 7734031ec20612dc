package audit

// position is the place of a row among the commits. Positions compare only within one source.
type position struct {
	lsn    uint64 // or, of sourceClaimed, the number of the row
	index  uint32
	source uint16
}

const (
	sourceUnknown uint16 = iota // the place of the commit is not known
	sourceClaimed               // from the order of Written, or of Commits

	firstSource // of the records' positions
)

func (p position) before(q position) bool {
	return p.lsn < q.lsn || p.lsn == q.lsn && p.index < q.index
}

// state is how far the rows of a key have come in a topic.
type state struct {
	key       uint64
	newest    position // of the rows in the partition, of the source of the one that came last
	count     uint32   // rows that arrived, without those out of order
	last      uint32   // arrival of the row that came last, repeated or not; last <= count
	partition int32    // index
	topic     uint16
	moved     bool
}

// order compares a record with those of its key before it.
func (p *pass) order(r *Record, e uint32, first bool, at position) {
	s := p.state(r, e, first)
	if s == nil {
		return
	}
	if partition := int32(r.Partition); s.partition != partition { //nolint:gosec // never so many
		if !s.moved {
			p.moved[s.topic]++
			p.example(PartitionChange, r)
		}
		// Nothing orders two partitions.
		s.partition, s.moved, s.newest, s.count, s.last = partition, true, position{}, 0, 0
	}
	if p.entries[e].commit > 0 {
		at = position{lsn: uint64(p.entries[e].commit), source: sourceClaimed}
	}
	switch {
	case first && r.Redriven:
		p.report.OrderNotJudged++
	case r.Redriven:
	case first && p.late(s, at):
		p.report.OutOfOrder++
		p.example(OutOfOrder, r) // and leaves the state of the key as it is
	default:
		p.repetition(s, r, e, first)
	}
}

// state returns the state of the row's key in the record's topic. Nil: the row arrived in another
// topic first, and no row of its key in this one.
func (p *pass) state(r *Record, e uint32, first bool) *state {
	topic, key := p.topics[r.Partition], p.entries[e].key
	at, found := p.keys.find(key+uint64(topic)*0x9E3779B97F4A7C15, func(at uint32) bool {
		return p.states[at].key == key && p.states[at].topic == topic
	})
	if !found {
		if !first {
			return nil
		}
		// There is room: each state has a row that arrived in its topic first.
		partition := int32(r.Partition) //nolint:gosec // never so many
		p.states = append(p.states, state{key: key, topic: topic, partition: partition})
		p.keys[at] = uint32(len(p.states)) //nolint:gosec // plan refuses as many
	}
	return &p.states[p.keys[at]-1]
}

// late reports whether a row arrives first behind one that was committed later.
func (p *pass) late(s *state, at position) bool {
	switch {
	case at.source == sourceUnknown:
		p.report.OrderNotJudged++
		return false
	case s.newest.source == at.source && at.before(s.newest):
		p.report.OrderJudged++
		return true
	case s.newest.source == at.source || s.newest.source == sourceUnknown:
		p.report.OrderJudged++
	default: // nothing compares two sources
		p.report.OrderNotJudged++
	}
	s.newest = at
	return false
}

// repetition compares with how the rows of the key arrived first: a repetition begins at an
// earlier row and runs up to where it began. That takes no order of commits. A relay that repeats
// rows of the WAL in another order than before was wrong one of the two times.
func (p *pass) repetition(s *state, r *Record, e uint32, first bool) {
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

// newHistory, in microseconds, separates two histories of a source: a record with an earlier LSN
// that was committed so much later than all before it comes from a copy that replaced the server.
// Within one history, commits that write their records at the same time differ by less.
const newHistory = 1_000_000

// histories finds the sources of positions. A source whose positions begin again at a later time
// has another history from there on, and positions of two histories do not compare.
type histories struct {
	numbers map[string]uint16
	last    uint16
	of      map[partitionSource]*history
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
		numbers: map[string]uint16{}, last: firstSource - 1, of: map[partitionSource]*history{},
	}
}

// position is that of a record's row. It must be called for the records of a partition in their
// order.
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
	of := h.of[partitionSource{r.Partition, number}]
	switch {
	case of == nil:
		of = &history{source: number}
		h.of[partitionSource{r.Partition, number}] = of
	case at.LSN < of.lsn && at.Time > of.time+newHistory:
		*of = history{source: h.next()}
	}
	of.lsn, of.time = max(of.lsn, at.LSN), max(of.time, at.Time)
	return position{lsn: at.LSN, index: at.Index, source: of.source}
}

// next returns sourceUnknown when all numbers are taken.
func (h *histories) next() uint16 {
	if h.last == 1<<16-1 {
		return sourceUnknown
	}
	h.last++
	return h.last
}
