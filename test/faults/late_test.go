package faults

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/test/parts"
)

// heldRequest is the one produce request that a front holds back, as a network or a broker that
// hangs does.
type heldRequest struct {
	text  string // of a record in it; empty: the request is held before it is read
	armed atomic.Bool
	here  chan struct{} // closed when the request is held
	free  chan struct{} // closed by release
	once  sync.Once     // of release
	ended chan struct{} // closed when the request was read to its end, or cannot be
	done  chan struct{} // closed when the broker has answered

	// Behind ended:
	request []byte
	err     error // of reading it
	// Behind done:
	answer []byte
}

// holdRequest leads relays to the broker through a front, which holds back the first produce request
// with the text in it, once that is armed. Relays that start after bypass do not go through it.
func (r *rig) holdRequest(t testing.TB, text string) *heldRequest {
	t.Helper()
	h := &heldRequest{text: text, here: make(chan struct{}), free: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{})}
	front, err := startFront(r.broker.Brokers()[0], h)
	require.NoError(t, err)
	t.Cleanup(func() {
		h.release()
		require.NoError(t, front.close())
	})
	r.brokers = []string{front.listener.Addr().String()}
	return h
}

// bypass leads relays that start from now on to the broker itself.
func (r *rig) bypass() { r.brokers = r.broker.Brokers() }

// wait returns when the request is held.
func (h *heldRequest) wait(t testing.TB) {
	t.Helper()
	select {
	case <-h.here:
	case <-time.After(time.Minute):
		t.Fatal("no such request within a minute")
	}
}

func (h *heldRequest) release() { h.once.Do(func() { close(h.free) }) }

// deliver releases the request and returns, once the broker has answered it, the numbers of the
// events in it and the broker's verdict.
func (h *heldRequest) deliver(t testing.TB) (numbers []int, verdict error) {
	t.Helper()
	h.release()
	<-h.ended
	require.NoError(t, h.err, "the request is not complete")
	for _, found := range eventNumber.FindAllSubmatch(h.request, -1) {
		n, err := strconv.Atoi(string(found[1]))
		require.NoError(t, err)
		numbers = append(numbers, n)
	}
	select {
	case <-h.done:
	case <-time.After(time.Minute):
		t.Fatal("the broker has not answered within a minute")
	}
	response := kmsg.NewPtrProduceResponse()
	response.SetVersion(int16(binary.BigEndian.Uint16(h.request[6:]))) //nolint:gosec // as the protocol has it
	head := 8                                                          // length, correlation id
	if response.IsFlexible() {
		head++ // no tags
	}
	require.NoError(t, response.ReadFrom(h.answer[head:]))
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				verdict = err
			}
		}
	}
	return numbers, verdict
}

var eventNumber = regexp.MustCompile(`"event (\d+)"`)

// pass reads a produce request, the beginning of which has arrived, and reports whether it is the
// one that was held.
func (h *heldRequest) pass(in *bufio.Reader) (request []byte, mine bool, err error) {
	mine = h.text == "" && h.hold()
	request, err = readFrame(in)
	if h.text != "" && bytes.Contains(request, []byte(h.text)) {
		mine = h.hold()
	}
	if mine {
		h.request, h.err = request, err
		close(h.ended)
	}
	return request, mine, err
}

func (h *heldRequest) hold() bool {
	if !h.armed.CompareAndSwap(true, false) {
		return false
	}
	close(h.here)
	<-h.free
	return true
}

// answered keeps the answer.
func (h *heldRequest) answered(answer []byte) {
	h.answer = answer
	close(h.done)
}

// numbered commits events of one key in one transaction, from the first number to the last.
func (r *rig) numbered(t testing.TB, from, to int, pad int) {
	t.Helper()
	execute(t, r.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		SELECT '%s', 'k', jsonb_build_object('key', 'k', 'number', n, 'text', 'event ' || n, 'pad', repeat('x', %d)), n FROM generate_series(%d, %d) n`,
		r.topic, pad, from, to))
	for n := from; n <= to; n++ {
		r.tally.Wrote("k", uint64(n)) //nolint:gosec // a number of the test
	}
}

// arrivals are the numbers of the key in its topic, as readers of committed records see them: all,
// and those that a consumer keeps which ignores what is not behind the last position it has seen.
func (r *rig) arrivals(t testing.TB) (all, kept []int) {
	t.Helper()
	type position struct{ lsn, index uint64 }
	last := position{}
	for _, record := range r.broker.All(t, "outbox.event."+r.topic) {
		var e event
		require.NoError(t, json.Unmarshal(record.Value, &e))
		all = append(all, int(e.Number)) //nolint:gosec // a number of the test
		at := position{lsn: uint64(parseLSN(t, headerOf(record, "postrider.lsn")))}
		_, err := fmt.Sscan(headerOf(record, "postrider.index"), &at.index)
		require.NoError(t, err)
		if at.lsn > last.lsn || at.lsn == last.lsn && at.index > last.index || len(kept) == 0 {
			last = at
			kept = append(kept, int(e.Number)) //nolint:gosec // the same
		}
	}
	return all, kept
}

// arrived waits until the topic holds as many records.
func (r *rig) arrived(t testing.TB, n int) {
	t.Helper()
	r.broker.Consume(t, "outbox.event."+r.topic, n)
}

func TestFault41_ARequestThatIsCarriedOutLateLosesNothing(t *testing.T) {
	t.Parallel()
	for _, dedup := range []string{"none", "tail"} {
		t.Run(dedup, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			r.settings["relay.dedup"], r.settings["router.position_headers"] = quote(dedup), "true"
			late := r.holdRequest(t, "event 3")
			first := r.started(t)
			r.numbered(t, 1, 2, 0)
			r.arrived(t, 2)
			late.armed.Store(true)
			r.numbered(t, 3, 5, 0)
			late.wait(t)
			first.Kill(t)

			r.bypass()
			second := r.started(t)
			r.numbered(t, 6, 7, 0)
			r.drained(t, time.Minute)
			before, _ := r.arrivals(t)
			again, refused := late.deliver(t)
			require.NoError(t, refused)
			second.stop(t)

			all, kept := r.arrivals(t)
			t.Log("the partition:", all)
			require.Equal(t, append(before, again...), all, "the late batch, whole and in its order, and nothing else")
			require.Equal(t, 3, again[0])
			require.Equal(t, upTo(7), kept, "by the positions each once")
			v := r.judge(t)
			require.Zero(t, v.Lost)
			require.Zero(t, v.OutOfOrder)
			require.Zero(t, v.Phantom)
			require.Equal(t, int64(1), v.Partial, "the last event of the key is not the newest")
			matrix(t, 41, "dedup "+dedup, fmt.Sprintf("at the broker %v: the request of the killed relay came last, and repeats one batch", all))
		})
	}
}

func TestFault41_ExactlyOnceRefusesARequestThatIsCarriedOutLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).exactlyOnce(t)
	late := r.holdRequest(t, "event 3")
	first := r.started(t)
	r.numbered(t, 1, 2, 0)
	r.arrived(t, 2)
	late.armed.Store(true)
	r.numbered(t, 3, 5, 0)
	late.wait(t)
	first.Kill(t)

	r.bypass()
	second := r.started(t)
	r.numbered(t, 6, 7, 0)
	r.drained(t, time.Minute)
	numbers, refused := late.deliver(t)
	require.Contains(t, numbers, 3)
	require.ErrorIs(t, refused, kerr.InvalidProducerEpoch)
	r.numbered(t, 8, 9, 0)
	r.drained(t, time.Minute)
	second.stop(t)
	all, _ := r.arrivals(t)
	require.Equal(t, upTo(9), all)
	requireExact(t, r.judge(t))
	matrix(t, 41, "exactly once", "the broker refuses the request of the killed relay: INVALID_PRODUCER_EPOCH")
}

// The broker has read the beginning of a request, and the rest is in the kernel of the killed relay.
func TestFault41_AKilledRelaySendsNothingMore(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["router.position_headers"] = "true"
	late := r.holdRequest(t, "")
	first := r.started(t)
	r.numbered(t, 1, 2, 0)
	r.drained(t, time.Minute)
	late.armed.Store(true)
	r.numbered(t, 3, 3, 900_000) // more than the receiving kernel buffers
	late.wait(t)
	first.Kill(t)

	r.bypass()
	second := r.started(t)
	r.numbered(t, 4, 5, 0)
	r.drained(t, time.Minute)
	late.release()
	<-late.ended
	require.ErrorIs(t, late.err, syscall.ECONNRESET, "the request is complete")
	second.stop(t)
	all, _ := r.arrivals(t)
	require.Equal(t, upTo(5), all)
	requireExact(t, r.judge(t))
	matrix(t, 41, "unsent", "a request of 900 kB, the end of which the relay's kernel had not sent: not carried out")
}

// Rows of a snapshot can come behind what was committed after it.
func TestFault41_ASnapshotsRequestThatIsCarriedOutLateLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["router.position_headers"] = "true"
	r.settings["snapshot.mode"], r.settings["snapshot.topic"] = quote("initial"), quote(parts.Unique("snapshot"))
	r.settings["snapshot.order_by"] = quote("number")
	execute(t, r.dsn, "SELECT pg_drop_replication_slot('"+r.slot+"')")
	r.numbered(t, 1, 3, 0)
	late := r.holdRequest(t, "event 1")
	late.armed.Store(true)
	first := r.start(t)
	late.wait(t)
	first.Kill(t)

	r.bypass()
	second := r.started(t)
	r.numbered(t, 4, 5, 0)
	r.drained(t, time.Minute)
	again, refused := late.deliver(t)
	require.NoError(t, refused)
	second.stop(t)
	third := r.started(t) // nothing of the late rows keeps it from going on
	r.numbered(t, 6, 6, 0)
	r.drained(t, time.Minute)
	third.stop(t)
	all, kept := r.arrivals(t)
	t.Log("the partition:", all)
	require.Equal(t, slices.Concat(upTo(5), again, []int{6}), all)
	require.Equal(t, upTo(6), kept, "by the positions each once")
	v := r.judge(t)
	require.Zero(t, v.Lost)
	require.Zero(t, v.OutOfOrder)
	require.Zero(t, v.Phantom)
	require.Equal(t, int64(1), v.Partial, "event 6 follows an old one of its key")
	matrix(t, 41, "snapshot", fmt.Sprintf("at the broker %v: the request of the killed relay came behind newer rows", all))
}

// The record that says that the snapshot begins arrives when all is published.
func TestFault41_ASnapshotsProgressThatArrivesLateDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["router.position_headers"] = "true"
	r.settings["snapshot.mode"], r.settings["snapshot.topic"] = quote("initial"), quote(parts.Unique("snapshot"))
	r.settings["snapshot.order_by"] = quote("number")
	execute(t, r.dsn, "SELECT pg_drop_replication_slot('"+r.slot+"')")
	r.numbered(t, 1, 3, 0)
	late := r.holdRequest(t, "") // the first of all; small, so that it has arrived in full
	late.armed.Store(true)
	first := r.start(t)
	late.wait(t)
	first.Kill(t)

	r.bypass()
	second := r.started(t)
	r.numbered(t, 4, 5, 0)
	r.drained(t, time.Minute)
	numbers, refused := late.deliver(t)
	require.NoError(t, refused)
	require.Empty(t, numbers, "it is no record of progress")
	second.stop(t)
	third := r.started(t)
	r.numbered(t, 6, 6, 0)
	r.drained(t, time.Minute)
	third.stop(t)
	all, _ := r.arrivals(t)
	require.Equal(t, upTo(6), all)
	var topic string
	_, err := fmt.Sscanf(r.settings["snapshot.topic"], "%q", &topic)
	require.NoError(t, err)
	saved := r.broker.All(t, topic)
	require.Contains(t, string(saved[len(saved)-1].Value), `"phase":"complete"`, "what compaction keeps")
	requireExact(t, r.judge(t))
	matrix(t, 41, "progress of a snapshot", "the late record does not count: nothing is published again")
}

func TestFault41_ARedrivesRequestThatIsCarriedOutLateRepeatsNothing(t *testing.T) {
	t.Parallel()
	p := newPoisonRig(t, "dead_letter_key")
	p.settings["router.position_headers"] = "true"
	p.settings["sink.kafka.max_message_bytes"] = "100000"
	p.numbered(t, 1, 2, 0)
	p.numbered(t, 3, 3, 200_000)
	p.numbered(t, 4, 4, 0)
	relay := p.started(t)
	p.drained(t, time.Minute)
	relay.stop(t)
	require.Equal(t, upTo(2), p.numbers(t, "k"))

	p.settings["sink.kafka.max_message_bytes"] = "1000000"
	late := p.holdRequest(t, "event 3")
	late.armed.Store(true)
	first := p.startCommand(t, "deadletter", "redrive", "--all", "--yes")
	late.wait(t)
	first.Kill(t)

	p.bypass()
	_, errs, code := p.cli(t, "deadletter", "redrive", "--all", "--yes")
	require.Zero(t, code, errs)
	numbers, refused := late.deliver(t)
	require.Contains(t, numbers, 3)
	require.ErrorIs(t, refused, kerr.InvalidProducerEpoch)
	relay = p.started(t)
	p.numbered(t, 5, 5, 0)
	p.drained(t, time.Minute)
	relay.stop(t)
	require.Equal(t, upTo(5), p.numbers(t, "k"))
	for _, l := range p.list(t, "--all") {
		require.Equal(t, "redriven", l.Action)
	}
	requireExact(t, p.judge(t))
	matrix(t, 41, "redrive", "the broker refuses the request of the killed redrive: INVALID_PRODUCER_EPOCH")
}
