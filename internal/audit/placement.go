package audit

import "slices"

// placement is where the records of a partition would be by Kafka's default partitioner: at the
// hash of the key modulo the number of partitions, which only grows.
type placement struct {
	partition  int64
	topic      uint16
	partitions int64               // of the topic
	fewest     int64               // that the topic can have had at the last record
	fits, not  int64               // records that some number from fewest on explains, and others
	unknown    bool                // a record has no hash
	begins     map[uint16]position // the first in the order of commits, of each source
	elsewhere  []displaced
}

// displaced is a record in the partition that its key had with fewer partitions than there are.
type displaced struct {
	hash int64
	at   position
}

// maxDisplaced bounds them. With more, a topic surely had fewer partitions once.
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
			fewest: 1, begins: map[uint16]position{},
		}
	}
	return out
}

func (p *placement) add(r *Record, at position) {
	begin, known := p.begins[at.source]
	if at.source != sourceUnknown && (!known || at.before(begin)) {
		p.begins[at.source] = at
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
		p.not++
		return
	}
	p.fewest = n
	p.fits++
	displacedNow := at.source != sourceUnknown && hash%p.partitions != p.partition
	if displacedNow && len(p.elsewhere) < maxDisplaced {
		p.elsewhere = append(p.elsewhere, displaced{hash, at})
	}
}

// countMoved decides about the keys in more than one partition. They are no fault where added
// partitions explain every record, nor where many records are elsewhere than Kafka's default
// partitioner puts them: then the relay, or the rows, place them by other rules.
func (j *judge) countMoved() {
	explained := make([]bool, len(j.moved))
	for topic, moved := range j.moved {
		explained[topic] = j.addedPartitions(uint16(topic)) //nolint:gosec // made of 16 bits
		if explained[topic] {
			j.report.KeysMoved += moved
		} else {
			j.report.PartitionChanges += moved
		}
	}
	j.report.Examples = slices.DeleteFunc(j.report.Examples, func(e Example) bool {
		return e.Kind == PartitionChange && slices.ContainsFunc(j.placed, func(p placement) bool {
			return explained[p.topic] && j.parts[slices.Index(j.topics, p.topic)].Topic == e.Topic
		})
	})
}

// addedPartitions reports whether the records of a topic can be where they are because partitions
// were added, or by other rules.
func (j *judge) addedPartitions(topic uint16) bool {
	var fits, not int64
	for i := range j.placed {
		switch p := &j.placed[i]; {
		case p.topic != topic:
		case p.unknown:
			return false
		default:
			fits, not = fits+p.fits, not+p.not
		}
	}
	if not > 0 {
		return not > fits/3
	}
	// A record that was repeated after partitions were added has an old position in a new
	// partition.
	return j.report.Duplicated > 0 || !slices.ContainsFunc(j.placed, func(p placement) bool {
		unexplained := func(d displaced) bool { return !j.fewer(&p, d) }
		return p.topic == topic && slices.ContainsFunc(p.elsewhere, unexplained)
	})
}

// fewer reports whether the topic can have had fewer partitions when a record was published: those
// with an earlier record were there.
func (j *judge) fewer(p *placement, d displaced) bool {
	least := p.partition + 1
	for i := range j.placed {
		other := &j.placed[i]
		begin, known := other.begins[d.at.source]
		if known && other.topic == p.topic && begin.before(d.at) {
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
