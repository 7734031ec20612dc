// Package memory is a sink for tests: a broker in memory whose answers can be held back and made
// to fail.
//
//	session.go one opened sink
package memory

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/sink"
)

// Broker keeps what was delivered, over any number of sessions. Its zero value is not usable; see
// New. Safe for concurrent use.
type Broker struct {
	mu         sync.Mutex // guards what follows, and the queues of the sessions
	changed    *sync.Cond // anything below has changed
	partitions int32
	topics     map[string]bool // nil: all exist
	capacity   int             // messages a session takes before Publish blocks
	held       bool
	permits    int // messages that may be answered although held
	failNext   []error
	failOpen   []error
	untaken    func(*sink.Message) error
	refuse     func(*sink.Message) error
	messages   []sink.Message
	published  int // messages taken, over all sessions
	opened     int
}

// New returns an empty broker where every topic exists and has the given number of partitions, at
// least one.
func New(partitions int32) *Broker {
	b := &Broker{partitions: max(partitions, 1), capacity: 1 << 20}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// Topics makes these the only topics that exist.
func (b *Broker) Topics(names ...string) {
	defer b.change()()
	b.topics = map[string]bool{}
	for _, name := range names {
		b.topics[name] = true
	}
}

// Capacity sets how many messages a session takes before Publish blocks.
func (b *Broker) Capacity(n int) {
	defer b.change()()
	b.capacity = n
}

// Hold makes the broker take messages and not answer. Neither are they delivered until they are
// released.
func (b *Broker) Hold() {
	defer b.change()()
	b.held, b.permits = true, 0
}

// Release answers n of the held messages, in order, now or once they come. A negative n ends Hold.
func (b *Broker) Release(n int) {
	defer b.change()()
	if n < 0 {
		b.held, b.permits = false, 0
		return
	}
	b.permits += n
}

// FailNext makes the next message fail with err, and with it all that the session has or takes
// behind it. Several calls queue up, one session each.
func (b *Broker) FailNext(err error) {
	defer b.change()()
	b.failNext = append(b.failNext, err)
}

// FailOpen makes the next Open fail with err. Several calls queue up.
func (b *Broker) FailOpen(err error) {
	defer b.change()()
	b.failOpen = append(b.failOpen, err)
}

// Refuse makes Publish not take a message for which untaken returns an error, and fails, with all
// behind it, a taken message for which refuse does. Both may be nil.
func (b *Broker) Refuse(untaken, refuse func(*sink.Message) error) {
	defer b.change()()
	b.untaken, b.refuse = untaken, refuse
}

// Messages returns copies of what was delivered, in order; Partition is where to.
func (b *Broker) Messages() []sink.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.messages)
}

// Published is how many messages were taken so far, delivered or not.
func (b *Broker) Published() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published
}

// Sessions is how many times Open succeeded.
func (b *Broker) Sessions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// WaitFor returns when at least n messages are delivered, or with the error of ctx.
func (b *Broker) WaitFor(ctx context.Context, n int) error {
	return b.wait(ctx, "delivered", n, func() int { return len(b.messages) })
}

// WaitPublished returns when at least n messages were taken, delivered or not, or with the error
// of ctx.
func (b *Broker) WaitPublished(ctx context.Context, n int) error {
	return b.wait(ctx, "published", n, func() int { return b.published })
}

func (b *Broker) wait(ctx context.Context, what string, n int, count func() int) error {
	defer b.wakeWhenDone(ctx)()
	b.mu.Lock()
	defer b.mu.Unlock()
	for count() < n {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %d messages to be %s, %d are: %w", n, what, count(),
				context.Cause(ctx))
		}
		b.changed.Wait()
	}
	return nil
}

// Open makes a session. It is a sink.Open.
func (b *Broker) Open(ctx context.Context, done sink.Done) (sink.Sink, error) {
	defer b.change()()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := pop(&b.failOpen); err != nil {
		return nil, err
	}
	b.opened++
	s := &session{broker: b, done: done, finished: make(chan struct{})}
	go s.answer() // ended by Close, which waits for it
	return s, nil
}

func pop(errs *[]error) (first error) {
	if len(*errs) > 0 {
		first, *errs = (*errs)[0], (*errs)[1:]
	}
	return first
}

// change locks the broker; the function it returns unlocks it and wakes who waits for a change.
func (b *Broker) change() func() {
	b.mu.Lock()
	return func() {
		b.mu.Unlock()
		b.changed.Broadcast()
	}
}

func (b *Broker) wakeWhenDone(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() { b.change()() })
}

// storeLocked stores a copy.
func (b *Broker) storeLocked(m *sink.Message) {
	stored := m.Clone()
	if stored.Partition == sink.ByKey {
		hash := fnv.New32a()
		_, _ = hash.Write(m.Key)
		stored.Partition = int32(hash.Sum32() % uint32(b.partitions)) //nolint:gosec // below the partition count
	}
	if stored.Timestamp.IsZero() {
		stored.Timestamp = time.Now()
	}
	b.messages = append(b.messages, stored)
}
