package producer

import "cmp"

// tailKeys is how many keys the tails of a sink hold together: 5 MiB, as a key takes up to 39
// bytes. Of a relay that was killed, at most relay.in_flight_messages rows are not there, in all
// topics.
const tailKeys = 1 << 17

// tails are those of a sink, and what they may hold together: of the goroutine of Publish.
type tails struct {
	topics map[string]*tail
	keys   int // in again of all of them, at most mostKeys
	limit  int // of keys; zero: tailKeys
}

func (a *tails) mostKeys() int { return cmp.Or(a.limit, tailKeys) }

// room is how many blocks the tail of a topic may hold from p on.
func (a *tails) room(p position, topic string) int {
	a.forgetBefore(p)
	room := tailRoom
	for other, t := range a.topics {
		if other != topic {
			room -= t.seen.blocks
		}
	}
	return max(room, tailLeast)
}

// put takes in what was just read of a topic; what was read of it before goes on in it.
func (a *tails) put(t *tail) {
	if a.topics == nil {
		a.topics = map[string]*tail{}
	}
	if before := a.topics[t.topic]; before != nil {
		t.follow(before)
	}
	a.topics[t.topic] = t
}

// takeKey has a tail hold one more key from p on, and reports whether it may. A tail that may not
// forgets, so each tail fails here once, and the search for what is behind p is rare.
func (a *tails) takeKey(p position) bool {
	if a.keys >= a.mostKeys() {
		a.forgetBefore(p)
	}
	if a.keys >= a.mostKeys() {
		return false
	}
	a.keys++
	return true
}

// forgetBefore has those forget that the session has passed and not asked since.
func (a *tails) forgetBefore(p position) {
	for _, t := range a.topics {
		if t.newest.before(p) {
			t.forget()
		}
	}
}
