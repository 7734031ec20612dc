package deadletter

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

const ours, theirs = "7/1/s/p", "7/1/other/p"

var start = time.Unix(1_700_000_000, 0)

// parking is a parking letter of the key "k".
func parking(source string, at position) *Letter {
	return &Letter{ID: idOf(source, "public.outbox", at, start), Topic: "orders", Key: []byte("k"), Source: source, Parks: true, position: at}
}

var ordersK = Address{Topic: "orders", Key: "k"}

func resolved(hold bool, letters ...*Letter) *Resolution {
	r := &Resolution{Action: Redriven, Hold: hold}
	for _, l := range letters {
		r.Letters = append(r.Letters, l.ID)
	}
	return r
}

// A slot that was made anew, and a server that took over, count from another position on.
func TestState_EveryRowFollowsALetterOfAnotherSource(t *testing.T) {
	s := newState(ours, 0)
	foreign, own := parking(theirs, position{900, 3}), parking(ours, position{100, 0})
	s.addLetter(foreign)
	require.True(t, s.follows(ordersK, position{0, 1}), "behind nothing that this source knows")
	require.False(t, s.follows(Address{"orders", "other"}, position{1000, 0}))
	require.False(t, s.isKept(foreign.ID, foreign.position), "it is no row of this source")

	s.addLetter(own)
	require.Empty(t, s.resolve(resolved(false, foreign), start), "one is still open")
	require.False(t, s.follows(ordersK, position{99, 9}), "published before its key was parked")
	require.True(t, s.follows(ordersK, position{100, 1}))
	require.Equal(t, []Address{ordersK}, s.resolve(resolved(false, own), start))
	require.False(t, s.follows(ordersK, position{100, 1}))
}

func TestState_ALetterReadBehindItsResolutionParksNothing(t *testing.T) {
	s := newState(ours, 50)
	l, next := parking(ours, position{100, 0}), parking(ours, position{101, 0})
	require.Empty(t, s.resolve(resolved(false, l), start))
	s.addLetter(l)
	require.Empty(t, s.keys)
	require.True(t, s.isKept(l.ID, l.position), "it is in the topic all the same")
	s.addLetter(next)
	require.Equal(t, []Address{ordersK}, s.resolve(resolved(false, next), start), "nothing else is open")
}

// The first of the letters with one ID counts, also when the configuration has changed and the second goes elsewhere.
func TestState_ALetterReadTwiceIsResolvedOnce(t *testing.T) {
	s := newState(ours, 50)
	l := parking(ours, position{100, 0})
	again := *l
	again.Topic = "payments"
	s.addLetter(l)
	s.addLetter(&again)
	require.True(t, s.follows(ordersK, position{101, 0}))
	require.False(t, s.follows(Address{"payments", "k"}, position{101, 0}))
	require.Equal(t, []Address{ordersK}, s.resolve(resolved(false, l), start))
	require.Empty(t, s.keys)
	require.Empty(t, s.open)
}

func TestState_KeepsTheLettersThatRowsCanMeetAgain(t *testing.T) {
	s := newState(ours, 100)
	before, at, behind := parking(ours, position{99, 9}), parking(ours, position{100, 0}), parking(ours, position{101, 5})
	for _, l := range []*Letter{behind, at, before} { // as two partitions of the topic may bring them
		s.addLetter(l)
	}
	for _, l := range []*Letter{at, behind} {
		require.True(t, s.isKept(l.ID, l.position))
	}
	require.False(t, s.isKept(before.ID, before.position), "its transaction is not read again")
	require.False(t, s.isKept(parking(ours, position{101, 4}).ID, position{101, 4}), "a row of the same transaction without a letter")

	s.loaded()
	later := parking(ours, position{200, 0})
	s.addLetter(later)
	require.False(t, s.isKept(later.ID, later.position), "no row of this session comes twice, so that its letters take no memory")
	require.True(t, s.isKept(behind.ID, behind.position))
}

func TestState_ARowWaitsOnceForEachResolutionThatAsksForIt(t *testing.T) {
	s := newState(ours, 0)
	one, two, three := parking(ours, position{100, 0}), parking(ours, position{100, 1}), parking(ours, position{100, 2})
	for _, l := range []*Letter{one, two, three} {
		s.addLetter(l)
	}
	require.False(t, s.startWait(ordersK, start), "nobody has asked")
	require.Empty(t, s.resolve(resolved(false, one), start))
	require.False(t, s.startWait(ordersK, start), "it did not ask")
	require.Empty(t, s.resolve(resolved(true, two), start))
	require.True(t, s.startWait(ordersK, start))
	require.False(t, s.startWait(ordersK, start), "told already")
	require.Equal(t, holdFor, s.waitLeft(ordersK, start))
	require.Zero(t, s.waitLeft(ordersK, start.Add(holdFor)))

	four := parking(ours, position{100, 3})
	s.addLetter(four)
	require.Empty(t, s.resolve(resolved(true, three), start))
	require.False(t, s.startWait(ordersK, start.Add(holdFor)), "too late for it")
	require.True(t, s.startWait(ordersK, start), "asked again")
	require.Equal(t, []Address{ordersK}, s.resolve(resolved(true, four), start))
	require.False(t, s.startWait(ordersK, start), "the key is free")
	require.Zero(t, s.waitLeft(ordersK, start))
}

// openAs opens a tracker for another source than the one of openTracker, which has the key of rows that could not be routed.
func openAs(t *testing.T, c *cluster, of sink.Source, confirmed pglogrepl.LSN) *Tracker {
	t.Helper()
	opened, err := Open(t.Context(), Options{
		Topic: letterTopic, Store: &view{cluster: c}, Source: of, Confirmed: confirmed, Metrics: metrics.New(prometheus.NewRegistry(), "s"), Log: zerolog.Nop(),
		Address: func(*replication.Event) (topic string, key []byte, err error) { return "orders", []byte("k"), nil },
	})
	require.NoError(t, err)
	t.Cleanup(opened.Close)
	return opened
}

func TestTracker_ARowFollowsTheOpenLettersOfAnotherSource(t *testing.T) {
	c := newCluster()
	ev, m := message("k", 1, position{900, 0})
	letter, err := openTracker2(t, c, 0).DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
	require.NoError(t, err)
	require.NoError(t, c.append([]*sink.Message{letter}))

	other := source
	other.Slot = "made_anew"
	tracker := openAs(t, c, other, 0)
	ev, m = message("k", 2, position{100, 0})
	follows, err := tracker.Follow(ev, m)
	require.NoError(t, err)
	require.NotNil(t, follows, "behind the letter, whatever its position")
	require.Equal(t, letterTopic, follows.Topic)
	e, err := parse(follows, 0)
	require.NoError(t, err)
	require.Equal(t, Parked, e.letter.Cause)
	require.True(t, e.letter.Parks, "what comes behind it follows, too")
	ev, m = message("another key", 1, position{100, 1})
	follows, err = tracker.Follow(ev, m)
	require.NoError(t, err)
	require.Nil(t, follows)
}

// The key of no bytes is a key; a row without one follows nobody.
func TestTracker_ARowWithoutAKeyFollowsNoParkedKey(t *testing.T) {
	c := newCluster()
	tracker := openAs(t, c, source, 0)
	ev, m := message("", 1, position{100, 0})
	letter, err := tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
	require.NoError(t, err)
	require.NoError(t, c.append([]*sink.Message{letter}))

	ev, m = message("", 2, position{101, 0})
	follows, err := tracker.Follow(ev, m)
	require.NoError(t, err)
	require.NotNil(t, follows)
	ev, m = message("", 3, position{102, 0})
	m.Key = nil
	follows, err = tracker.Follow(ev, m)
	require.NoError(t, err)
	require.Nil(t, follows)
}

// A row that cannot be routed is not asked about before, so its letter has to join those of its key by itself.
func TestTracker_TheLetterOfARowOfAParkedKeyParksWhateverThePolicy(t *testing.T) {
	c := newCluster()
	tracker := openAs(t, c, source, 0)
	ev, m := message("k", 1, position{100, 0})
	first, err := tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
	require.NoError(t, err)
	ev, _ = message("k", 2, position{101, 0})
	ev.Relation = &replication.Relation{Namespace: "public", Name: "outbox"}
	second, err := tracker.DeadLetter(Poison{Event: ev, Cause: NotRoutable, Policy: DeadLetter})
	require.NoError(t, err)
	require.NoError(t, c.append([]*sink.Message{first, second}))

	x, err := Read(t.Context(), &view{cluster: c})
	require.NoError(t, err)
	letters := x.Parked()[ordersK]
	require.Len(t, letters, 2, "in the order of the key")
	require.Equal(t, "0/65/0", letters[1].Position)
	require.True(t, letters[1].Parks)
	require.Equal(t, NotRoutable, letters[1].Cause, "it keeps a cause of its own")
}

// Without its key the row would be no part of the order of the parked key.
func TestTracker_MakesNoLetterWhileTheKeyCannotBeFound(t *testing.T) {
	c := newCluster()
	tracker := openAs(t, c, source, 0)
	away := errors.New("away")
	tracker.opts.Address = func(*replication.Event) (topic string, key []byte, err error) { return "", nil, away }
	ev, _ := message("k", 1, position{100, 0})
	ev.Relation = &replication.Relation{Namespace: "public", Name: "outbox"}
	_, err := tracker.DeadLetter(Poison{Event: ev, Cause: NotRoutable, Policy: DeadLetterKey})
	require.ErrorIs(t, err, away)
	require.Empty(t, tracker.state.open)

	tracker.opts.Address = func(*replication.Event) (topic string, key []byte, err error) { return "orders", []byte("k"), nil }
	_, err = tracker.DeadLetter(Poison{Event: ev, Cause: NotRoutable, Policy: DeadLetterKey})
	require.NoError(t, err)
	ev, m := message("k", 2, position{101, 0})
	follows, err := tracker.Follow(ev, m)
	require.NoError(t, err)
	require.NotNil(t, follows)
}
