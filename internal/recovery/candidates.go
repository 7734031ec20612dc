package recovery

import (
	"bytes"
	"slices"
	"sort"
)

// fingerprint is a snapshot.Fingerprint.
type fingerprint [16]byte

// candidates is a multiset of messages, each of which may be found in a topic. It takes 17 bytes for a message, and a quarter more while it grows.
type candidates struct {
	buckets [256]bucket // by the first byte
	total   int
}

type bucket struct {
	prints []fingerprint // sorted once sealed
	found  []bool        // by index of prints
}

func (c *candidates) add(f fingerprint) {
	b := &c.buckets[f[0]]
	b.prints = append(b.prints, f)
	c.total++
}

// seal ends the adding.
func (c *candidates) seal() {
	for i := range c.buckets {
		b := &c.buckets[i]
		slices.SortFunc(b.prints, func(x, y fingerprint) int { return bytes.Compare(x[:], y[:]) })
		b.found = make([]bool, len(b.prints))
	}
}

// missing is how many were not found.
func (c *candidates) missing() (n int) {
	for i := range c.buckets {
		for _, found := range c.buckets[i].found {
			if !found {
				n++
			}
		}
	}
	return n
}

// missingOf is how many of the messages with a fingerprint were not found.
func (c *candidates) missingOf(f fingerprint) (n int) {
	b := &c.buckets[f[0]]
	i := sort.Search(len(b.prints), func(i int) bool { return bytes.Compare(b.prints[i][:], f[:]) >= 0 })
	for ; i < len(b.prints) && b.prints[i] == f; i++ {
		if !b.found[i] {
			n++
		}
	}
	return n
}

// saw marks one message as found.
func (c *candidates) saw(f fingerprint) { c.turn(f, false) }

// take tells whether a message was found, and takes the finding away: of equal ones as many are found as were seen.
func (c *candidates) take(f fingerprint) bool { return c.turn(f, true) }

// turn finds a mark that is as given among those of equal messages, and turns it.
func (c *candidates) turn(f fingerprint, mark bool) bool {
	b := &c.buckets[f[0]]
	i := sort.Search(len(b.prints), func(i int) bool { return bytes.Compare(b.prints[i][:], f[:]) >= 0 })
	for ; i < len(b.prints) && b.prints[i] == f; i++ {
		if b.found[i] == mark {
			b.found[i] = !mark
			return true
		}
	}
	return false
}
