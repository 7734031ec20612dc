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

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Redriver publishes letters where they belong, and writes down that it did.
type Redriver struct {
	Topic string // of the dead letters
	Store Store  // with transactions: Append is all or nothing
	// Route routes the row of a letter again, as the relay would now.
	Route func(ctx context.Context, ev *replication.Event) (*sink.Message, error)
	// Row reads the row that a claim points to.
	Row func(ctx context.Context, l *Letter, d Document) (*replication.Event, error)
	Who string
	// Changed accepts a row that is not what it was when it was committed.
	Changed bool
	// Wait is how long the relay may take to say that it publishes the rows of a key again.
	Wait time.Duration
	Log  zerolog.Logger
}

// Outcome is what became of the dead letters.
type Outcome struct {
	Redriven []*Entry
	Failed   []Failure
	Unparked []Address // the relay publishes their rows again
	// nothing of them is open, but the relay has not unparked them: it does not run, or is behind
	Waiting []Address
}

// Failure is a dead letter that could not be redriven, with those behind it of its key.
type Failure struct {
	Entry  *Entry
	Err    error
	Behind int
}

const (
	// chunk bounds what one transaction holds, in dead letters and in bytes.
	chunk      = 100
	chunkBytes = 4 << 20
	// maxRounds bounds how often new dead letters of a key are redriven, too.
	maxRounds = 50
	// nextRound is how long to wait for the relay between two looks.
	nextRound = 200 * time.Millisecond
)

// Redrive redrives letters: all open ones of each key if it is parked, in order, and those that
// come meanwhile; else those in the list. An error is one of the Store: what was written stays.
func (r *Redriver) Redrive(ctx context.Context, x *Index, letters []*Entry) (Outcome, error) {
	run := redrive{Redriver: r, x: x}
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
	_, err := run.redrive(ctx, single, false, false)
	for i := 0; i < len(keys) && err == nil; i++ {
		err = run.key(ctx, keys[i], letters)
	}
	return run.out, err
}

// ErrNotFirst refuses to redrive a letter in front of which another one of its key is open.
var ErrNotFirst = errors.New("an earlier letter of its parked key is open")

// redrive is one call of Redrive.
type redrive struct {
	*Redriver
	x   *Index
	out Outcome
}

// key redrives the chosen letters of a parked key. If those are all that were open, it redrives
// what comes, too, until the relay publishes the rows of the key again.
func (r *redrive) key(ctx context.Context, key Address, chosen []*Entry) error {
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
	done, err := r.redrive(ctx, open[:n], true, false)
	if err != nil || !done || n < len(open) || n == 0 {
		return err
	}
	return r.rest(ctx, key)
}

// rest redrives what comes until the relay writes that the key is unparked.
func (r *redrive) rest(ctx context.Context, key Address) error {
	before := r.x.unparked[key]
	for round, deadline := 0, time.Now().Add(r.Wait); round < maxRounds; {
		if err := r.x.Update(ctx, min(nextRound, max(time.Until(deadline), 0))); err != nil {
			return err
		}
		open := r.x.Parked()[key]
		switch {
		case len(open) > 0:
			round++
			deadline = time.Now().Add(r.Wait)
			if done, err := r.redrive(ctx, open, true, true); err != nil || !done {
				return err
			}
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

// redrive redrives letters, as many at a time as one transaction holds. ordered: those behind one
// that fails do not overtake it. done: none of them failed. hold: the relay waits for the next.
func (r *redrive) redrive(ctx context.Context, letters []*Entry, ordered, hold bool,
) (done bool, err error) {
	done = true
	for len(letters) > 0 {
		ms, failure := r.take(ctx, letters)
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
			failure = refused // nothing was written: those before it go by themselves
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

// take makes the messages of the first letters. The failure is of the one behind them.
func (r *redrive) take(ctx context.Context, letters []*Entry) (ms []*sink.Message, f *Failure) {
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

// message makes the message that a letter keeps.
func (r *redrive) message(ctx context.Context, e *Entry) (*sink.Message, error) {
	record, err := r.x.Message(ctx, e)
	if err != nil {
		return nil, err
	}
	m := originalMessage(&e.Letter, record)
	if e.Form != FormMessage {
		if m, err = r.routed(ctx, e, record); err != nil {
			return nil, err
		}
	}
	if m.Topic == r.Topic {
		return nil, fmt.Errorf("it belongs to %q, the topic of the dead letters itself", m.Topic)
	}
	// It is out of order, and must not be taken for a repeat, nor for the progress of its
	// partition.
	m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h sink.Header) bool {
		return h.Key == router.HeaderLSN || h.Key == router.HeaderIndex ||
			h.Key == sink.HeaderSource
	})
	m.Headers = append(m.Headers, sink.Header{Key: HeaderRedriven, Value: []byte(e.ID.String())})
	return m, nil
}

// routed routes the row of a letter again.
func (r *redrive) routed(ctx context.Context, e *Entry, record *sink.Message,
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
		return nil, errors.New("as configured now, it is no event")
	}
	if sum := sha256.Sum256(m.Value); e.SHA256 != "" && hex.EncodeToString(sum[:]) != e.SHA256 &&
		!r.Changed {
		return nil, errors.New("the row in the table makes another value than the one that was " +
			"committed: it was changed since. --changed publishes it as it is now")
	}
	if e.Parks && (m.Topic != e.Topic || string(m.Key) != string(e.Key)) {
		return nil, fmt.Errorf("it now belongs to another topic or key than the one that is "+
			"parked (topic %q, was %q): the order of the key would be lost", m.Topic, e.Topic)
	}
	return m, nil
}

// publish writes messages with their resolution, or nothing if one message has a failure.
func (r *redrive) publish(ctx context.Context, letters []*Entry, ms []*sink.Message, hold bool,
) (*Failure, error) {
	for i := range ms {
		ms[i].Origin = sink.Origin{Index: uint32(i) + 1} //nolint:gosec // at most chunk
	}
	err := r.resolve(ctx, letters, ms, Redriven, hold)
	if failed, ok := errors.AsType[*sink.MessageError](err); ok && failed.Origin.Index > 0 {
		e := letters[failed.Origin.Index-1]
		failed.Origin = sink.Origin{Relation: e.Relation, EventID: e.EventID, LSN: e.position.lsn,
			Index: e.position.index, CommitTime: e.CommitTime} // for people
		if poison(err) {
			return &Failure{Entry: e, Err: fmt.Errorf("the broker does not take it: %w", failed)},
				nil
		}
		return nil, fmt.Errorf("dead letter %s: %w", e.ID, err)
	}
	if err == nil {
		r.out.Redriven = append(r.out.Redriven, letters...)
	}
	return nil, err
}

// poison reports whether an error is about a message, not about the connection.
func poison(err error) bool {
	return slices.ContainsFunc([]error{sink.ErrTooLarge, sink.ErrInvalidRecord,
		sink.ErrInvalidTopic, sink.ErrUnknownTopic, sink.ErrPermission},
		func(verdict error) bool { return errors.Is(err, verdict) })
}

// Discard resolves letters without publishing them. If it fails, it returns those that are done.
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

// resolve writes messages and, behind them, a resolution in each partition with some of the letter
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
