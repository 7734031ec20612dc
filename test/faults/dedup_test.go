package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// dedup has the relays look at what the topics have already.
func (r *rig) dedup() *rig {
	r.settings["relay.dedup"] = `"tail"`
	r.settings["router.position_headers"] = "true"
	return r
}

// events is how many events a relay has read that became what result says.
func (p *process) events(t testing.TB, result string) float64 {
	t.Helper()
	return p.metric(t, "postrider_relay_events_total", "result", result)
}

// records is how many records the topic has.
func (r *rig) records(t testing.TB) (n int64) {
	t.Helper()
	for _, end := range r.broker.EndOffsets(t, "outbox.event."+r.topic) {
		n += end
	}
	return n
}

// unacknowledged keeps back the broker's answers, and waits until it has written rows of which the relay
// does not know that: they are in the topic, and the slot will send them again. before is how many
// records the topic had when the relay was started.
func (r *rig) unacknowledged(t testing.TB, p *process, network *parts.Proxy, before int64) {
	t.Helper()
	network.Mute()
	p.full(t) // what was answered before has arrived
	eventually(t, time.Minute, "rows are in the topic that were not acknowledged", func() bool {
		written := r.records(t) - before
		relay := p.ask().Relay
		return relay.Phase == "streaming" && written > int64(relay.Published) //nolint:gosec // thousands
	})
}

func TestFault01_DedupTailRepeatsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).dedup()
	network := r.throughKafkaProxy(t)
	parts.Binary(t)
	random := random(t, 1)
	l := r.load(t, rate())
	kills, spared := full(t, 3, 200), 0.0
	for i := range kills {
		before := r.records(t)
		p := r.started(t)
		eventually(t, time.Minute, "the relay has published", func() bool { return p.ask().Relay.Published > 0 })
		l.more(t, 100+random.Int64N(1000))
		switch (kills - 1 - i) % 3 {
		case 0: // the last kill, too
			network.Delay(20 * time.Millisecond)
			l.more(t, 100+random.Int64N(200))
			r.unacknowledged(t, p, network, before)
		case 1:
			network.Stall()
			l.more(t, 300)
		}
		spared += p.events(t, "repeated")
		p.Kill(t)
		network.Delay(0)
		network.Resume()
		// What is still on its way to the broker is not covered: see docs/GUARANTEES.md.
		eventually(t, 30*time.Second, "nothing of the killed relay is in the network", func() bool { return network.Connections() == 0 })
	}
	l.end(t)
	p := r.started(t)
	r.drained(t, time.Minute)
	spared += p.events(t, "repeated")
	p.stop(t)
	requireExact(t, r.judge(t))
	require.Positive(t, spared, "no row was in the topic that the slot sent again")
	matrix(t, 1, "dedup tail", fmt.Sprintf("%d kills, %.0f repetitions left out", kills, spared))
}

// A transaction that is open for many seconds: what was published of it is found again however far back it reaches.
func TestFault01_DedupTailRepeatsNothingOfALargeTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).dedup()
	r.settings["sink.kafka.compression"] = `"zstd"`
	network := r.throughKafkaProxy(t)
	network.Delay(10 * time.Millisecond) // with few in flight: the relay is killed long before it is through, however late we look
	r.settings["relay.in_flight_messages"] = "100"
	rows := full(t, 10_000, 500_000)
	p := r.started(t)
	r.transaction(t, rows)
	for range 3 {
		eventually(t, time.Minute, "a part of it published", func() bool { return p.events(t, "routed") > float64(rows/4) })
		p.Kill(t)
		eventually(t, 30*time.Second, "nothing of the killed relay is in the network", func() bool { return network.Connections() == 0 })
		p = r.started(t)
	}
	network.Delay(0)
	r.drained(t, 5*time.Minute)
	spared := p.events(t, "repeated")
	p.stop(t)
	requireExact(t, r.judge(t))
	require.Positive(t, spared, "it was not killed in the middle")
	matrix(t, 1, "dedup tail", fmt.Sprintf("3 kills in a transaction of %d rows, the last start left out %.0f", rows, spared))
}

// The topic is another relay's as well, and the broker is killed and restarted in between.
func TestFault01_DedupTailSharesATopicAndOutlastsTheBroker(t *testing.T) {
	t.Parallel()
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{Properties: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
	r := newRig(t, server(t, parts.AnyVersion), broker).dedup()
	other := newRig(t, server(t, parts.AnyVersion), broker).dedup()
	other.topic, other.tally, other.loads = r.topic, r.tally, 100
	theirs := other.started(t)
	first, second := r.load(t, rate()), other.load(t, rate()/2)
	kills := full(t, 2, 30)
	for i := range kills {
		p := r.started(t)
		first.more(t, 1000)
		p.Kill(t)
		if i%2 == 0 {
			broker.Kill(t)
			broker.Restart(t)
		}
	}
	first.end(t)
	second.end(t)
	p := r.started(t)
	r.drained(t, 2*time.Minute)
	other.drained(t, 2*time.Minute)
	p.stop(t)
	sessions := theirs.ask().Relay.Sessions
	theirs.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 1, "dedup tail", fmt.Sprintf("%d kills, the broker killed in every other; a second relay on the topic had %d sessions", kills, sessions))
}

// The index of a row counts logical messages only where they are read, so it is another one after that was changed. Each row has a key of its own: with one
// key for all, the first row that is missing would have the others published again, whatever their positions are taken for.
func TestFault01_DedupTailLosesNothingWhenMessagesAreReadNoLonger(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t)).dedup()
	r.settings["replication.messages"] = `["app"]`
	conn := parts.Connect(t, r.dsn)
	_, err := conn.Exec(t.Context(), `DO $$ BEGIN
		PERFORM pg_logical_emit_message(true, 'another', 'x');
		FOR n IN 1..4 LOOP
			IF n = 3 THEN PERFORM pg_logical_emit_message(true, 'app', 'no JSON'); END IF;
			INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
			VALUES ('`+r.topic+`', 'k' || n, jsonb_build_object('key', 'k' || n, 'number', 1), 1);
		END LOOP;
	END $$`)
	require.NoError(t, err)
	for n := range 4 {
		r.tally.Wrote(fmt.Sprint("k", n+1), 1)
	}
	p := r.start(t)
	require.Equal(t, 1, p.Wait(t), "halted by the message")
	r.settings["replication.messages"] = "[]"
	p = r.started(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireNothingLost(t, r.judge(t))
	matrix(t, 1, "dedup tail", "no row taken for another when other events are counted")
}
