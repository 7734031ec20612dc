package faults

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

func TestFault02_SIGTERMRepeatsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	parts.Binary(t)
	l := r.load(t, rate())
	stops, when := full(t, 3, 100), random(t, 100)
	var took times
	for range stops {
		p := r.started(t)
		l.more(t, 1+when.Int64N(1000))
		took = append(took, p.stop(t))
	}
	l.end(t)
	p := r.started(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 2, "", fmt.Sprintf("%d stops, each with status 0: %s", stops, took))
}

func TestFault03_SIGTERMWhileKafkaIsDownExitsByTheDrainTimeout(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	r := newRig(t, server(t, parts.AnyVersion), broker)
	network := r.throughKafkaProxy(t)
	r.settings["relay.drain_timeout"] = `"3s"`
	p := r.started(t)
	l := r.load(t, 200)
	l.more(t, 200)
	p.stall(t, network)
	l.more(t, 200)
	l.end(t)

	before := time.Now()
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, 75, p.Wait(t), "exit code")
	took := time.Since(before)
	t.Logf("ended after %s", took)
	require.Greater(t, took, 2*time.Second, "it waits for the broker")

	network.Resume()
	p = r.started(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireNothingLost(t, r.judge(t))
}

func TestFault03_SecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	network := r.throughKafkaProxy(t)
	r.settings["relay.drain_timeout"] = `"30m"` // longer than the test waits
	p := r.started(t)
	l := r.load(t, 200)
	l.more(t, 200)
	p.stall(t, network)
	l.more(t, 200)
	l.end(t)

	p.signal(t, syscall.SIGTERM)
	p.phase(t, "draining", time.Minute)
	p.insist(syscall.SIGTERM)
	require.Equal(t, 1, p.Wait(t), "exit code: a second signal waits for nothing")

	network.Resume()
	p = r.started(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireNothingLost(t, r.judge(t))
}
