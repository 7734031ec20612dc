package monitor

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// standstills has since when positions have not moved, by name. A name is removed after a round in
// which it was not requested.
type standstills struct {
	before, now map[string]standstill
}

// standstill is where and when a position was when it was first observed there.
type standstill struct {
	at            time.Time
	position, wal pglogrepl.LSN
}

func (s *standstills) round() { s.before, s.now = s.now, map[string]standstill{} }

// still returns for how long a position has not moved while WAL was written, as readings.still
// does. wal is the end of the WAL at the time at.
func (s *standstills) still(name string, position, wal pglogrepl.LSN, at time.Time) Seconds {
	first, known := s.before[name]
	if !known || first.position != position || wal < first.wal {
		first = standstill{at: at, position: position, wal: wal}
	}
	s.now[name] = first
	if position == 0 || wal < first.wal+stillNoise || wal < position+stillNoise {
		return 0
	}
	return Seconds(at.Sub(first.at).Seconds())
}
