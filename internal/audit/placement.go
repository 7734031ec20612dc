package audit

import "slices"

// placement compares a partition with Kafka's default partitioner, which puts a record into
// partition hash modulo n. n is the number of partitions and only grows.
type placement struct {
	partition   int64
	topic       uint16
	partitions  int64               // n now
	fewest      int64               // lowest n at the last record
	explained   int64               // records in the partition of some n from fewest on
	unexplained int64               // other records
	unknown     bool                // a record has no hash
	lowest      map[uint16]position // of each source
	displaced   []displacedRecord
}

// displacedRecord is a record in a partition that only a lower n than now explains.
type displacedRecord struct {
	hash int64
	at   position
}

// maxDisplaced bounds placement.displaced. With more, the topic surely had fewer partitions.
const maxDisplaced = 10_000

func newPlacements(parts []Partition, topics []uint16) []placement {
	count := map[uint16]int64{}
	for i := range parts {
		count[topics[i]] = max(count[topics[i]], int64(parts[i].Number)+1)
	}
	out := make([]placement, len(parts))
	for i := range parts {
		out[i] = placement{
			partition: int64(parts[i].Number), topic: topics[i], partitions: count[topics[i]],
			fewest: 1, lowest: map[uint16]position{},
		}
	}
	return out
}

func (p *placement) add(r *Record, at position) {
	lowest, known := p.lowest[at.source]
	if at.source != sourceUnknown && (!known || at.before(lowest)) {
		p.lowest[at.source] = at
	}
	if r.Hash == 0 {
		p.unknown = p.unknown || r.Key != nil
		return
	}
	hash := r.Hash - 1
	n := p.fewest
	for n <= p.partitions && hash%n != p.partition {
		n++
	}
	if n > p.partitions {
		p.unexplained++
		return
	}
	p.fewest = n
	p.explained++
	displaced := at.source != sourceUnknown && hash%p.partitions != p.partition
	if displaced && len(p.displaced) < maxDisplaced {
		p.displaced = append(p.displaced, displacedRecord{hash, at})
	}
}

// countMoved decides whether keys in several partitions of a topic are a fault. They are none if
// added partitions explain every record. They are none either if Kafka's default partitioner
// explains too few records: then the relay, or the rows, choose partitions by other rules.
func (j *judge) countMoved() {
	explained := map[string]bool{} // by name of the topic
	for i, p := range j.parts {
		if _, counted := explained[p.Topic]; counted {
			continue
		}
		explained[p.Topic] = j.explainsMoved(j.topics[i])
		if moved := j.moved[j.topics[i]]; explained[p.Topic] {
			j.report.KeysMoved += moved
		} else {
			j.report.PartitionChanges += moved
		}
	}
	j.report.Examples = slices.DeleteFunc(j.report.Examples, func(e Example) bool {
		return e.Kind == PartitionChange && explained[e.Topic]
	})
}

// explainsMoved reports whether added partitions, or other rules, explain the partitions of a
// topic's records.
func (j *judge) explainsMoved(topic uint16) bool {
	var explained, unexplained int64
	for i := range j.placed {
		switch p := &j.placed[i]; {
		case p.topic != topic:
		case p.unknown:
			return false
		default:
			explained, unexplained = explained+p.explained, unexplained+p.unexplained
		}
	}
	if unexplained > 0 {
		return unexplained > explained/3
	}
	// A repetition after partitions were added has an old position in a new partition.
	return j.report.Duplicated > 0 || !slices.ContainsFunc(j.placed, func(p placement) bool {
		fault := func(d displacedRecord) bool { return !j.hadFewer(&p, d) }
		return p.topic == topic && slices.ContainsFunc(p.displaced, fault)
	})
}

// hadFewer reports whether an n lower than now explains a record. The topic had at least the
// partitions that have an earlier record.
func (j *judge) hadFewer(p *placement, d displacedRecord) bool {
	least := p.partition + 1
	for i := range j.placed {
		other := &j.placed[i]
		lowest, known := other.lowest[d.at.source]
		if known && other.topic == p.topic && lowest.before(d.at) {
			least = max(least, other.partition+1)
		}
	}
	for n := least; n < p.partitions; n++ {
		if d.hash%n == p.partition {
			return true
		}
	}
	return false
}
