package faults

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/test/parts"
)

// disturbance is something ordinary, which ends by itself or by what happens does.
type disturbance struct {
	name    string
	happens func(z *zoo) // until it is over
	told    []string     // conditions that hold meanwhile; information aside
}

var disturbances = []disturbance{
	{"SIGHUP", func(z *zoo) { z.relay.signal(z.t, syscall.SIGHUP) }, nil},
	{"reload of the server", func(z *zoo) { execute(z.t, z.dsn, "SELECT pg_reload_conf()") }, nil},
	{"pause and resume", func(z *zoo) {
		z.asks("pause")
		eventually(z.t, 0, "the pause is reported", func() bool { return z.reports(health.Paused) })
		z.asks("resume")
	}, []string{health.Paused}},
	{"restart of the server", func(z *zoo) {
		require.NoError(z.t, z.server.StopMode(z.t.Context(), embedded.Fast))
		eventually(z.t, 0, "the server is missed", func() bool { return z.reports(health.NotReady) })
		require.NoError(z.t, z.server.Start(z.t.Context()))
	}, []string{health.NotReady}},
	{"restart of the broker", func(z *zoo) {
		z.broker.Stop(z.t)
		z.broker.Restart(z.t)
	}, []string{health.NotReady, health.Stuck}},
	{"takeover", func(z *zoo) {
		first := z.relay
		z.relay, z.second = z.second, nil
		first.stop(z.t)
		z.relay.streams(z.t, time.Minute)
	}, nil},
}

// streams tells whether a relay streams, which z.relay is from then on: the slot is the first one's that asks for it when a session has ended.
func (z *zoo) streams() bool {
	if z.second != nil && z.second.ask().Relay.Phase == "streaming" {
		z.relay, z.second = z.second, z.relay
	}
	return z.relay.ask().Relay.Phase == "streaming"
}

// reports tells whether the relay's verdict has a condition that is no information.
func (z *zoo) reports(condition string) bool {
	return slices.Contains(z.alarms(), condition)
}

func (z *zoo) alarms() (names []string) {
	v, err := z.verdict()
	require.NoError(z.t, err)
	for _, c := range v.Conditions {
		if c.Severity != health.Info {
			names = append(names, c.Name)
		}
	}
	return names
}

// writesOn is writes for a server that comes and goes.
func (z *zoo) writesOn(ctx context.Context, perSecond int) {
	z.wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		var conn *pgx.Conn
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close(context.Background())
				}
				return
			}
			var err error
			if conn == nil {
				if conn, err = pgx.Connect(ctx, z.dsn); err != nil {
					conn = nil
					continue
				}
			}
			if _, err = conn.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
				SELECT $1, (n % 100)::text, '{}', n FROM generate_series(1, $2::int) n`, z.topic, perSecond/10); err != nil {
				_ = conn.Close(context.Background())
				conn = nil
			}
		}
	})
}

// What is ordinary is told of only as what it is, and no longer than it lasts.
func TestZoo_WhatIsOverIsReportedNoMore(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "16", "17", "18"} {
		if !*long && version != "17" {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			z := newZoo(t, version, "512MB", nil, parts.ExclusiveKafka(t, parts.KafkaConfig{}))
			z.second = z.start(t)
			z.second.phase(t, "standby", time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			defer z.wg.Wait()
			defer cancel()
			z.writesOn(ctx, full(t, 200, 1000)) // else lag is what a busy machine really has
			for _, d := range disturbances {
				d.happens(z)
				over := time.Now()
				eventually(t, 10*time.Second, d.name+": nothing is reported any more", func() bool {
					streams, alarms := z.streams(), z.alarms()
					require.Subset(t, d.told, alarms, d.name)
					return streams && len(alarms) == 0
				})
				quiet := time.Since(over)
				t.Logf("%s on %s: nothing reported %.1f s after its end", d.name, version, quiet.Seconds())
				if *long {
					require.LessOrEqual(t, quiet, 10*time.Second, d.name)
				}
				during(2*time.Second, func() { require.Empty(t, z.alarms(), "%s, behind its end", d.name) })
			}
		})
	}
}

// A partition that gets another leader is nothing to report: rows wait for a moment, and come.
func TestZoo_LeadersThatMoveAreNotReported(t *testing.T) {
	t.Parallel()
	broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{Brokers: 3}) // a real broker here is alone
	z := newZoo(t, "17", "512MB", nil, broker)
	ctx, cancel := context.WithCancel(t.Context())
	defer z.wg.Wait()
	defer cancel()
	z.writesOn(ctx, full(t, 200, 1000)) // else lag is what a busy machine really has
	z.looks(courseTime()/2, func(second int) {
		if second%2 == 0 {
			fake.Cluster.ShufflePartitionLeaders()
		}
	}, nil)
	t.Logf("leaders moved every two seconds for %s:%s", courseTime()/2, z.table())
	for condition := range z.held {
		require.True(t, strings.HasPrefix(condition, string(health.Info)+" "), "%s", z.table())
	}
	require.Positive(t, broker.EndOffsets(t, "outbox.event."+z.topic)[0])
}
