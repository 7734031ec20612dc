package backfill

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"sort"
	"strings"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// digest is a fingerprint of a message.
type digest [16]byte

// fingerprint returns the digest of topic, key, value and headers, without those of the session
// and without the time of a CloudEvent, which is that of the reading for a row without one.
// It is the same for a message and for its record that is read back.
func fingerprint(m *sink.Message) digest {
	h := sha256.New()
	write(h, []byte(m.Topic))
	write(h, m.Key)
	write(h, router.WithoutTime(m.Value))
	for i := range m.Headers {
		if isSessionHeader(m.Headers[i].Key) {
			continue
		}
		write(h, []byte(m.Headers[i].Key))
		write(h, m.Headers[i].Value)
	}
	return digest(h.Sum(nil)[:16])
}

// isSessionHeader reports whether a header is of the process or session that published the row, or
// of the trace, which has another span at each reading.
func isSessionHeader(header string) bool {
	return header == router.HeaderLSN || header == router.HeaderIndex ||
		header == sink.HeaderSource || header == sink.HeaderRedriven || header == router.HeaderTime ||
		header == router.HeaderTraceParent || header == router.HeaderTraceState ||
		strings.HasPrefix(header, "__debezium.context.")
}

func write(h hash.Hash, b []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(b)))
	h.Write(length[:])
	h.Write(b)
}

// fingerprints is a multiset of digests of messages, each of which can be marked. It takes 17
// bytes for a message, and a quarter more while it grows.
type fingerprints struct {
	buckets [256]bucket // by the digest's first byte
	total   int
	marked  int
}

type bucket struct {
	digests []digest // sorted by seal
	marks   []bool   // of digests
}

func (f *fingerprints) add(d digest) {
	b := &f.buckets[d[0]]
	b.digests = append(b.digests, d)
	f.total++
}

// seal sorts the digests. It is called after the last add.
func (f *fingerprints) seal() {
	for i := range f.buckets {
		b := &f.buckets[i]
		slices.SortFunc(b.digests, func(x, y digest) int { return bytes.Compare(x[:], y[:]) })
		b.marks = make([]bool, len(b.digests))
	}
}

// unmarked returns how many messages have no mark; of nil it is zero.
func (f *fingerprints) unmarked() int {
	if f == nil {
		return 0
	}
	return f.total - f.marked
}

// unmarkedOf returns how many of the messages with a digest have no mark.
func (f *fingerprints) unmarkedOf(d digest) (n int) {
	b := &f.buckets[d[0]]
	for i := b.first(d); i < len(b.digests) && b.digests[i] == d; i++ {
		if !b.marks[i] {
			n++
		}
	}
	return n
}

// mark marks one of the messages with a digest, and reports whether there was an unmarked one.
func (f *fingerprints) mark(d digest) bool {
	if !f.flip(d, false) {
		return false
	}
	f.marked++
	return true
}

// unmark removes the mark of one of the messages with a digest, and reports whether there was one.
func (f *fingerprints) unmark(d digest) bool {
	if !f.flip(d, true) {
		return false
	}
	f.marked--
	return true
}

// flip finds a message with a digest whose mark is as given, and flips the mark.
func (f *fingerprints) flip(d digest, mark bool) bool {
	b := &f.buckets[d[0]]
	for i := b.first(d); i < len(b.digests) && b.digests[i] == d; i++ {
		if b.marks[i] == mark {
			b.marks[i] = !mark
			return true
		}
	}
	return false
}

func (b *bucket) first(d digest) int {
	return sort.Search(len(b.digests),
		func(i int) bool { return bytes.Compare(b.digests[i][:], d[:]) >= 0 })
}
