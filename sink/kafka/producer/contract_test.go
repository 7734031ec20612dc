package producer

import (
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/sinktest"
	"github.com/postrider/postrider/test/parts"
)

func TestKafka_FulfilsTheContract(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Subject {
		gate := &parts.Gate{}
		c := parts.Cluster(t, kfake.SeedTopics(4, "orders"), kfake.ListenFn(gate.Listen))
		cfg := unhurried(c.ListenAddrs()...)
		return sinktest.Subject{
			Open: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
				return Open(ctx, cfg, zerolog.Nop(), done)
			},
			Topic: "orders", Partitions: 4,
			Read: func(t *testing.T, n int) []sinktest.Record {
				return asRecords(read(t, c, "orders", n))
			},
			Stall: func(*testing.T) func() { return gate.Shut() },
			// The first appears when Close had to cut the connections; the others are the broker's
			// ends of them.
			Outlives: []string{
				"github.com/twmb/franz-go/pkg/kfake.(*clientConn).read",
				"github.com/twmb/franz-go/pkg/kfake.(*clientConn).write",
			},
		}
	})
}

func asRecords(records []*kgo.Record) []sinktest.Record {
	out := make([]sinktest.Record, len(records))
	for i, r := range records {
		out[i] = sinktest.Record{Partition: r.Partition, Key: r.Key, Value: r.Value,
			Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, sink.Header{Key: h.Key, Value: h.Value})
		}
	}
	return out
}
