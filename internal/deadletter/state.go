package deadletter

import (
	"math"
	"time"

	"github.com/jackc/pglogrepl"
)

// holdFor bounds how long a row waits for the next resolution of its key. Each one with Hold
// starts it again.
const holdFor = time.Second

// state has the parked keys: of the records of the topic, read in any order of the partitions, and
// of dead letters about to be written. It is not safe for concurrent use.
type state struct {
	source    string
	confirmed pglogrepl.LSN // rows of earlier transactions are not read again

	keys     map[Address]*parkedKey
	open     map[ID]Address // dead letters that park, and that no resolution names
	resolved map[ID]bool    // their dead letters may be read later, and more than once
	kept     map[ID]bool    // of this source, from confirmed on, written before the session
	newest   position       // of kept
}

// loaded ends the first read: later dead letters are of this session, whose rows come only once.
func (s *state) loaded() { s.confirmed = math.MaxUint64 }

// parkedKey is a key with at least one open dead letter.
type parkedKey struct {
	// open has the positions of the rows; of another source zero, which is before every row.
	open      map[ID]position
	holdUntil time.Time // when a row of the key stops waiting for a resolution
	waited    bool      // a row has waited since the last resolution with Hold
}

func newState(source string, confirmed pglogrepl.LSN) *state {
	return &state{
		source: source, confirmed: confirmed,
		keys: map[Address]*parkedKey{}, open: map[ID]Address{}, resolved: map[ID]bool{},
		kept: map[ID]bool{},
	}
}

// addLetter applies a dead letter that was read, or is about to be written.
func (s *state) addLetter(l *Letter) {
	if l.Source == s.source && l.position.lsn >= s.confirmed {
		s.kept[l.ID] = true
		if s.newest.before(l.position) {
			s.newest = l.position
		}
	}
	if _, open := s.open[l.ID]; open || !l.Parks || s.resolved[l.ID] {
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

// resolve applies a resolution, and returns the keys that it unparks.
func (s *state) resolve(r *Resolution, now time.Time) (unparked []Address) {
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
			k.holdUntil, k.waited = now.Add(holdFor), false
		}
		if len(k.open) == 0 {
			delete(s.keys, address)
			unparked = append(unparked, address)
		}
	}
	return unparked
}

// isKept reports whether the topic has the dead letter of a row that is read again.
func (s *state) isKept(id ID, p position) bool {
	return !s.newest.before(p) && s.kept[id]
}

// follows reports whether a row is later than an open dead letter of its key.
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

// startWait reports whether a row of a parked key has to wait: once for each resolution with Hold.
func (s *state) startWait(a Address, now time.Time) bool {
	k := s.keys[a]
	if k == nil || k.waited || !now.Before(k.holdUntil) {
		return false
	}
	k.waited = true
	return true
}

// waitLeft returns how long a row of the key still has to wait; zero or less: no longer.
func (s *state) waitLeft(a Address, now time.Time) time.Duration {
	if k := s.keys[a]; k != nil {
		return k.holdUntil.Sub(now)
	}
	return 0
}
