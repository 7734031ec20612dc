package audit

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/sink"
)

// entry is one message of either side.
type entry struct {
	m        sink.Message
	id       string // of the event; empty: unknown
	ours     bool
	late     bool // arrived after Close
	offset   int64
	sequence uint64 // of arrival, over both sides
	at       time.Time
	waiting  bool
	size     int64
}

// identity is topic, key and id; without an id, topic, key and value.
func (e *entry) identity() string {
	if e.id == "" {
		return "value" + e.topicAndKey() + string(e.m.Value)
	}
	return "event" + e.topicAndKey() + e.id
}

func (e *entry) idAlone() string { return "id" + e.id }

func (e *entry) topicAndKey() string {
	length := "null"
	if e.m.Key != nil {
		length = strconv.Itoa(len(e.m.Key))
	}
	return " " + e.m.Topic + " " + length + " " + string(e.m.Key) + " "
}

// waiting has the unmatched messages of one side, in order of arrival.
type waiting struct {
	queue []*entry            // may have entries that are not waiting
	index map[string][]*entry // by indexKeys, in order of arrival
	count int
	bytes int64
}

func newWaiting() waiting { return waiting{index: map[string][]*entry{}} }

// entryOverhead is about the memory of an entry beside its message, in bytes.
const entryOverhead = 500

func (w *waiting) add(e *entry) {
	e.m, e.id = e.m.Clone(), strings.Clone(e.id) // does not retain the buffers of the reader
	e.waiting, e.size = true, int64(e.m.Size())+entryOverhead
	w.queue = append(w.queue, e)
	for _, key := range e.indexKeys() {
		w.index[key] = append(w.index[key], e)
	}
	w.count++
	w.bytes += e.size
}

func (e *entry) indexKeys() []string {
	keys := []string{e.identity(), e.topicAndKey()}
	if e.id != "" {
		keys = append(keys, e.idAlone())
	}
	return keys
}

// remove does nothing for an entry that is not waiting.
func (w *waiting) remove(e *entry) {
	if !e.waiting {
		return
	}
	e.waiting = false
	for _, key := range e.indexKeys() {
		w.index[key] = slices.DeleteFunc(w.index[key], func(o *entry) bool { return o == e })
		if len(w.index[key]) == 0 {
			delete(w.index, key)
		}
	}
	w.count--
	w.bytes -= e.size
	if len(w.queue) > 2*w.count+1024 {
		w.queue = slices.DeleteFunc(w.queue, func(o *entry) bool { return !o.waiting })
	}
}

func (w *waiting) oldest() *entry {
	for len(w.queue) > 0 {
		if w.queue[0].waiting {
			return w.queue[0]
		}
		w.queue[0] = nil
		w.queue = w.queue[1:]
	}
	return nil
}

func (w *waiting) contains(matches func(*entry) bool) bool {
	return slices.ContainsFunc(w.queue, func(e *entry) bool { return e.waiting && matches(e) })
}

func (w *waiting) first(key string) *entry {
	return w.find(key, func(*entry) bool { return true })
}

func (w *waiting) find(key string, matches func(*entry) bool) *entry {
	for _, e := range w.index[key] {
		if matches(e) {
			return e
		}
	}
	return nil
}

// recent keeps the newest values by the hash of their keys: at least limit, at most twice as many.
type recent[V any] struct {
	seed          maphash.Seed
	limit         int
	current, past map[uint64]V
}

func newRecent[V any](limit int) recent[V] {
	return recent[V]{seed: maphash.MakeSeed(), limit: limit, current: map[uint64]V{}}
}

func (r *recent[V]) put(key string, v V) {
	if len(r.current) >= r.limit {
		r.current, r.past = map[uint64]V{}, r.current
	}
	r.current[maphash.String(r.seed, key)] = v
}

func (r *recent[V]) get(key string) (V, bool) {
	hash := maphash.String(r.seed, key)
	v, ok := r.current[hash]
	if !ok {
		v, ok = r.past[hash]
	}
	return v, ok
}
