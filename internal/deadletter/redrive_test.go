package deadletter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

var seed = flag.Uint64("seed", 0, "of the random schedules; 0 takes another one each time")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var source = sink.Source{SystemID: "7", Timeline: 1, Database: "d", Slot: "s", Events: "p"}

func openTracker(t testing.TB, c *cluster, confirmed pglogrepl.LSN) *Tracker {
	t.Helper()
	k, err := Open(t.Context(), Options{
		Topic: letterTopic, Store: &view{cluster: c}, Source: source, Confirmed: confirmed, Metrics: metrics.New(prometheus.NewRegistry(), "s"), Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	return k
}

func message(key string, n int, at position) (*replication.Event, *sink.Message) {
	ev := &replication.Event{Kind: replication.Insert, LSN: at.lsn, Index: at.index, XID: 1, Time: time.Unix(1_700_000_000, 0)}
	return ev, &sink.Message{
		Topic: "orders", Key: []byte(key), Value: []byte(strconv.Itoa(n)), Partition: sink.ByKey,
		Origin:  sink.Origin{LSN: at.lsn, Index: at.index, Relation: "public.outbox", EventID: key + "-" + strconv.Itoa(n)},
		Headers: []sink.Header{{Key: "id", Value: []byte("1")}, {Key: "postrider.lsn", Value: []byte("0/1")}},
	}
}

// relayModel publishes rows as a relay does: some wait in its hands, a crash loses those, and it begins again at the confirmed position.
type relayModel struct {
	t       testing.TB
	c       *cluster
	tracker *Tracker
	rows    []modelRow
	next    int // row to read
	durable int // rows before it are delivered
	hands   []*sink.Message
}

type modelRow struct {
	key    string
	n      int
	poison bool
}

func (r *relayModel) at(i int) position { return position{pglogrepl.LSN(100 + i/3), uint32(i % 3)} }

// step reads one row.
func (r *relayModel) step() {
	row := r.rows[r.next]
	ev, m := message(row.key, row.n, r.at(r.next))
	for {
		out, err := r.tracker.Follow(ev, m)
		switch {
		case errors.Is(err, ErrHold):
			r.flush()
			require.NoError(r.t, r.tracker.Wait(r.t.Context(), m))
			continue
		case errors.Is(err, ErrKept):
			out = nil
		case err == nil && out == nil && row.poison:
			out, err = r.tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Reason: "x", Err: errors.New("bad\x1b[31m row"), Policy: DeadLetterKey})
			require.NoError(r.t, err)
		case err == nil && out == nil:
			out = m
		default:
			require.NoError(r.t, err)
		}
		if out != nil {
			r.hands = append(r.hands, out)
		}
		break
	}
	r.next++
}

func (r *relayModel) flush() {
	require.NoError(r.t, r.c.append(r.hands))
	r.hands = nil
	r.durable = r.next
}

// crash begins again, with some rows repeated.
func (r *relayModel) crash(back int) {
	r.tracker.Close()
	r.hands = nil
	r.next = max(0, r.durable-back)
	r.tracker = openTracker(r.t, r.c, r.at(r.next).lsn)
	r.next -= r.next % 3 // a transaction comes as a whole
}

// Rows of several keys, some poison, are relayed while their keys are redriven again and again, through crashes of the relay. In the end each row is where it
// belongs, in the order of its key: a repeat of rows from before their key was parked aside, none twice.
func TestState_KeepsTheOrderOfEachKey(t *testing.T) {
	for run := range 8 {
		s := *seed
		if s == 0 {
			s = rand.Uint64()
		}
		s += uint64(run)
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(s, 0))
			crashes := run%2 == 1
			c := newCluster()
			r := &relayModel{t: t, c: c}
			counts := map[string]int{}
			for range 600 {
				key := fmt.Sprint("k", random.IntN(3))
				counts[key]++
				r.rows = append(r.rows, modelRow{key, counts[key], random.IntN(25) == 0})
			}
			r.tracker = openTracker(t, c, 0)
			// The redriver works beside the relay. When it begins, and where the relay waits until it is through, is what the schedule decides.
			turns, idle, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			redrives := 0
			go func() { // ends when turns is closed
				defer close(done)
				for range turns {
					redrives += len(redriveAll(t, c, 2*time.Millisecond).Redriven)
					idle <- struct{}{}
				}
			}()
			busy := false
			for r.next < len(r.rows) {
				r.step()
				switch n := random.IntN(40); {
				case n < 8:
					r.flush()
				case n == 8 && crashes:
					r.crash(random.IntN(10))
				case n < 20 && !busy:
					turns <- struct{}{}
					busy = true
				case n < 20:
					<-idle
					busy = false
				}
			}
			if busy {
				<-idle
			}
			r.flush()
			close(turns)
			<-done
			redriveAll(t, c, 10*time.Second)
			r.tracker.Close()
			require.Zero(t, r.tracker.parked.Load(), "parked")

			seen, redriven := map[string]int{}, map[string]bool{}
			for _, m := range c.home["orders"] {
				n, err := strconv.Atoi(string(m.Value))
				require.NoError(t, err)
				last := seen[string(m.Key)]
				which := fmt.Sprint(string(m.Key), " ", n)
				require.False(t, redriven[which], "%s was redriven, and comes again", which)
				redriven[which] = strings.Contains(fmt.Sprint(m.Headers), HeaderRedriven)
				if crashes && n <= last {
					require.False(t, redriven[which], "%s was published, and redriven", which)
					continue // a repeat
				}
				require.Equal(t, last+1, n, "key %s", m.Key)
				seen[string(m.Key)] = n
			}
			require.Equal(t, counts, seen)
			t.Logf("%d letters were redriven while rows came", redrives)
		})
	}
}

func redriver(c *cluster, wait time.Duration) *Redriver {
	return &Redriver{Topic: letterTopic, Store: &view{cluster: c}, Who: "me@here", Wait: wait, Log: zerolog.Nop()}
}

func redriveAll(t testing.TB, c *cluster, wait time.Duration) Outcome {
	r := redriver(c, wait)
	x, err := Read(context.Background(), r.Store)
	if err != nil {
		t.Error(err)
		return Outcome{}
	}
	out, err := r.Redrive(context.Background(), x, x.List(Filter{}))
	if err != nil || len(out.Failed) > 0 {
		t.Errorf("redrive: %v, %v", err, out.Failed)
	}
	return out
}

// A letter is what was routed, and its reasons; what was redriven is what was routed, without positions.
func TestLetter_ComesHomeAsItWas(t *testing.T) {
	c := newCluster()
	k := openTracker(t, c, 0)
	defer k.Close()
	ev, m := message("k", 1, position{100, 2})
	letter, err := k.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Reason: "invalid_record", Err: errors.New("no\x1b[31m\n" + strings.Repeat("é", 1000)), Policy: DeadLetterKey})
	require.NoError(t, err)
	require.NoError(t, c.append([]*sink.Message{letter}))
	x, err := Read(t.Context(), &view{cluster: c})
	require.NoError(t, err)
	list := x.List(Filter{})
	require.Len(t, list, 1)
	e := list[0]
	require.Equal(t, "0/64/2", e.Position)
	require.Equal(t, "7/1/s/p", e.Source)
	require.Equal(t, Address{"orders", "k"}, e.Address())
	require.True(t, e.Parks)
	require.Len(t, []rune(e.Error), 500)
	require.NotContains(t, e.Error, "\x1b")
	require.NotContains(t, e.Error, "\n")

	again, err := openTracker2(t, c, 100).DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
	require.ErrorIs(t, err, ErrKept)
	require.Nil(t, again)

	out := redriveAll(t, c, 5*time.Second)
	require.Len(t, out.Redriven, 1)
	require.Equal(t, []Address{{"orders", "k"}}, out.Unparked)
	require.Empty(t, redriveAll(t, c, 0).Redriven, "twice")
	home := c.home["orders"]
	require.Len(t, home, 1)
	require.Equal(t, "1", string(home[0].Value))
	require.Equal(t, []sink.Header{{Key: "id", Value: []byte("1")}, {Key: HeaderRedriven, Value: []byte(e.ID.String())}}, home[0].Headers)
}

func openTracker2(t testing.TB, c *cluster, confirmed pglogrepl.LSN) *Tracker {
	k := openTracker(t, c, confirmed)
	t.Cleanup(k.Close)
	return k
}

// A letter that cannot be delivered stops its key there, and no other.
func TestRedrive_StopsAKeyAtWhatStillFails(t *testing.T) {
	c := newCluster()
	k := openTracker2(t, c, 0)
	for i, key := range []string{"a", "a", "a", "b"} {
		ev, m := message(key, i+1, position{pglogrepl.LSN(100 + i), 0})
		letter, err := k.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
		require.NoError(t, err)
		require.NoError(t, c.append([]*sink.Message{letter}))
	}
	c.refuse = func(m *sink.Message) error {
		if m.Topic == "orders" && string(m.Value) == "2" {
			return sink.ErrTooLarge
		}
		return nil
	}
	r := redriver(c, 5*time.Second)
	x, err := Read(t.Context(), r.Store)
	require.NoError(t, err)
	out, err := r.Redrive(t.Context(), x, x.List(Filter{}))
	require.NoError(t, err)
	require.Len(t, out.Redriven, 2)
	require.Len(t, out.Failed, 1)
	require.ErrorIs(t, out.Failed[0].Err, sink.ErrTooLarge)
	require.ErrorContains(t, out.Failed[0].Err, `publish event "a-2" of public.outbox at 0/65 index 0 to topic "orders"`)
	require.Equal(t, 1, out.Failed[0].Behind)
	key := "a"
	left := x.List(Filter{Key: &key})
	require.Len(t, left, 2)

	out, err = r.Redrive(t.Context(), x, left[1:])
	require.NoError(t, err)
	require.ErrorIs(t, out.Failed[0].Err, ErrNotFirst)
	done, err := r.Discard(t.Context(), left[:1])
	require.NoError(t, err)
	require.Len(t, done, 1)
	out = redriveAll(t, c, 5*time.Second)
	require.Len(t, out.Redriven, 1)
	require.Equal(t, []Address{{"orders", "a"}}, out.Unparked)
}

func TestDocument_KeepsARow(t *testing.T) {
	ev := &replication.Event{
		Kind: replication.Insert, XID: 5, LSN: 7,
		Relation: &replication.Relation{OID: 9, Namespace: "s.x", Name: "o", Columns: []replication.Column{
			{Name: "id", TypeOID: 25, TypeMod: -1, Key: true}, {Name: "a", TypeOID: 17}, {Name: "b"}, {Name: "c"},
		}},
		Values: [][]byte{[]byte("1"), {0xff, 0}, nil, {}},
	}
	c := newCluster()
	k := openTracker2(t, c, 0)
	letter, err := k.DeadLetter(Poison{Event: ev, Cause: NotRoutable, Err: errors.New("x"), Policy: DeadLetter})
	require.NoError(t, err)
	require.Nil(t, letter.Key)
	d, err := parseDocument(letter.Value)
	require.NoError(t, err)
	back, err := d.event()
	require.NoError(t, err)
	back.LSN = 7
	require.Equal(t, ev, back)

	letter, err = k.DeadLetter(Poison{Event: ev, Cause: TooLarge, Err: errors.New("x"), Policy: DeadLetter})
	require.NoError(t, err)
	d, err = parseDocument(letter.Value)
	require.NoError(t, err)
	require.Len(t, d.Columns, 1)
	require.Equal(t, "1", string(*d.Columns[0].Value))

	_, err = k.DeadLetter(Poison{Event: &replication.Event{Kind: replication.Message, Prefix: "p"}, Cause: TooLarge, Err: sink.ErrTooLarge, Policy: DeadLetter})
	require.ErrorIs(t, err, errNowhere)
}

// The letters in front of a refused one are published by themselves, also when another of them is refused then.
func TestRedrive_PublishesWhatStandsBeforeTheFirstOfTwoRefusedLetters(t *testing.T) {
	c := newCluster()
	k := openTracker2(t, c, 0)
	for i := range 4 {
		ev, m := message("a", i+1, position{pglogrepl.LSN(100 + i), 0})
		letter, err := k.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
		require.NoError(t, err)
		require.NoError(t, c.append([]*sink.Message{letter}))
	}
	third := false
	c.refuse = func(m *sink.Message) error {
		switch {
		case m.Topic == "orders" && string(m.Value) == "3":
			third = true
			return sink.ErrTooLarge
		case m.Topic == "orders" && string(m.Value) == "2" && third:
			return sink.ErrInvalidRecord
		}
		return nil
	}
	r := redriver(c, 5*time.Second)
	x, err := Read(t.Context(), r.Store)
	require.NoError(t, err)
	out, err := r.Redrive(t.Context(), x, x.List(Filter{}))
	require.NoError(t, err)
	require.Len(t, out.Redriven, 1)
	require.Len(t, c.home["orders"], 1)
	require.Len(t, out.Failed, 1)
	require.ErrorIs(t, out.Failed[0].Err, sink.ErrInvalidRecord)
	require.Equal(t, 2, out.Failed[0].Behind)
}

func TestRedrive_CountsForTheRate(t *testing.T) {
	c := newCluster()
	k := openTracker(t, c, 0)
	defer k.Close()
	ev, m := message("k", 1, position{100, 2})
	letter, err := k.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetter, Err: errors.New("no")})
	require.NoError(t, err)
	require.NoError(t, c.append([]*sink.Message{letter}))
	r := redriver(c, 0)
	r.Limiter = ratelimit.New(ratelimit.Rate{Rows: 1}, nil, metrics.New(prometheus.NewRegistry(), "s"))
	x, err := Read(t.Context(), r.Store)
	require.NoError(t, err)
	out, err := r.Redrive(t.Context(), x, x.List(Filter{}))
	require.NoError(t, err)
	require.Len(t, out.Redriven, 1)
	require.EqualValues(t, 1, r.Limiter.State().Messages)
}
