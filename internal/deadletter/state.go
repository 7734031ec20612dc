package deadletter

import (
	"math"
	"time"

	"github.com/jackc/pglogrepl"
)

// holdFor is how long a row waits for the one who redrives its key.
const holdFor = time.Second

// state has the keys that are parked, from the records of the topic in any order and the letters
// about to be written. It is not safe for concurrent use.
type state struct {
	source    string
	confirmed pglogrepl.LSN // rows of transactions that ended before are not read again

	keys     map[Address]*parkedKey
	open     map[ID]Address // parking letters that no resolution names
	resolved map[ID]bool    // their letters may be read later, and may come twice
	kept     map[ID]bool    // letters of this source, behind confirmed, from before the session
	newest   position       // of kept
}

// begun: what is read from now on was written in this session, whose rows do not come again.
func (s *state) begun() { s.confirmed = math.MaxUint64 }

// parkedKey has at least one open letter.
type parkedKey struct {
	// open has the position of each row; zero, before every row, for a letter of another source.
	open  map[ID]position
	hold  time.Time // until when a row of the key waits
	asked bool      // a row has waited
}

func newState(source string, confirmed pglogrepl.LSN) *state {
	return &state{
		source: source, confirmed: confirmed,
		keys: map[Address]*parkedKey{}, open: map[ID]Address{}, resolved: map[ID]bool{},
		kept: map[ID]bool{},
	}
}

// letter takes note of a letter that was read, or is about to be written.
func (s *state) letter(l *Letter) {
	if l.Source == s.source && l.position.lsn >= s.confirmed {
		s.kept[l.ID] = true
		if s.newest.before(l.position) {
			s.newest = l.position
		}
	}
	if _, known := s.open[l.ID]; known || !l.Parks || s.resolved[l.ID] {
		return
	}
	address := l.Address()
	s.open[l.ID] = address
	k := s.keys[address]
	if k == nil {
		k = &parkedKey{open: map[ID]position{}}
		s.keys[address] = k
	}
	k.open[l.ID] = position{}
	if l.Source == s.source {
		k.open[l.ID] = l.position
	}
}

// resolution returns the keys that are not parked any more because of it.
func (s *state) resolution(r *Resolution, now time.Time) (unparked []Address) {
	for _, id := range r.Letters {
		s.resolved[id] = true
		address, open := s.open[id]
		if !open {
			continue
		}
		delete(s.open, id)
		k := s.keys[address]
		delete(k.open, id)
		if r.Hold {
			k.hold, k.asked = now.Add(holdFor), false
		}
		if len(k.open) == 0 {
			delete(s.keys, address)
			unparked = append(unparked, address)
		}
	}
	return unparked
}

// isKept reports whether the letter of a row of this source is in the topic already.
func (s *state) isKept(id ID, p position) bool {
	return !s.newest.before(p) && s.kept[id]
}

// follows reports whether a row is behind an open letter of its key; else it was published before.
func (s *state) follows(a Address, p position) bool {
	k := s.keys[a]
	if k == nil {
		return false
	}
	for _, first := range k.open {
		if first.before(p) {
			return true
		}
	}
	return false
}

// holds reports whether a row of a parked key has to wait: once for each resolution with Hold.
func (s *state) holds(a Address, now time.Time) bool {
	k := s.keys[a]
	if k == nil || k.asked || !now.Before(k.hold) {
		return false
	}
	k.asked = true
	return true
}

// held is for how long a row of the key still has to wait; zero or less: no longer.
func (s *state) held(a Address, now time.Time) time.Duration {
	if k := s.keys[a]; k != nil {
		return k.hold.Sub(now)
	}
	return 0
}
