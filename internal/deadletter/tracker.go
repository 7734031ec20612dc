package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Store reads and writes the dead-letter topic. Its methods, but Close, belong to one goroutine.
type Store interface {
	// Read hands over the records from where the last Read ended up to the end of the topic, those
	// of transactions once they are committed. If there are none it waits for some, up to wait.
	// Topic, Partition, Key, Value, Headers and Timestamp are set.
	Read(ctx context.Context, wait time.Duration, each func(m *sink.Message, offset int64)) error
	// Get reads one record again; nil if it is gone.
	Get(ctx context.Context, partition int32, offset int64) (*sink.Message, error)
	// Append writes messages, all or none, and returns when they are durable.
	Append(ctx context.Context, ms []*sink.Message) error
	// Limit is the largest record that the topic takes, in bytes.
	Limit() int
	Close()
}

// Options say what a Tracker works with.
type Options struct {
	Topic     string
	Store     Store // closed by the Tracker
	Source    sink.Source
	Confirmed pglogrepl.LSN // where the session begins
	// Address finds where a row belongs that could not be routed, if possible. May be nil.
	Address func(ev *replication.Event) (topic string, key []byte, ok bool)
	Metrics *metrics.Set
	Log     zerolog.Logger
}

const (
	// followWait is how long one question for new records waits. It does not delay them.
	followWait = 5 * time.Second
	// followPause is between two questions when the first has failed.
	followPause = time.Second
)

// Tracker is the Handler of a session: it follows the dead-letter topic.
type Tracker struct {
	opts   Options
	writer writer

	// Of state, so that a row costs no lock while no key is parked.
	parked atomic.Int64  // keys
	kept   atomic.Uint64 // LSN of the newest letter whose row may be read again; 0: none

	stop  context.CancelFunc
	ended chan struct{} // closed when follow has returned

	mu    sync.Mutex // guards what follows
	state *state
	moved chan struct{} // closed and replaced with every resolution
}

var _ Handler = (*Tracker)(nil)

// Open reads the topic to its end, and follows it until Close. It closes the Store on an error.
func Open(ctx context.Context, o Options) (*Tracker, error) {
	t := &Tracker{
		opts: o,
		writer: writer{topic: o.Topic, source: o.Source.Header(), limit: o.Store.Limit(),
			now: time.Now},
		state: newState(o.Source.Header(), o.Confirmed), moved: make(chan struct{}),
		ended: make(chan struct{}),
	}
	began, n := time.Now(), 0
	err := o.Store.Read(ctx, 0, func(m *sink.Message, offset int64) {
		n++
		t.take(m, offset)
	})
	if err != nil {
		o.Store.Close()
		return nil, fmt.Errorf("read the dead letters in topic %q: %w", o.Topic, err)
	}
	t.countLocked()
	t.state.begun()
	if parked := t.parked.Load(); parked > 0 {
		o.Log.Warn().Int64("parked_keys", parked).Int("letters", len(t.state.open)).
			Msg("keys are parked: their rows go to the dead-letter topic until it is redriven")
	}
	o.Log.Debug().Int("records", n).Float64("duration", time.Since(began).Seconds()).
		Msg("dead letters read")
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	go t.follow(following) // ends with Close, which waits
	return t, nil
}

// take applies a record that was read.
func (t *Tracker) take(m *sink.Message, offset int64) (unparked []Address) {
	e, err := parse(m, offset)
	// not the relay's: to stop for it would let every writer of the topic stop the relay
	if err != nil {
		t.opts.Log.Error().Err(err).Str("topic", t.opts.Topic).
			Msg("record in the dead-letter topic cannot be read; left out")
		return nil
	}
	switch {
	case e.letter != nil:
		t.state.letter(e.letter)
	case e.resolution != nil:
		unparked = t.state.resolution(e.resolution, time.Now())
		close(t.moved)
		t.moved = make(chan struct{})
	}
	return unparked
}

// countLocked updates what is read without the lock.
func (t *Tracker) countLocked() {
	t.parked.Store(int64(len(t.state.keys)))
	t.kept.Store(uint64(t.state.newest.lsn))
	t.opts.Metrics.ParkedKeys.Set(float64(len(t.state.keys)))
}

// follow reads what others write, and writes which keys are no longer parked.
func (t *Tracker) follow(ctx context.Context) {
	defer close(t.ended)
	for ctx.Err() == nil {
		var released []*sink.Message
		err := t.opts.Store.Read(ctx, followWait, func(m *sink.Message, offset int64) {
			t.mu.Lock()
			defer t.mu.Unlock()
			for _, a := range t.take(m, offset) {
				released = append(released, t.unparked(a))
			}
			t.countLocked()
		})
		if len(released) > 0 {
			// only a redrive waits for it, and not for ever
			if err := t.opts.Store.Append(ctx, released); err != nil && ctx.Err() == nil {
				t.opts.Log.Warn().Err(err).Msg("unparked record not written; rows of these " +
					"keys are published nevertheless")
			}
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		t.opts.Log.Warn().Err(err).Str("topic", t.opts.Topic).
			Msg("dead letters not followed; parked keys stay parked until that works")
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
		}
	}
}

func (t *Tracker) unparked(a Address) *sink.Message {
	t.opts.Log.Info().Str("topic", a.Topic).Msg("key is no longer parked")
	value, err := json.Marshal(Unparked{Topic: a.Topic, Key: []byte(a.Key), At: time.Now().UTC()})
	if err != nil {
		panic(err) // there is nothing in it that JSON lacks
	}
	return &sink.Message{
		Topic: t.opts.Topic, Partition: sink.ByKey, Key: []byte(a.Key), Value: value,
		Headers: []sink.Header{{Key: HeaderForm, Value: []byte(FormUnparked)}},
	}
}

// DeadLetter implements Handler.
func (t *Tracker) DeadLetter(p Poison) (*sink.Message, error) {
	r := newRow(t.writer.source, p.Event, p.Message)
	if p.Message == nil {
		// The id by the column that the router takes, not by the first of the primary key.
		if refused, ok := errors.AsType[*router.RowError](p.Err); ok && refused.EventID != "" &&
			len(refused.EventID) <= maxKeyColumn {
			r.origin.EventID = refused.EventID
		}
		if t.opts.Address != nil {
			if topic, key, ok := t.opts.Address(p.Event); ok {
				r.Topic, r.Key = topic, bytes.Clone(key)
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.isKept(r.ID, r.position) {
		return nil, ErrKept
	}
	known := r.Key != nil && r.Topic != ""
	if p.Policy == DeadLetterKey && !known {
		t.opts.Log.Warn().Str("cause", string(p.Cause)).Stringer("position", r.position).
			Msg("key of a dead letter is not known, so it is not parked: later rows of it are " +
				"published")
	}
	return t.writeLocked(r, p,
		known && (p.Policy == DeadLetterKey || t.state.keys[r.Address()] != nil))
}

// writeLocked makes the record and applies it.
func (t *Tracker) writeLocked(r *row, p Poison, parks bool) (*sink.Message, error) {
	m, err := t.writer.letter(r, p, parks)
	if err != nil {
		return nil, err
	}
	t.state.letter(&r.Letter)
	t.countLocked()
	return m, nil
}

// Follow implements Handler.
func (t *Tracker) Follow(ev *replication.Event, m *sink.Message) (*sink.Message, error) {
	if t.parked.Load() == 0 && m.Origin.LSN > pglogrepl.LSN(t.kept.Load()) {
		return nil, nil
	}
	r := newRow(t.writer.source, ev, m)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state.isKept(r.ID, r.position):
		return nil, ErrKept
	case r.Key == nil || !t.state.follows(r.Address(), r.position):
		return nil, nil
	case t.state.holds(r.Address(), t.writer.now()):
		return nil, ErrHold
	}
	return t.writeLocked(r, Poison{Cause: Parked, Reason: string(Parked)}, true)
}

// Wait implements Handler.
func (t *Tracker) Wait(ctx context.Context, m *sink.Message) error {
	at := Address{m.Topic, string(m.Key)}
	for {
		t.mu.Lock()
		left, moved := t.state.held(at, t.writer.now()), t.moved
		t.mu.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-moved:
		case <-time.After(left):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the goroutine and closes the Store.
func (t *Tracker) Close() {
	t.stop()
	<-t.ended
	t.opts.Store.Close()
	t.opts.Metrics.ParkedKeys.Clear()
}
