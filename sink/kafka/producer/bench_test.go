package producer

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// BenchmarkSink publishes as the relay does in a drain: transactions of ten rows, 200-byte values,
// a bounded number in flight. cpu-µs/msg includes the broker in the same process, which discards
// the records.
func BenchmarkSink(b *testing.B) {
	for _, per := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", per), func(b *testing.B) { benchmarkSink(b, per) })
	}
}

func benchmarkSink(b *testing.B, per int) {
	c := parts.Cluster(b, kfake.SeedTopics(12, "orders"), kfake.BlackholeProduce())
	const window = 5_000
	room := make(chan struct{}, window/per)
	var acked, failed atomic.Int64
	done := func(_ *sink.Message, err error) {
		if err != nil {
			failed.Add(1)
		}
		if acked.Add(1)%int64(per) == 0 {
			<-room
		}
	}
	cfg := quick(c.ListenAddrs()...)
	s, err := Open(parts.Within(b, patience), cfg, zerolog.Nop(), done)
	require.NoError(b, err)
	defer func() { _ = s.Close(parts.Within(b, patience)) }()

	ms := make([]*sink.Message, window*2)
	value := make([]byte, 200)
	for i := range ms {
		ms[i] = &sink.Message{
			Topic: "orders", Key: fmt.Appendf(nil, "%08d", i%5000), Value: value, Partition: sink.ByKey,
			Timestamp: time.Now(),
			Headers: []sink.Header{{Key: "id", Value: []byte("3f2504e0-4f89-11d3-9a0c-0305e82c3301")},
				{Key: "eventType", Value: []byte("OrderCreated")}},
		}
	}
	ctx := parts.Within(b, time.Minute)
	require.NoError(b, s.topics.ensure(ctx, "orders"))

	var requests atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	before := cpu(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += per {
		room <- struct{}{}
		at := i % (len(ms) - per)
		if err := s.Publish(ctx, ms[at:at+per]); err != nil {
			b.Fatal(err)
		}
	}
	for range cap(room) { // full again: all is acknowledged
		room <- struct{}{}
	}
	b.StopTimer()
	require.Zero(b, failed.Load())
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/msg")
	b.ReportMetric(float64(b.N)/float64(requests.Load()), "msg/request")
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
