package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// Outcome is what became of what was asked for.
type Outcome struct {
	Redriven []*Entry
	Failed   []Failure
	Unparked []Address // the relay has said so
	// nothing of them is open, but the relay has not said so: it does not run, or is behind
	Waiting []Address
}

// Failure is a letter that could not be redriven, with those behind it of its key.
type Failure struct {
	Entry  *Entry
	Err    error
	Behind int
}

const (
	// chunk bounds what one transaction holds, in letters and in bytes.
	chunk      = 100
	chunkBytes = 4 << 20
	// maxRounds bounds how often new letters of a key are gone after.
	maxRounds = 50
	// nextRound is how long to wait for the relay between two looks.
	nextRound = 200 * time.Millisecond
)

// Redrive redrives letters: all open ones of each key if it is parked, in order, and those that
// come meanwhile; of other letters those in the list. The error is one of the Store: what was
// written before is.
func (r *Redriver) Redrive(ctx context.Context, x *Index, letters []*Entry) (Outcome, error) {
	var out Outcome
	var single []*Entry
	var keys []Address
	for _, e := range letters {
		switch {
		case !e.Open():
		case !e.Parks:
			single = append(single, e)
		default:
			if !slices.Contains(keys, e.Address()) {
				keys = append(keys, e.Address())
			}
		}
	}
	if err := r.singles(ctx, x, single, &out); err != nil {
		return out, err
	}
	for _, key := range keys {
		if err := r.key(ctx, x, key, letters, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// ErrNotFirst refuses to redrive a letter in front of which another one of its key is open.
var ErrNotFirst = errors.New("an earlier letter of its parked key is open")

// key redrives the letters of a parked key that were asked for. If those are all that were open,
// it goes after the ones that come, until the relay publishes the rows of the key again.
func (r *Redriver) key(ctx context.Context, x *Index, key Address, asked []*Entry,
	out *Outcome) error {
	open := x.Parked()[key]
	n := 0
	for n < len(open) && slices.Contains(asked, open[n]) {
		n++
	}
	for _, e := range open[n:] {
		if slices.Contains(asked, e) {
			out.Failed = append(out.Failed, Failure{Entry: e, Err: ErrNotFirst})
		}
	}
	if done, err := r.inTurn(ctx, open[:n], false, x, out); err != nil || !done || n < len(open) ||
		n == 0 {
		return err
	}
	return r.rest(ctx, x, key, out)
}

// rest redrives what comes until the relay says that the key is no longer parked.
func (r *Redriver) rest(ctx context.Context, x *Index, key Address, out *Outcome) error {
	before := x.unparked[key]
	for round, deadline := 0, time.Now().Add(r.Wait); round < maxRounds; {
		if err := x.Update(ctx, min(nextRound, max(time.Until(deadline), 0))); err != nil {
			return err
		}
		open := x.Parked()[key]
		switch {
		case len(open) > 0:
			round++
			deadline = time.Now().Add(r.Wait)
			if done, err := r.inTurn(ctx, open, true, x, out); err != nil || !done {
				return err
			}
		case x.unparked[key] > before:
			out.Unparked = append(out.Unparked, key)
			return nil
		case !time.Now().Before(deadline):
			out.Waiting = append(out.Waiting, key)
			return nil
		}
	}
	out.Waiting = append(out.Waiting, key)
	return nil
}

// inTurn redrives letters in order, and stops at the first that fails.
func (r *Redriver) inTurn(ctx context.Context, letters []*Entry, hold bool, x *Index,
	out *Outcome) (done bool, err error) {
	for len(letters) > 0 {
		ms, n, failed := r.take(ctx, x, letters)
		if n > 0 {
			failedAt, err := r.publish(ctx, letters[:n], ms, hold, out)
			if err != nil {
				return false, err
			}
			if failedAt != nil { // what stands before it goes by itself
				i := slices.Index(letters, failedAt.Entry)
				if i > 0 {
					if _, err := r.publish(ctx, letters[:i], ms[:i], hold, out); err != nil {
						return false, err
					}
				}
				failedAt.Behind = len(letters) - 1 - i
				out.Failed = append(out.Failed, *failedAt)
				return false, nil
			}
		}
		if failed != nil {
			out.Failed = append(out.Failed, Failure{letters[n], failed, len(letters) - n - 1})
			return false, ctx.Err()
		}
		letters = letters[n:]
	}
	return true, nil
}

// singles redrives letters of which each is by itself.
func (r *Redriver) singles(ctx context.Context, x *Index, letters []*Entry, out *Outcome) error {
	for len(letters) > 0 {
		ms, n, failed := r.take(ctx, x, letters)
		if n > 0 {
			failedAt, err := r.publish(ctx, letters[:n], ms, false, out)
			if err != nil {
				return err
			}
			if failedAt != nil {
				out.Failed = append(out.Failed, *failedAt)
				letters = slices.Concat(letters[:n:n], letters[n:])
				letters = slices.DeleteFunc(letters,
					func(e *Entry) bool { return e == failedAt.Entry || !e.Open() })
				continue
			}
		}
		if failed != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			out.Failed = append(out.Failed, Failure{Entry: letters[n], Err: failed})
			n++
		}
		letters = letters[n:]
	}
	return nil
}

// take makes the messages of the first letters, as many as one transaction holds. The error is
// about the one behind them.
func (r *Redriver) take(ctx context.Context, x *Index, letters []*Entry) (ms []*sink.Message,
	n int, err error) {
	bytes := 0
	for n < len(letters) && n < chunk && bytes < chunkBytes {
		m, err := r.message(ctx, x, letters[n])
		if err != nil {
			return ms, n, err
		}
		bytes += m.Size()
		ms = append(ms, m)
		n++
	}
	return ms, n, nil
}

// message is what a letter stands for.
func (r *Redriver) message(ctx context.Context, x *Index, e *Entry) (*sink.Message, error) {
	record, err := x.Message(ctx, e)
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
	// Out of the order of positions: it must not be taken for a repeat, nor for how far its
	// partition has come.
	m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h sink.Header) bool {
		return h.Key == router.HeaderLSN || h.Key == router.HeaderIndex ||
			h.Key == sink.HeaderSource
	})
	m.Headers = append(m.Headers, sink.Header{Key: HeaderRedriven, Value: []byte(e.ID.String())})
	return m, nil
}

// routed routes the row of a letter again.
func (r *Redriver) routed(ctx context.Context, e *Entry, record *sink.Message) (*sink.Message,
	error) {
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

// publish writes messages with their resolution. The failure is that of one message; then nothing
// was written.
func (r *Redriver) publish(ctx context.Context, letters []*Entry, ms []*sink.Message, hold bool,
	out *Outcome) (*Failure, error) {
	for i := range ms {
		ms[i].Origin = sink.Origin{Index: uint32(i) + 1} //nolint:gosec // at most chunk
	}
	records, at, err := r.resolutions(letters, Redriven, hold)
	if err != nil {
		return nil, err
	}
	err = r.Store.Append(ctx, append(slices.Clone(ms), records...))
	failed := new(sink.MessageError)
	if errors.As(err, &failed) && failed.Origin.Index > 0 {
		e := letters[failed.Origin.Index-1]
		// for people
		failed.Origin = sink.Origin{Relation: e.Relation, EventID: e.EventID, LSN: e.position.lsn,
			Index: e.position.index, CommitTime: e.CommitTime}
		if poison(err) {
			return &Failure{Entry: e, Err: fmt.Errorf("the broker does not take it: %w", failed)},
				nil
		}
		return nil, fmt.Errorf("dead letter %s: %w", e.ID, err)
	}
	if err != nil {
		return nil, err
	}
	r.note(letters, Redriven, at)
	out.Redriven = append(out.Redriven, letters...)
	return nil, nil
}

// poison tells an error that is about a message from one of the way to the broker.
func poison(err error) bool {
	for _, verdict := range []error{sink.ErrTooLarge, sink.ErrInvalidRecord, sink.ErrInvalidTopic,
		sink.ErrUnknownTopic, sink.ErrPermission} {
		if errors.Is(err, verdict) {
			return true
		}
	}
	return false
}

// Discard writes down that letters are released. It is done for all of them or, if it fails,
// perhaps for some.
func (r *Redriver) Discard(ctx context.Context, letters []*Entry) ([]*Entry, error) {
	letters = slices.DeleteFunc(slices.Clone(letters), func(e *Entry) bool { return !e.Open() })
	var done []*Entry
	for part := range slices.Chunk(letters, 1000) {
		records, at, err := r.resolutions(part, Discarded, false)
		if err != nil {
			return done, err
		}
		if err := r.Store.Append(ctx, records); err != nil {
			return done, err
		}
		r.note(part, Discarded, at)
		done = append(done, part...)
	}
	return done, nil
}

// resolutions makes a record for each partition that has some of the letters, to be written behind
// them.
func (r *Redriver) resolutions(letters []*Entry, action string,
	hold bool) (records []*sink.Message, at time.Time, err error) {
	at = time.Now().UTC()
	ids := map[int32][]ID{}
	var partitions []int32
	for _, e := range letters {
		if ids[e.InPartition] == nil {
			partitions = append(partitions, e.InPartition)
		}
		ids[e.InPartition] = append(ids[e.InPartition], e.ID)
	}
	for _, p := range partitions {
		value, err := json.Marshal(Resolution{Action: action, Letters: ids[p], Who: r.Who, At: at,
			Hold: hold})
		if err != nil {
			return nil, at, fmt.Errorf("describe a resolution: %w", err)
		}
		records = append(records, &sink.Message{Topic: r.Topic, Partition: p, Value: value,
			Headers: []sink.Header{{Key: HeaderForm, Value: []byte(FormResolution)}}})
	}
	return records, at, nil
}

// note is the line in the log, and has the letters know before they are read again.
func (r *Redriver) note(letters []*Entry, action string, at time.Time) {
	names := make([]string, len(letters))
	for i, e := range letters {
		e.Action, e.ResolvedBy, e.ResolvedAt = action, r.Who, at
		names[i] = e.ID.String()
	}
	r.Log.Info().Str("action", action).Str("who", r.Who).Int("letters", len(letters)).
		Str("ids", strings.Join(names, " ")).Msg("dead letters resolved")
}
