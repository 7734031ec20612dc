package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

// world is everything outside of the relay: what the server has written and remembers, and what readers of the topics see.
type world struct {
	wal       []walEntry
	confirmed pglogrepl.LSN
	saved     pglogrepl.LSN // confirmed as the server has it on disk
	seen      map[int]bool  // rows, by number
	rows      int
	hold      bool // rows are seen only when the sink commits, as with exactly_once
}

// walEntry is a transaction, or with no rows an idle position.
type walEntry struct {
	end  pglogrepl.LSN
	rows []int
}

// incarnation is one session: a window, and how far it has read.
type incarnation struct {
	w       *window
	at      int // entry of the WAL that is read next
	row     int // of it
	open    bool
	number  uint64 // of the open transaction
	pending []flying
	written map[int]bool // by the broker, seen or not
	read    pglogrepl.LSN
}

type flying struct {
	number uint64
	row    int
}

func (x *world) connect() *incarnation {
	at := slices.IndexFunc(x.wal, func(e walEntry) bool { return e.end > x.confirmed })
	if at < 0 {
		at = len(x.wal)
	}
	return &incarnation{w: newWindow(x.confirmed, upTo(5, 50)), at: at, written: map[int]bool{}, read: x.confirmed}
}

// step reads one thing from the server, if there is one and the window has room.
func (x *world) step(s *incarnation) bool {
	if s.at == len(x.wal) {
		return false
	}
	e := x.wal[s.at]
	switch {
	case len(e.rows) == 0:
		s.w.idle(e.end)
		s.at, s.read = s.at+1, e.end
	case !s.open:
		s.number, s.open, s.row = s.w.begin(anyTime), true, 0
	case s.row < len(e.rows):
		if !s.w.tryAdd(10) {
			return false
		}
		s.pending = append(s.pending, flying{s.number, e.rows[s.row]})
		s.row++
	default:
		s.w.commit(e.end, x.hold)
		s.open, s.at, s.read = false, s.at+1, e.end
	}
	return true
}

// acknowledge has the broker write one of the messages in flight.
func (x *world) acknowledge(s *incarnation, i int) {
	h := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	s.written[h.row] = true
	if !x.hold {
		x.seen[h.row] = true
	}
	s.w.done(h.number, 10, 0)
}

// commitSink shows readers a leading part of what is written in whole transactions.
func (x *world) commitSink(s *incarnation, most int) bool {
	var end pglogrepl.LSN
	for _, e := range x.wal[:s.at] {
		if e.end > s.w.ackedLSN() {
			if most--; most < 0 || slices.ContainsFunc(e.rows, func(r int) bool { return !s.written[r] }) {
				break
			}
		}
		for _, r := range e.rows {
			x.seen[r] = x.seen[r] || s.written[r]
		}
		end = e.end
	}
	if end != 0 {
		s.w.visible(end, func(time.Time) {})
	}
	return end != 0
}

// TestPositions_NeverPassARowThatNobodySees goes through sessions that end at any point, with statuses that were sent or not, with a server that
// forgets what it had not saved, and with sinks that show what they write at once or in transactions. At no time stands the slot behind a
// row that readers do not see; and once nothing fails any more, they see all.
func TestPositions_NeverPassARowThatNobodySees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := pglogrepl.LSN(rapid.IntRange(1, 50).Draw(t, "start"))
		x := &world{confirmed: start, saved: start, seen: map[int]bool{}, hold: rapid.Bool().Draw(t, "hold")}
		s := x.connect()
		end := start
		write := func(rows int, length int) {
			end += pglogrepl.LSN(length)
			e := walEntry{end: end}
			for range rows {
				x.rows++
				e.rows = append(e.rows, x.rows)
			}
			x.wal = append(x.wal, e)
		}
		check := func(t *rapid.T, what string, lsn pglogrepl.LSN) {
			for _, e := range x.wal {
				if e.end > lsn {
					break
				}
				for _, r := range e.rows {
					if !x.seen[r] {
						t.Fatalf("%s is %s, and row %d of the transaction that ends at %s was not delivered", what, lsn, r, e.end)
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				write(rapid.IntRange(0, 4).Draw(t, "rows"), rapid.IntRange(1, 20).Draw(t, "length"))
			},
			"read": func(*rapid.T) { x.step(s) },
			"old keepalive": func(t *rapid.T) {
				if !s.open { // one of below what was read; replication hands on none inside of a transaction
					s.w.idle(pglogrepl.LSN(rapid.IntRange(1, int(s.read)).Draw(t, "idle")))
				}
			},
			"acknowledge": func(t *rapid.T) {
				if n := len(s.pending); n > 0 {
					x.acknowledge(s, rapid.IntRange(0, n-1).Draw(t, "message"))
				}
			},
			"sink commits": func(t *rapid.T) {
				if x.hold {
					x.commitSink(s, rapid.IntRange(0, 5).Draw(t, "transactions"))
				}
			},
			"status":     func(*rapid.T) { x.confirmed = max(x.confirmed, s.w.ackedLSN()) },
			"checkpoint": func(*rapid.T) { x.saved = x.confirmed },
			"session ends": func(t *rapid.T) {
				for _, h := range s.pending { // the broker may have them all the same
					if !x.hold && rapid.Bool().Draw(t, "was written") {
						x.seen[h.row] = true
					}
				}
				s = x.connect()
			},
			"server is killed": func(*rapid.T) {
				x.confirmed = x.saved
				s = x.connect()
			},
			"": func(t *rapid.T) {
				if acked := s.w.ackedLSN(); acked > s.read {
					t.Fatalf("acked is %s, read was %s", acked, s.read)
				}
				check(t, "acked", s.w.ackedLSN())
				check(t, "confirmed", x.confirmed)
			},
		})
		left := 10 * (len(x.wal) + x.rows + 10)
		for x.step(s) || len(s.pending) > 0 || x.hold && s.w.ackedLSN() < end && x.commitSink(s, len(x.wal)) {
			if len(s.pending) > 0 {
				x.acknowledge(s, 0)
			}
			if left--; left == 0 {
				t.Fatalf("stuck at %s of %s, read were %d of %d transactions", s.w.ackedLSN(), end, s.at, len(x.wal))
			}
		}
		if acked := s.w.ackedLSN(); acked != max(start, end) {
			t.Fatalf("all is delivered up to %s, and acked is %s", end, acked)
		}
		check(t, "acked", end)
	})
}
