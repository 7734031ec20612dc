package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// A claim says where the row is. What the table has by then is published only if it is what was committed, or somebody accepts that it is not; and never out of the
// order of its key.
func TestRedrive_OfAClaimPublishesTheRowThatWasCommitted(t *testing.T) {
	routed := func(topic, key, value string) func(context.Context, *replication.Event) (*sink.Message, error) {
		return func(_ context.Context, ev *replication.Event) (*sink.Message, error) {
			return &sink.Message{Topic: topic, Key: []byte(key), Value: []byte(value), Partition: sink.ByKey, Headers: []sink.Header{
				{Key: "id", Value: []byte("1")}, {Key: router.HeaderLSN, Value: []byte(ev.LSN.String())},
				{Key: router.HeaderIndex, Value: []byte(strconv.Itoa(int(ev.Index)))}, {Key: sink.HeaderSource, Value: []byte("s@1")},
			}}, nil
		}
	}
	for name, c := range map[string]struct {
		route   func(context.Context, *replication.Event) (*sink.Message, error)
		changed bool
		policy  Policy
		problem string // empty: it is redriven
	}{
		"as it was":                           {route: routed("orders", "k", "1"), policy: DeadLetterKey},
		"changed":                             {route: routed("orders", "k", "2"), policy: DeadLetterKey, problem: "differs from the one that was committed"},
		"changed, which is accepted":          {route: routed("orders", "k", "2"), policy: DeadLetterKey, changed: true},
		"of another key":                      {route: routed("orders", "l", "1"), policy: DeadLetterKey, problem: "the order of the key would be lost"},
		"of another topic":                    {route: routed("payments", "k", "1"), policy: DeadLetterKey, problem: "the order of the key would be lost"},
		"of another key, which is not parked": {route: routed("orders", "l", "1"), policy: DeadLetter},
		"to the dead letters themselves":      {route: routed(letterTopic, "k", "1"), policy: DeadLetter, problem: "the dead-letter topic itself"},
		"no event any more": {policy: DeadLetter, problem: "configuration does not publish it",
			route: func(context.Context, *replication.Event) (*sink.Message, error) { return nil, nil }},
		"still not routable": {policy: DeadLetter, problem: "still cannot be routed",
			route: func(context.Context, *replication.Event) (*sink.Message, error) { return nil, errors.New("no") }},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			ev, m := message("k", 1, position{100, 2})
			ev.Relation = &replication.Relation{Namespace: "public", Name: "outbox", Columns: []replication.Column{{Name: "id", Key: true}}}
			ev.Values = [][]byte{[]byte("1")}
			letter, err := openTracker2(t, cl, 0).DeadLetter(Poison{Event: ev, Message: m, Cause: TooLarge, Policy: c.policy})
			require.NoError(t, err)
			require.NoError(t, cl.append([]*sink.Message{letter}))

			r := redriver(cl, parts.Patience)
			r.Route, r.Changed = c.route, c.changed
			r.Row = func(_ context.Context, l *Letter, d Document) (*replication.Event, error) {
				require.Equal(t, FormClaim, l.Form)
				require.Equal(t, "1", string(*d.Columns[0].Value))
				return &replication.Event{Relation: ev.Relation, Values: ev.Values}, nil
			}
			x, err := Read(t.Context(), r.Store)
			require.NoError(t, err)
			out, err := r.Redrive(t.Context(), x, x.List(Filter{}))
			require.NoError(t, err)
			if c.problem != "" {
				require.Len(t, out.Failed, 1)
				require.ErrorContains(t, out.Failed[0].Err, c.problem)
				require.Empty(t, cl.home)
				require.Len(t, x.List(Filter{}), 1, "it stays open")
				return
			}
			require.Empty(t, out.Failed)
			require.Len(t, out.Redriven, 1)
			for _, home := range cl.home {
				require.Len(t, home, 1)
				require.Equal(t, []sink.Header{{Key: "id", Value: []byte("1")}, {Key: HeaderRedriven, Value: []byte(out.Redriven[0].ID.String())}},
					home[0].Headers, "without a position: it is published out of the order of those")
			}
		})
	}
}

// transactions are a Store that remembers what was written in each.
type transactions struct {
	*view
	written [][]*sink.Message
	after   func(n int) // is called behind the nth
}

func (s *transactions) Append(ctx context.Context, ms []*sink.Message) error {
	if err := s.view.Append(ctx, ms); err != nil {
		return err
	}
	s.written = append(s.written, ms)
	if s.after != nil {
		s.after(len(s.written))
	}
	return nil
}

// resolutionsOf are the resolutions among messages.
func resolutionsOf(t *testing.T, ms []*sink.Message) (all []*Resolution) {
	t.Helper()
	for _, m := range ms {
		e, err := parse(m, 0)
		require.NoError(t, err)
		if e.resolution != nil {
			all = append(all, e.resolution)
		}
	}
	return all
}

// singles puts letters that park nothing into the topic: of one key each, with values of a size.
func singles(t *testing.T, c *cluster, n, size int) {
	t.Helper()
	tracker := openTracker2(t, c, 0)
	for i := range n {
		ev, m := message(fmt.Sprint("k", i), i, position{100, uint32(i)})
		m.Value = append(m.Value, make([]byte, size)...)
		letter, err := tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetter})
		require.NoError(t, err)
		require.NoError(t, c.append([]*sink.Message{letter}))
	}
}

func TestRedrive_BoundsATransaction(t *testing.T) {
	for name, c := range map[string]struct{ letters, size, most int }{
		"in letters": {250, 0, chunk},
		"in bytes":   {100, 90_000, chunkBytes/90_000 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			singles(t, cl, c.letters, c.size)
			s := &transactions{view: &view{cluster: cl}}
			r := redriver(cl, 0)
			r.Store = s
			x, err := Read(t.Context(), s)
			require.NoError(t, err)
			out, err := r.Redrive(t.Context(), x, x.List(Filter{}))
			require.NoError(t, err)
			require.Len(t, out.Redriven, c.letters)
			resolved := 0
			for _, ms := range s.written {
				letters := 0
				for _, resolution := range resolutionsOf(t, ms) {
					letters += len(resolution.Letters)
				}
				require.LessOrEqual(t, letters, c.most)
				resolved += letters
			}
			require.Equal(t, c.letters, resolved, "each in the transaction of its message")
			require.Len(t, cl.home["orders"], c.letters)
		})
	}
}

// Of letters that park nothing each is by itself: what fails keeps no other one back.
func TestRedrive_OfSingleLettersLeavesOutWhatFails(t *testing.T) {
	cl := newCluster()
	singles(t, cl, 6, 0)
	tracker := openTracker2(t, cl, 0)
	ev, _ := message("unroutable", 9, position{101, 0})
	ev.Relation = &replication.Relation{Namespace: "public", Name: "outbox"}
	letter, err := tracker.DeadLetter(Poison{Event: ev, Cause: NotRoutable, Policy: DeadLetter})
	require.NoError(t, err)
	require.NoError(t, cl.append([]*sink.Message{letter}))
	asked := 0
	cl.refuse = func(m *sink.Message) error {
		asked++
		require.Less(t, asked, 100, "what fails is not tried again and again")
		if m.Topic == "orders" && slices.Contains([]string{"1", "4"}, string(m.Value)) {
			return sink.ErrPermission
		}
		return nil
	}
	r := redriver(cl, 0)
	r.Route = func(context.Context, *replication.Event) (*sink.Message, error) { return nil, errors.New("no") }
	x, err := Read(t.Context(), r.Store)
	require.NoError(t, err)
	out, err := r.Redrive(t.Context(), x, x.List(Filter{}))
	require.NoError(t, err)
	require.Len(t, out.Failed, 3)
	require.Len(t, out.Redriven, 4)
	require.Len(t, cl.home["orders"], 4)
	require.Len(t, x.List(Filter{}), 3)

	cl.refuse = func(*sink.Message) error { return sink.ErrUnreachable }
	_, err = r.Redrive(t.Context(), x, x.List(Filter{}))
	require.ErrorIs(t, err, sink.ErrUnreachable, "which says nothing about a letter")
}

// While letters of a key are redriven, rows of it come and make new ones. Those are gone after, and the relay is asked to hold meanwhile.
func TestRedrive_GoesAfterTheLettersThatCome(t *testing.T) {
	cl := newCluster()
	tracker := openTracker2(t, cl, 0)
	parked(t, cl, tracker, "k", "k")
	s := &transactions{view: &view{cluster: cl}}
	s.after = func(n int) {
		if n == 1 {
			ev, m := message("k", 3, position{101, 0})
			tracker.mu.Lock()
			letter, err := tracker.writeLocked(newRow(tracker.writer.source, ev, m), Poison{Cause: Parked}, true) // made before the resolution was read
			tracker.mu.Unlock()
			require.NoError(t, err)
			require.NoError(t, cl.append([]*sink.Message{letter}))
		}
	}
	r := redriver(cl, parts.Patience)
	r.Store = s
	x, err := Read(t.Context(), s)
	require.NoError(t, err)
	out, err := r.Redrive(t.Context(), x, x.List(Filter{})[:2])
	require.NoError(t, err)
	require.Len(t, out.Redriven, 3)
	require.Equal(t, []Address{ordersK}, out.Unparked)
	var holds []bool
	for _, ms := range s.written {
		for _, resolution := range resolutionsOf(t, ms) {
			holds = append(holds, resolution.Hold)
		}
	}
	require.Equal(t, []bool{false, true}, holds)
	var values []string
	for _, m := range cl.home["orders"] {
		values = append(values, string(m.Value))
	}
	require.Equal(t, []string{"1", "2", "3"}, values)
}

// That the relay has once said of the key that it is free says nothing about the letters of today.
func TestRedrive_WaitsForTheRelayToSayItAgain(t *testing.T) {
	cl := newCluster()
	tracker := openTracker(t, cl, 0)
	parked(t, cl, tracker, "k")
	require.Equal(t, []Address{ordersK}, redriveAll(t, cl, parts.Patience).Unparked)
	ev, m := message("k", 2, position{200, 0})
	letter, err := tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
	require.NoError(t, err)
	require.NoError(t, cl.append([]*sink.Message{letter}))
	tracker.Close() // and nobody says anything any more
	out := redriveAll(t, cl, time.Millisecond)
	require.Len(t, out.Redriven, 1)
	require.Empty(t, out.Unparked)
	require.Equal(t, []Address{ordersK}, out.Waiting)
}

// A letter that is not redriven keeps those behind it of its key, whoever asks for them; and what was not asked for stays.
func TestRedrive_TakesOfAKeyWhatWasAskedForAndNoMore(t *testing.T) {
	cl := newCluster()
	tracker := openTracker2(t, cl, 0)
	letters := parked(t, cl, tracker, "k", "k", "k")
	r := redriver(cl, parts.Patience)
	x, err := Read(t.Context(), r.Store)
	require.NoError(t, err)
	out, err := r.Redrive(t.Context(), x, []*Entry{x.byID[letters[0].ID], x.byID[letters[2].ID]})
	require.NoError(t, err)
	require.Len(t, out.Redriven, 1)
	require.Len(t, out.Failed, 1)
	require.ErrorIs(t, out.Failed[0].Err, ErrNotFirst)
	require.Len(t, x.List(Filter{}), 2)
	require.Empty(t, out.Unparked)
	require.Empty(t, out.Waiting, "letters are open: nothing is waited for")
}

// A resolution stands in the partition of its letters, behind them.
func TestDiscard_WritesBehindTheLettersOfEachPartition(t *testing.T) {
	cl := newCluster()
	singles(t, cl, 20, 0)
	s := &transactions{view: &view{cluster: cl}}
	r := redriver(cl, 0)
	r.Store = s
	x, err := Read(t.Context(), s)
	require.NoError(t, err)
	all := x.List(Filter{})
	done, err := r.Discard(t.Context(), all[:12])
	require.NoError(t, err)
	require.Len(t, done, 12)
	done, err = r.Discard(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, all[12:], done, "the others are dealt with")
	_, err = r.Discard(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, s.written, 2, "nothing was left to write")
	for _, ms := range s.written {
		for _, m := range ms {
			for _, resolution := range resolutionsOf(t, []*sink.Message{m}) {
				for _, id := range resolution.Letters {
					require.Equal(t, x.byID[id].InPartition, m.Partition)
				}
			}
		}
	}
	require.Empty(t, cl.home)
}

// The relay takes no record that its topic does not take; a claim keeps what is needed to find the row.
func TestLetter_FitsIntoItsTopic(t *testing.T) {
	tracker := openTracker2(t, newCluster(), 0)
	limit := tracker.writer.limit
	for name, c := range map[string]struct {
		value, header int
		form          Form
		headers       int // of the message
	}{
		"small":                 {10, 10, FormMessage, 3},
		"just too large":        {limit - 900, 10, FormClaim, 3},
		"with headers too long": {limit, limit, FormClaim, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ev, m := message("k", 1, position{100, 0})
			ev.Relation = &replication.Relation{Namespace: "public", Name: "outbox", Columns: []replication.Column{{Name: "id", Key: true}}}
			ev.Values = [][]byte{[]byte("1")}
			m.Value = make([]byte, c.value)
			m.Headers = append(m.Headers, sink.Header{Key: "more", Value: make([]byte, c.header)})
			letter, err := tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetter})
			require.NoError(t, err)
			require.LessOrEqual(t, letter.Size()+overhead, limit)
			e, err := parse(letter, 0)
			require.NoError(t, err)
			require.Equal(t, c.form, e.letter.Form)
			own := 0
			for _, h := range letter.Headers {
				if slices.ContainsFunc(m.Headers, func(of sink.Header) bool { return of.Key == h.Key }) {
					own++
				}
			}
			require.Equal(t, c.headers, own)
			if c.form == FormClaim {
				d, err := parseDocument(letter.Value)
				require.NoError(t, err)
				require.Equal(t, "1", string(*d.Columns[0].Value))
				require.EqualValues(t, m.Size(), e.letter.Size)
			}
		})
	}

	ev, m := message("k", 1, position{100, 0})
	m.Origin.Relation, m.Value = "message:outbox", make([]byte, limit)
	_, err := tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetter})
	require.ErrorIs(t, err, errNowhere)
}

// What the row asks for comes home with it.
func TestLetter_KeepsPartitionAndTimestamp(t *testing.T) {
	cl := newCluster()
	ev, m := message("k", 1, position{100, 0})
	m.Partition, m.Timestamp = 2, start.UTC()
	letter, err := openTracker2(t, cl, 0).DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetter})
	require.NoError(t, err)
	require.NoError(t, cl.append([]*sink.Message{letter}))
	require.Len(t, redriveAll(t, cl, 0).Redriven, 1)
	home := cl.home["orders"][0]
	require.Equal(t, []any{int32(2), start.UTC()}, []any{home.Partition, home.Timestamp})
}

func TestDocument_KeepsAnUpdate(t *testing.T) {
	ev := &replication.Event{
		Kind: replication.Update, XID: 5,
		Relation: &replication.Relation{OID: 9, Namespace: "public", Name: "o", Columns: []replication.Column{{Name: "a"}, {Name: "b", Key: true}, {Name: "c"}, {Name: "d"}}},
		Values:   [][]byte{replication.Unchanged, []byte("2"), nil, {}},
		Old:      [][]byte{nil, []byte("1"), nil, nil},
	}
	document, err := json.Marshal(documentOf(ev))
	require.NoError(t, err)
	d, err := parseDocument(document)
	require.NoError(t, err)
	back, err := d.event()
	require.NoError(t, err)
	require.Equal(t, ev, back)
	require.True(t, replication.IsUnchanged(back.Values[0]))
}
