package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strings"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// published is a multiset of messages that stand in the topics. The nil one is empty.
type published struct {
	count map[[16]byte]int
	left  int
}

func newPublished() *published { return &published{count: map[[16]byte]int{}} }

func (p *published) add(m *sink.Message) {
	p.count[Fingerprint(m)]++
	p.left++
}

// take tells whether a message is there, and takes it out.
func (p *published) take(m *sink.Message) bool {
	if p == nil || p.left == 0 {
		return false
	}
	f := Fingerprint(m)
	if p.count[f] == 0 {
		return false
	}
	if p.count[f]--; p.count[f] == 0 {
		delete(p.count, f)
	}
	p.left--
	return true
}

// Fingerprint is the same for a message and for what is read back of it: topic, key, value and headers, but for those that say who published it.
func Fingerprint(m *sink.Message) [16]byte {
	h := sha256.New()
	write(h, []byte(m.Topic))
	write(h, m.Key)
	write(h, m.Value)
	for i := range m.Headers {
		if ofTheRun(m.Headers[i].Key) {
			continue
		}
		write(h, []byte(m.Headers[i].Key))
		write(h, m.Headers[i].Value)
	}
	return [16]byte(h.Sum(nil)[:16])
}

// ofTheRun: the header belongs to the process or the session that published, and not to the row.
func ofTheRun(header string) bool {
	return header == router.HeaderLSN || header == router.HeaderIndex || header == sink.HeaderSource || header == sink.HeaderRedriven || strings.HasPrefix(header, "__debezium.context.")
}

func write(h hash.Hash, b []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(b)))
	h.Write(length[:])
	h.Write(b)
}
