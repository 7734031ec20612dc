package audit

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/sink"
)

// entry is one message that waits for that of the other side.
type entry struct {
	m        sink.Message
	id       string // of the event; empty: not known
	ours     bool
	late     bool // arrived after the end of the comparison
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

// own copies the message, so that a waiting one does not keep alive the buffers it was read into.
func (e *entry) own() {
	e.m.Key, e.m.Value = bytes.Clone(e.m.Key), bytes.Clone(e.m.Value)
	e.m.Origin.EventID = strings.Clone(e.m.Origin.EventID)
	e.id = strings.Clone(e.id)
	e.m.Origin.Memory = nil
	e.m.Headers = slices.Clone(e.m.Headers)
	for i := range e.m.Headers {
		e.m.Headers[i].Value = bytes.Clone(e.m.Headers[i].Value)
	}
}

// waiting has the messages of one side that have not been matched, in order of arrival.
type waiting struct {
	queue []*entry            // may have some that wait no longer, except at the front
	index map[string][]*entry // by each of names(), in order
	count int
	bytes int64
}

func newWaiting() waiting { return waiting{index: map[string][]*entry{}} }

// entryOverhead is about what an entry takes in memory beside its message.
const entryOverhead = 500

func (w *waiting) add(e *entry) {
	e.own()
	e.waiting, e.size = true, int64(e.m.Size())+entryOverhead
	w.queue = append(w.queue, e)
	for _, name := range e.names() {
		w.index[name] = append(w.index[name], e)
	}
	w.count++
	w.bytes += e.size
}

func (e *entry) names() []string {
	names := []string{e.identity(), e.topicAndKey()}
	if e.id != "" {
		names = append(names, e.idAlone())
	}
	return names
}

// remove does nothing for an entry that does not wait.
func (w *waiting) remove(e *entry) {
	if !e.waiting {
		return
	}
	e.waiting = false
	for _, name := range e.names() {
		w.index[name] = slices.DeleteFunc(w.index[name], func(o *entry) bool { return o == e })
		if len(w.index[name]) == 0 {
			delete(w.index, name)
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

func (w *waiting) contains(is func(*entry) bool) bool {
	return slices.ContainsFunc(w.queue, func(e *entry) bool { return e.waiting && is(e) })
}

func (w *waiting) first(name string) *entry {
	return w.find(name, func(*entry) bool { return true })
}

func (w *waiting) find(name string, is func(*entry) bool) *entry {
	for _, e := range w.index[name] {
		if is(e) {
			return e
		}
	}
	return nil
}

// recent keeps the newest of many values by the hash of their names: limit of them at least, and
// twice as many at most.
type recent[V any] struct {
	seed      maphash.Seed
	limit     int
	now, then map[uint64]V
}

func newRecent[V any](limit int) recent[V] {
	return recent[V]{seed: maphash.MakeSeed(), limit: limit, now: map[uint64]V{}}
}

func (r *recent[V]) put(name string, v V) {
	if len(r.now) >= r.limit {
		r.now, r.then = map[uint64]V{}, r.now
	}
	r.now[maphash.String(r.seed, name)] = v
}

func (r *recent[V]) get(name string) (V, bool) {
	hash := maphash.String(r.seed, name)
	v, ok := r.now[hash]
	if !ok {
		v, ok = r.then[hash]
	}
	return v, ok
}
