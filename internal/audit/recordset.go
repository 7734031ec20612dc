package audit

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
