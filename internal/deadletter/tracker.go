package deadletter

import (
	"bytes"
	"cmp"
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

// Store reads and writes the dead-letter topic. All methods but Close are for one goroutine.
type Store interface {
	// Read calls each for the records between the end of the last Read and that of the topic, for
	// those of a transaction once it is committed. Without records it waits for some, up to wait.
	// Of m, Topic, Partition, Key, Value, Headers and Timestamp are set.
	Read(ctx context.Context, wait time.Duration, each func(m *sink.Message, offset int64)) error
	// Get reads one record; nil if it was deleted.
	Get(ctx context.Context, partition int32, offset int64) (*sink.Message, error)
	// Append writes messages, all or none, and returns when they are durable.
	Append(ctx context.Context, ms []*sink.Message) error
	// Limit returns the largest size of a record of the topic, in bytes.
	Limit() int
	Close()
}

// Options configure a Tracker.
type Options struct {
	Topic     string
	Store     Store // closed by the Tracker
	Source    sink.Source
	Confirmed pglogrepl.LSN // where the session begins
	// Address returns topic and key of a row that could not be routed. A nil key is not known; an
	// error is of what Address needs, and not of the row. May be nil.
	Address func(ev *replication.Event) (topic string, key []byte, err error)
	Metrics *metrics.Set
	Log     zerolog.Logger
}

const (
	// pollWait is how long one read waits for new records. It returns with the first.
	pollWait = 5 * time.Second
	// pollPause is the pause after a read that failed.
	pollPause = time.Second
)

// Tracker is the Handler of a session. It polls the dead-letter topic.
type Tracker struct {
	opts   Options
	writer writer

	// Copies from state: while no key is parked, a row takes no lock.
	parked atomic.Int64  // keys
	kept   atomic.Uint64 // LSN of the newest dead letter whose row may be read again; 0: none

	stop  context.CancelFunc
	ended chan struct{} // closed when poll has returned

	mu       sync.Mutex // guards the rest
	state    *state
	resolved chan struct{} // closed and replaced at each resolution
}

var _ Handler = (*Tracker)(nil)

// Open reads the topic to its end, and polls it until Close. On an error it closes the Store.
func Open(ctx context.Context, o Options) (*Tracker, error) {
	t := &Tracker{
		opts: o,
		writer: writer{topic: o.Topic, source: o.Source.Header(), limit: o.Store.Limit(),
			now: time.Now},
		state: newState(o.Source.Header(), o.Confirmed), resolved: make(chan struct{}),
		ended: make(chan struct{}),
	}
	began, n := time.Now(), 0
	err := o.Store.Read(ctx, 0, func(m *sink.Message, offset int64) {
		n++
		t.apply(m, offset)
	})
	if err != nil {
		o.Store.Close()
		return nil, fmt.Errorf("read the dead letters in topic %q: %w", o.Topic, err)
	}
	t.countLocked()
	t.state.loaded()
	if parked := t.parked.Load(); parked > 0 {
		o.Log.Warn().Int64("parked_keys", parked).Int("letters", len(t.state.open)).
			Msg("keys are parked: their rows go to the dead-letter topic until they are redriven")
	}
	o.Log.Debug().Int("records", n).Float64("duration", time.Since(began).Seconds()).
		Msg("dead letters read")
	polling, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	go t.poll(polling) // Close ends it and waits for it
	return t, nil
}

// apply applies a record to the state, and returns the keys that it unparks.
func (t *Tracker) apply(m *sink.Message, offset int64) (unparked []Address) {
	e, err := parse(m, offset)
	if err != nil { // not fatal, or any writer of the topic could stop the relay
		t.opts.Log.Error().Err(err).Str("topic", t.opts.Topic).
			Msg("record in the dead-letter topic cannot be read; skipped")
		return nil
	}
	switch {
	case e.letter != nil:
		t.state.addLetter(e.letter)
	case e.resolution != nil:
		unparked = t.state.resolve(e.resolution, time.Now())
		close(t.resolved)
		t.resolved = make(chan struct{})
	}
	return unparked
}

// countLocked updates the copies from state and the metric.
func (t *Tracker) countLocked() {
	t.parked.Store(int64(len(t.state.keys)))
	t.kept.Store(uint64(t.state.newest.lsn))
	t.opts.Metrics.ParkedKeys.Set(float64(len(t.state.keys)))
}

// poll applies new records until ctx ends, and writes unparked for each key that they unpark.
func (t *Tracker) poll(ctx context.Context) {
	defer close(t.ended)
	failing := false
	for ctx.Err() == nil {
		var unparked []*sink.Message
		err := t.opts.Store.Read(ctx, pollWait, func(m *sink.Message, offset int64) {
			t.mu.Lock()
			defer t.mu.Unlock()
			for _, a := range t.apply(m, offset) {
				unparked = append(unparked, t.unparkedRecord(a))
			}
			t.countLocked()
		})
		if len(unparked) > 0 {
			// Only a redrive waits for it, up to Redriver.Wait.
			if err := t.opts.Store.Append(ctx, unparked); err != nil && ctx.Err() == nil {
				t.opts.Log.Warn().Err(err).Msg("unparked record not written; rows of these " +
					"keys are published nevertheless")
			}
		}
		if ctx.Err() != nil {
			return
		}
		was := failing
		if failing = err != nil; !failing {
			if was {
				t.opts.Log.Info().Str("topic", t.opts.Topic).Msg("dead-letter topic is read again")
			}
			continue
		}
		if !was { // once, however long it lasts
			t.opts.Log.Warn().Err(err).Str("topic", t.opts.Topic).
				Msg("dead-letter topic not read; parked keys stay parked until it can be read")
		}
		select {
		case <-time.After(pollPause):
		case <-ctx.Done():
		}
	}
}

func (t *Tracker) unparkedRecord(a Address) *sink.Message {
	t.opts.Log.Info().Str("topic", a.Topic).Msg("key is no longer parked")
	value, err := json.Marshal(Unparked{Topic: a.Topic, Key: []byte(a.Key), At: time.Now().UTC()})
	if err != nil {
		panic(err) // cannot happen: strings, bytes and a time
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
		// The router's id column, not the first column of the primary key.
		if refused, ok := errors.AsType[*router.RowError](cmp.Or(p.Unrouted, p.Err)); ok &&
			refused.EventID != "" && len(refused.EventID) <= maxKeyColumn {
			r.origin.EventID = refused.EventID
		}
		if t.opts.Address != nil {
			topic, key, err := t.opts.Address(p.Event)
			if err != nil { // with no key, later rows of it would be published before this one
				return nil, fmt.Errorf("find its key: %w", err)
			}
			if key != nil {
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
			Msg("key of a dead letter is unknown, so it is not parked: later rows of the key " +
				"are published")
	}
	return t.writeLocked(r, p,
		known && (p.Policy == DeadLetterKey || t.state.keys[r.Address()] != nil))
}

// writeLocked makes the record of a dead letter and applies it to the state.
func (t *Tracker) writeLocked(r *row, p Poison, parks bool) (*sink.Message, error) {
	m, err := t.writer.letter(r, p, parks)
	if err != nil {
		return nil, err
	}
	t.state.addLetter(&r.Letter)
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
	case t.state.startWait(r.Address(), t.writer.now()):
		return nil, ErrHold
	}
	return t.writeLocked(r, Poison{Cause: Parked, Reason: string(Parked)}, true)
}

// Wait implements Handler.
func (t *Tracker) Wait(ctx context.Context, m *sink.Message) error {
	at := Address{m.Topic, string(m.Key)}
	for {
		t.mu.Lock()
		left, resolved := t.state.waitLeft(at, t.writer.now()), t.resolved
		t.mu.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-resolved:
		case <-time.After(left):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close implements Handler. It closes the Store.
func (t *Tracker) Close() {
	t.stop()
	<-t.ended
	t.opts.Store.Close()
	t.opts.Metrics.ParkedKeys.Clear()
}
