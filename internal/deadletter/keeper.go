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

// Store reads and writes the dead-letter topic. Its methods belong to one goroutine, but for Close.
type Store interface {
	// Read hands over the records from where the last Read ended up to the end of the topic as it is now, those of transactions once they
	// are committed. If there are none it waits for some as long as wait. Topic, Partition, Key, Value, Headers and Timestamp are set.
	Read(ctx context.Context, wait time.Duration, each func(m *sink.Message, offset int64)) error
	// Get reads one record again; nil if it is gone.
	Get(ctx context.Context, partition int32, offset int64) (*sink.Message, error)
	// Append writes messages, all or none, and returns when they are durable.
	Append(ctx context.Context, ms []*sink.Message) error
	// Limit is the largest record that the topic takes, in bytes.
	Limit() int
	Close()
}

// Options say what a Keeper works with.
type Options struct {
	Topic     string
	Store     Store // closed by the Keeper
	Source    sink.Source
	Confirmed pglogrepl.LSN // where the session begins
	// Address finds out where a row belongs that could not be routed, as far as that is possible. May be nil.
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

// Keeper is the Desk of a session.
type Tracker struct {
	opts   Options
	writer writer

	mu     sync.Mutex
	state  *state
	parked atomic.Int64 // keys; so that a row costs nothing while there are none
	kept   atomic.Int64 // LSN of the newest letter that may be met again; 0: none

	moved chan struct{} // closed, and made anew, with every resolution; guarded by mu

	stop  context.CancelFunc
	ended chan struct{} // closed when follow has returned
}

var _ Handler = (*Tracker)(nil)

// Open reads the topic to its end. Then it follows it, until Close. The errors are those of the Store, which it closes in any case.
func Open(ctx context.Context, o Options) (*Tracker, error) {
	k := &Tracker{
		opts: o, writer: writer{topic: o.Topic, source: o.Source.Header(), limit: o.Store.Limit(), now: time.Now},
		state: newState(o.Source.Header(), o.Confirmed), moved: make(chan struct{}), ended: make(chan struct{}),
	}
	began := time.Now()
	n := 0
	if err := o.Store.Read(ctx, 0, func(m *sink.Message, offset int64) { n++; k.take(m, offset) }); err != nil {
		o.Store.Close()
		return nil, fmt.Errorf("read the dead letters in topic %q: %w", o.Topic, err)
	}
	k.count()
	k.state.begun()
	if parked := k.parked.Load(); parked > 0 {
		o.Log.Warn().Int64("parked_keys", parked).Int("letters", len(k.state.open)).Msg("keys are parked: their rows go to the dead-letter topic until it is redriven")
	}
	o.Log.Debug().Int("records", n).Float64("duration", time.Since(began).Seconds()).Msg("dead letters read")
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	go k.follow(following) // ends with Close, which waits
	return k, nil
}

// take applies a record that was read.
func (k *Tracker) take(m *sink.Message, offset int64) (unparked []Address) {
	e, err := parse(m, offset)
	if err != nil { // somebody else's: to stop for it would let anybody stop the relay who may write to the topic
		k.opts.Log.Error().Err(err).Str("topic", k.opts.Topic).Msg("record in the dead-letter topic cannot be read; left out")
		return nil
	}
	switch {
	case e.letter != nil:
		k.state.letter(e.letter)
	case e.resolution != nil:
		unparked = k.state.resolution(e.resolution, time.Now())
		close(k.moved)
		k.moved = make(chan struct{})
	}
	return unparked
}

// count brings what is read without the lock up to date. Who calls it has the lock, or is alone.
func (k *Tracker) count() {
	k.parked.Store(int64(len(k.state.keys)))
	if k.state.newest.lsn > 0 {
		k.kept.Store(int64(k.state.newest.lsn)) //nolint:gosec // an LSN is a byte position
	}
	k.opts.Metrics.ParkedKeys.Set(float64(len(k.state.keys)))
}

// follow reads what others write, and says what it has taken note of.
func (k *Tracker) follow(ctx context.Context) {
	defer close(k.ended)
	for ctx.Err() == nil {
		var say []*sink.Message
		err := k.opts.Store.Read(ctx, followWait, func(m *sink.Message, offset int64) {
			k.mu.Lock()
			defer k.mu.Unlock()
			for _, a := range k.take(m, offset) {
				say = append(say, k.unparked(a))
			}
			k.count()
		})
		if len(say) > 0 {
			if sayErr := k.opts.Store.Append(ctx, say); sayErr != nil && ctx.Err() == nil { // only a redrive waits for it, and not for ever
				k.opts.Log.Warn().Err(sayErr).Msg("not written that keys are no longer parked; they are not, all the same")
			}
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		k.opts.Log.Warn().Err(err).Str("topic", k.opts.Topic).Msg("dead letters not followed; parked keys stay parked until that works")
		pause := time.NewTimer(followPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

func (k *Tracker) unparked(a Address) *sink.Message {
	k.opts.Log.Info().Str("topic", a.Topic).Msg("key is no longer parked")
	value, err := json.Marshal(Unparked{Topic: a.Topic, Key: []byte(a.Key), At: time.Now().UTC()})
	if err != nil {
		panic(err) // there is nothing in it that JSON lacks
	}
	return &sink.Message{
		Topic: k.opts.Topic, Partition: sink.ByKey, Key: []byte(a.Key), Value: value,
		Headers: []sink.Header{{Key: HeaderForm, Value: []byte(FormUnparked)}},
	}
}

// Letter implements Desk.
func (k *Tracker) DeadLetter(p Poison) (*sink.Message, error) {
	r := newRow(k.writer.source, p.Event, p.Message)
	if refused := new(router.RowError); p.Message == nil && errors.As(p.Err, &refused) && refused.EventID != "" && len(refused.EventID) <= maxKeyColumn {
		r.origin.EventID = refused.EventID // by the column that the router takes, and not by the first of the primary key
	}
	if p.Message == nil && k.opts.Address != nil {
		if topic, key, ok := k.opts.Address(p.Event); ok {
			r.at, r.hasKey = Address{topic, string(key)}, key != nil
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state.isKept(r.id, r.position) {
		return nil, ErrKept
	}
	known := r.hasKey && r.at.Topic != ""
	if p.Policy == DeadLetterKey && !known {
		k.opts.Log.Warn().Str("cause", string(p.Cause)).Stringer("position", r.position).
			Msg("key of a dead letter is not known, so it is not parked: later rows of it are published")
	}
	return k.write(r, p, known && (p.Policy == DeadLetterKey || k.state.keys[r.at] != nil))
}

// write makes the record, and takes note of it. The caller has the lock.
func (k *Tracker) write(r row, p Poison, parks bool) (*sink.Message, error) {
	m, err := k.writer.letter(r, p, parks)
	if err != nil {
		return nil, err
	}
	k.state.letter(&Letter{ID: r.id, Topic: r.at.Topic, Key: []byte(r.at.Key), Source: k.writer.source, Parks: parks, position: r.position})
	k.count()
	return m, nil
}

// Follow implements Desk.
func (k *Tracker) Follow(ev *replication.Event, m *sink.Message) (*sink.Message, error) {
	if k.parked.Load() == 0 && int64(m.Origin.LSN) > k.kept.Load() { //nolint:gosec // an LSN is a byte position
		return nil, nil
	}
	r := newRow(k.writer.source, ev, m)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.state.isKept(r.id, r.position):
		return nil, ErrKept
	case !r.hasKey || !k.state.follows(r.at, r.position):
		return nil, nil
	case k.state.holds(r.at, k.writer.now()):
		return nil, ErrHold
	}
	return k.write(r, Poison{Cause: Parked, Reason: string(Parked)}, true)
}

// Wait implements Desk.
func (k *Tracker) Wait(ctx context.Context, m *sink.Message) error {
	at := Address{m.Topic, string(m.Key)}
	for {
		k.mu.Lock()
		left, moved := k.state.held(at, k.writer.now()), k.moved
		k.mu.Unlock()
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
func (k *Tracker) Close() {
	k.stop()
	<-k.ended
	k.opts.Store.Close()
	k.opts.Metrics.ParkedKeys.Clear()
}
