package deadletter

import (
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

// Store reads and writes the dead-letter topic. Its methods belong to one goroutine, but for
// Close.
type Store interface {
	// Read hands over the records from where the last Read ended up to the end of the topic as it
	// is now, those of transactions once they are committed. If there are none it waits for some
	// as long as wait. Topic, Partition, Key, Value, Headers and Timestamp are set.
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
	// Address finds out where a row belongs that could not be routed, as far as that is possible.
	// May be nil.
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

	parked atomic.Int64 // keys; so that a row costs nothing while there are none
	kept   atomic.Int64 // LSN of the newest letter that may be met again; 0: none

	stop  context.CancelFunc
	ended chan struct{} // closed when follow has returned

	mu    sync.Mutex // guards what follows
	state *state
	moved chan struct{} // closed and replaced with every resolution
}

var _ Handler = (*Tracker)(nil)

// Open reads the topic to its end. Then it follows it, until Close. The errors are those of the
// Store, which it closes in any case.
func Open(ctx context.Context, o Options) (*Tracker, error) {
	t := &Tracker{
		opts: o, writer: writer{topic: o.Topic, source: o.Source.Header(), limit: o.Store.Limit(),
			now: time.Now},
		state: newState(o.Source.Header(), o.Confirmed), moved: make(chan struct{}),
		ended: make(chan struct{}),
	}
	began := time.Now()
	n := 0
	if err := o.Store.Read(ctx, 0, func(m *sink.Message,
		offset int64) {
		n++
		t.take(m, offset)
	}); err != nil {
		o.Store.Close()
		return nil, fmt.Errorf("read the dead letters in topic %q: %w", o.Topic, err)
	}
	t.count()
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

// count updates what is read without the lock. The caller has the lock, or is alone.
func (t *Tracker) count() {
	t.parked.Store(int64(len(t.state.keys)))
	if t.state.newest.lsn > 0 {
		t.kept.Store(int64(t.state.newest.lsn)) //nolint:gosec // an LSN is a byte position
	}
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
			t.count()
		})
		if len(released) > 0 {
			// only a redrive waits for it, and not for ever
			if appendErr := t.opts.Store.Append(ctx, released); appendErr != nil &&
				ctx.Err() == nil {
				t.opts.Log.Warn().Err(appendErr).
					Msg("unparked record not written; rows of these keys are published " +
						"nevertheless")
			}
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		t.opts.Log.Warn().Err(err).Str("topic", t.opts.Topic).
			Msg("dead letters not followed; parked keys stay parked until that works")
		pause := time.NewTimer(followPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
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

// Letter implements Desk.
func (t *Tracker) DeadLetter(p Poison) (*sink.Message, error) {
	r := newRow(t.writer.source, p.Event, p.Message)
	if refused := new(router.RowError); p.Message == nil && errors.As(p.Err, &refused) &&
		refused.EventID != "" && len(refused.EventID) <= maxKeyColumn {
		// by the column that the router takes, and not by the first of the primary key
		r.origin.EventID = refused.EventID
	}
	if p.Message == nil && t.opts.Address != nil {
		if topic, key, ok := t.opts.Address(p.Event); ok {
			r.at, r.hasKey = Address{topic, string(key)}, key != nil
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.isKept(r.id, r.position) {
		return nil, ErrKept
	}
	known := r.hasKey && r.at.Topic != ""
	if p.Policy == DeadLetterKey && !known {
		t.opts.Log.Warn().Str("cause", string(p.Cause)).Stringer("position", r.position).
			Msg("key of a dead letter is not known, so it is not parked: later rows of it are " +
				"published")
	}
	return t.write(r, p, known && (p.Policy == DeadLetterKey || t.state.keys[r.at] != nil))
}

// write makes the record and notes it. The caller has the lock.
func (t *Tracker) write(r row, p Poison, parks bool) (*sink.Message, error) {
	m, err := t.writer.letter(r, p, parks)
	if err != nil {
		return nil, err
	}
	t.state.letter(&Letter{ID: r.id, Topic: r.at.Topic, Key: []byte(r.at.Key),
		Source: t.writer.source, Parks: parks, position: r.position})
	t.count()
	return m, nil
}

// Follow implements Desk.
func (t *Tracker) Follow(ev *replication.Event, m *sink.Message) (*sink.Message, error) {
	if t.parked.Load() == 0 &&
		int64(m.Origin.LSN) > t.kept.Load() { //nolint:gosec // an LSN is a byte position
		return nil, nil
	}
	r := newRow(t.writer.source, ev, m)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state.isKept(r.id, r.position):
		return nil, ErrKept
	case !r.hasKey || !t.state.follows(r.at, r.position):
		return nil, nil
	case t.state.holds(r.at, t.writer.now()):
		return nil, ErrHold
	}
	return t.write(r, Poison{Cause: Parked, Reason: string(Parked)}, true)
}

// Wait implements Desk.
func (t *Tracker) Wait(ctx context.Context, m *sink.Message) error {
	at := Address{m.Topic, string(m.Key)}
	for {
		t.mu.Lock()
		left, moved := t.state.held(at, t.writer.now()), t.moved
		t.mu.Unlock()
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// Close ends the goroutine and closes the Store.
func (t *Tracker) Close() {
	t.stop()
	<-t.ended
	t.opts.Store.Close()
	t.opts.Metrics.ParkedKeys.Clear()
}
