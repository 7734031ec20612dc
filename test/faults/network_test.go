package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// slow is what makes a network bad without breaking it.
var slow = []struct {
	name    string
	begin   func(*parts.Proxy)
	perSec  int // transactions that it carries
	recover time.Duration
}{
	{"latency of 500 ms", func(p *parts.Proxy) { p.Delay(250 * time.Millisecond) }, 100, 2 * time.Minute},
	{"1 Mbit per second", func(p *parts.Proxy) { p.Pace(125_000) }, 40, 2 * time.Minute},
	{"one byte at a time", func(p *parts.Proxy) { p.Slice(1) }, 10, 2 * time.Minute},
}

func TestFault27_SlowNetworksLoseNothing(t *testing.T) {
	t.Parallel()
	for _, s := range slow {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			kafka, postgres := r.throughKafkaProxy(t), r.through(t)
			p := r.started(t)
			l := r.load(t, s.perSec)
			l.more(t, 20)
			pid := r.walsender(t)
			s.begin(kafka)
			l.more(t, int64(full(t, 40, 2000)))
			s.begin(postgres)
			l.more(t, int64(full(t, 40, 2000)))
			l.end(t)
			r.drained(t, s.recover)
			for _, network := range []*parts.Proxy{kafka, postgres} {
				network.Delay(0)
				network.Pace(0)
				network.Slice(0)
			}
			sessions := p.ask().Relay.Sessions
			require.Equal(t, pid, r.walsender(t), "a slow network is no reason to connect again")
			p.stop(t)
			requireExact(t, r.judge(t))
			matrix(t, 27, s.name, fmt.Sprintf("%d session, one walsender", sessions))
		})
	}
}

// A network that forgets its connections answers nothing, not even that they are gone: each side has to notice by itself.
func TestFault27_HalfOpenConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"PostgreSQL", "Kafka"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			// How soon a broker counts as gone. The defaults are for days on which brokers are slow, and would take this test minutes.
			r.settings["sink.kafka.produce_timeout"], r.settings["sink.kafka.read_timeout"] = `"3s"`, `"5s"`
			kafka, postgres := r.throughKafkaProxy(t), r.through(t)
			p := r.started(t)
			l := r.load(t, 100)
			var again times
			n := full(t, 1, 10)
			for range n {
				l.more(t, 100)
				if which == "Kafka" {
					kafka.Forget()
				} else {
					postgres.Forget()
				}
				began := time.Now()
				end := currentLSN(t, r.dsn)
				eventually(t, 2*time.Minute, "what was committed before is confirmed", func() bool { p.requireRunning(t); return r.confirmed(t) >= end })
				again = append(again, time.Since(began))
			}
			l.end(t)
			r.drained(t, 2*time.Minute)
			sessions := p.ask().Relay.Sessions
			p.stop(t)
			v := r.judge(t)
			requireNothingLost(t, v)
			require.LessOrEqual(t, v.Duplicated, int64(sessions-1)*repeats)
			matrix(t, 27, "half-open to "+which, fmt.Sprintf("%d times, caught up after: %s", n, again))
		})
	}
}
