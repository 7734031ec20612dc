package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Redriver publishes dead letters to their topics, or discards them, and writes resolutions.
type Redriver struct {
	Topic string // of the dead letters
	// Store has transactions: Append is all or nothing, and fails once another process resolves
	// dead letters. So what the Index has as open is open.
	Store Store
	// Route routes a row with the present configuration.
	Route func(ctx context.Context, ev *replication.Event) (*sink.Message, error)
	// Row reads the row of a claim from its table.
	Row func(ctx context.Context, l *Letter, d Document) (*replication.Event, error)
	Who string
	// Changed accepts rows of claims that were changed since their commit.
	Changed bool
	// Wait bounds how long to wait for the relay to write that a key is unparked.
	Wait time.Duration
	// Limiter limits the rate of messages. May be nil.
	Limiter *ratelimit.Limiter
	Log     zerolog.Logger
}

// Outcome is the result of a redrive.
type Outcome struct {
	Redriven []*Entry
	Failed   []Failure
	Unparked []Address // the relay publishes their rows again
	// Waiting are keys that have no open dead letter but are not unparked: is the relay running?
	Waiting []Address
}

// Failure is a dead letter that could not be redriven.
type Failure struct {
	Entry  *Entry
	Err    error
	Behind int // later dead letters of its key, which were not tried
}

const (
	// chunk and chunkBytes bound a transaction, in dead letters and in bytes.
	chunk      = 100
	chunkBytes = 4 << 20
	// maxRounds bounds how often new dead letters of a key are redriven.
	maxRounds = 50
	// updateWait bounds how long one Update waits for records of the relay.
	updateWait = 200 * time.Millisecond
)

// Redrive redrives those of the dead letters that are open. Of a parked key they must be the first
// ones; if they are all, it also redrives new ones until the relay unparks the key. Errors are
// those of the Store; dead letters that were published before one stay published.
func (r *Redriver) Redrive(ctx context.Context, x *Index, letters []*Entry) (Outcome, error) {
	run := redrive{Redriver: r, x: x, pacer: ratelimit.Pacer{Limiter: r.Limiter}}
	var single []*Entry
	var keys []Address
	for _, e := range letters {
		switch {
		case !e.Open():
		case !e.Parks:
			single = append(single, e)
		case !slices.Contains(keys, e.Address()):
			keys = append(keys, e.Address())
		}
	}
	_, err := run.publishAll(ctx, single, false, false)
	for i := 0; i < len(keys) && err == nil; i++ {
		err = run.redriveKey(ctx, keys[i], letters)
	}
	return run.out, err
}

// ErrNotFirst: an open dead letter of the same key precedes this one, and was not chosen.
var ErrNotFirst = errors.New("an earlier dead letter of its parked key is open")

// redrive is one call of Redrive.
type redrive struct {
	*Redriver
	x     *Index
	pacer ratelimit.Pacer
	out   Outcome
}

// redriveKey redrives the chosen dead letters of a parked key, up to the first that is not chosen.
func (r *redrive) redriveKey(ctx context.Context, key Address, chosen []*Entry) error {
	open := r.x.Parked()[key]
	n := 0
	for n < len(open) && slices.Contains(chosen, open[n]) {
		n++
	}
	for _, e := range open[n:] {
		if slices.Contains(chosen, e) {
			r.out.Failed = append(r.out.Failed, Failure{Entry: e, Err: ErrNotFirst})
		}
	}
	done, err := r.publishAll(ctx, open[:n], true, false)
	if err != nil || !done || n < len(open) || n == 0 {
		return err
	}
	return r.redriveNew(ctx, key)
}

// redriveNew redrives new dead letters of a key until the relay writes that it is unparked.
func (r *redrive) redriveNew(ctx context.Context, key Address) error {
	before := r.x.unparked[key]
	for round, deadline := 0, time.Now().Add(r.Wait); round < maxRounds; {
		if err := r.x.Update(ctx, min(updateWait, max(time.Until(deadline), 0))); err != nil {
			return err
		}
		open := r.x.Parked()[key]
		switch {
		case len(open) > 0:
			round++
			if done, err := r.publishAll(ctx, open, true, true); err != nil || !done {
				return err
			}
			deadline = time.Now().Add(r.Wait)
		case r.x.unparked[key] > before:
			r.out.Unparked = append(r.out.Unparked, key)
			return nil
		case !time.Now().Before(deadline):
			round = maxRounds
		}
	}
	r.out.Waiting = append(r.out.Waiting, key)
	return nil
}

// publishAll redrives dead letters in transactions of up to a chunk. ordered: the first failure
// stops. hold: the relay holds rows until the next resolution. done: there was no failure.
func (r *redrive) publishAll(ctx context.Context, letters []*Entry, ordered, hold bool,
) (done bool, err error) {
	done = true
	for len(letters) > 0 {
		ms, failure := r.messages(ctx, letters)
		if failure != nil && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		for len(ms) > 0 {
			refused, err := r.publish(ctx, letters[:len(ms)], ms, hold)
			if err != nil {
				return false, err
			}
			if refused == nil {
				break
			}
			failure = refused // and nothing was written: retry with those before it
			ms = ms[:slices.Index(letters, refused.Entry)]
		}
		letters = letters[len(ms):]
		if failure == nil {
			continue
		}
		done, letters = false, letters[1:]
		if ordered {
			failure.Behind, letters = len(letters), nil
		}
		r.out.Failed = append(r.out.Failed, *failure)
	}
	return done, nil
}

// messages makes the messages of the first chunk. The failure is that of the next dead letter.
func (r *redrive) messages(ctx context.Context, letters []*Entry) ([]*sink.Message, *Failure) {
	var ms []*sink.Message
	for bytes := 0; len(ms) < min(len(letters), chunk) && bytes < chunkBytes; {
		e := letters[len(ms)]
		m, err := r.message(ctx, e)
		if err != nil {
			return ms, &Failure{Entry: e, Err: err}
		}
		bytes += m.Size()
		ms = append(ms, m)
	}
	return ms, nil
}

// message makes the message of a dead letter.
func (r *redrive) message(ctx context.Context, e *Entry) (*sink.Message, error) {
	record, err := r.x.Message(ctx, e)
	if err != nil {
		return nil, err
	}
	m := originalMessage(&e.Letter, record)
	if e.Form != FormMessage {
		if m, err = r.route(ctx, e, record); err != nil {
			return nil, err
		}
	}
	if m.Topic == r.Topic {
		return nil, fmt.Errorf("its topic is %q, the dead-letter topic itself", m.Topic)
	}
	// The message is out of order. With a position, a consumer would take it for a repeat, and a
	// relay that resumes for the last position of its partition.
	m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h sink.Header) bool {
		return h.Key == router.HeaderLSN || h.Key == router.HeaderIndex ||
			h.Key == sink.HeaderSource
	})
	m.Headers = append(m.Headers, sink.Header{Key: HeaderRedriven, Value: []byte(e.ID.String())})
	return m, nil
}

// route makes the message of a row or a claim with the present configuration.
func (r *redrive) route(ctx context.Context, e *Entry, record *sink.Message,
) (*sink.Message, error) {
	d, err := parseDocument(record.Value)
	if err != nil {
		return nil, err
	}
	var ev *replication.Event
	if e.Form == FormClaim {
		ev, err = r.Row(ctx, &e.Letter, d)
	} else {
		ev, err = d.event()
	}
	if err != nil {
		return nil, err
	}
	ev.LSN, ev.Index, ev.Time = e.position.lsn, e.position.index, e.CommitTime
	m, err := r.Route(ctx, ev)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it still cannot be routed: %w", err)
	case m == nil:
		return nil, errors.New("the present configuration does not publish it")
	}
	if sum := sha256.Sum256(m.Value); e.SHA256 != "" && hex.EncodeToString(sum[:]) != e.SHA256 &&
		!r.Changed {
		return nil, errors.New("its value differs from the one that was committed; " +
			"--changed publishes it as it is now")
	}
	if e.Parks && (m.Topic != e.Topic || string(m.Key) != string(e.Key)) {
		return nil, fmt.Errorf("it is now routed to another topic or key than the parked "+
			"one (topic %q, was %q): the order of the key would be lost", m.Topic, e.Topic)
	}
	return m, nil
}

// publish writes messages with their resolution, or nothing if the broker refuses one of them.
func (r *redrive) publish(ctx context.Context, letters []*Entry, ms []*sink.Message, hold bool,
) (*Failure, error) {
	for i := range ms {
		ms[i].Origin = sink.Origin{Index: uint32(i) + 1} //nolint:gosec // at most chunk
	}
	err := r.pacer.PublishAll(ctx, ms, func() error {
		return r.resolve(ctx, letters, ms, Redriven, hold)
	})
	if failed, ok := errors.AsType[*sink.MessageError](err); ok && failed.Origin.Index > 0 {
		e := letters[failed.Origin.Index-1]
		failed.Origin = sink.Origin{Relation: e.Relation, EventID: e.EventID, LSN: e.position.lsn,
			Index: e.position.index, CommitTime: e.CommitTime} // for people
		if isPoison(err) {
			return &Failure{Entry: e, Err: fmt.Errorf("the broker refuses it: %w", failed)},
				nil
		}
		return nil, fmt.Errorf("dead letter %s: %w", e.ID, err)
	}
	if err == nil {
		r.out.Redriven = append(r.out.Redriven, letters...)
	}
	return nil, err
}

// isPoison reports whether an error is about one message.
func isPoison(err error) bool {
	return slices.ContainsFunc([]error{sink.ErrTooLarge, sink.ErrInvalidRecord,
		sink.ErrInvalidTopic, sink.ErrUnknownTopic, sink.ErrPermission},
		func(target error) bool { return errors.Is(err, target) })
}

// Discard resolves dead letters without publishing them; done are those that it has resolved.
func (r *Redriver) Discard(ctx context.Context, letters []*Entry) (done []*Entry, err error) {
	letters = slices.DeleteFunc(slices.Clone(letters), func(e *Entry) bool { return !e.Open() })
	for part := range slices.Chunk(letters, 1000) {
		if err := r.resolve(ctx, part, nil, Discarded, false); err != nil {
			return done, err
		}
		done = append(done, part...)
	}
	return done, nil
}

// resolve writes ms, followed by one resolution per partition of the dead letters.
func (r *Redriver) resolve(ctx context.Context, letters []*Entry, ms []*sink.Message,
	action string, hold bool) error {
	at := time.Now().UTC()
	ids := map[int32][]ID{}
	names := make([]string, len(letters))
	for i, e := range letters {
		ids[e.InPartition] = append(ids[e.InPartition], e.ID)
		names[i] = e.ID.String()
	}
	records := slices.Clone(ms)
	for _, p := range slices.Sorted(maps.Keys(ids)) {
		value, err := json.Marshal(Resolution{Action: action, Letters: ids[p], Who: r.Who, At: at,
			Hold: hold})
		if err != nil {
			return fmt.Errorf("describe a resolution: %w", err)
		}
		records = append(records, &sink.Message{Topic: r.Topic, Partition: p, Value: value,
			Headers: []sink.Header{{Key: HeaderForm, Value: []byte(FormResolution)}}})
	}
	if err := r.Store.Append(ctx, records); err != nil {
		return err
	}
	for _, e := range letters {
		e.Action, e.ResolvedBy, e.ResolvedAt = action, r.Who, at
	}
	r.Log.Info().Str("action", action).Str("who", r.Who).Int("letters", len(letters)).
		Str("ids", strings.Join(names, " ")).Msg("dead letters resolved")
	return nil
}
