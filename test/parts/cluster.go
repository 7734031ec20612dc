package parts

import (
	"context"
	"hash/crc32"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded"
)

// Cluster starts an in-process broker that ends with the test.
func Cluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// FakeKafka starts an in-process cluster for this test alone, whose answers the test chooses:
// errors of brokers on demand, leaders that move. It shows how the relay handles such an answer,
// not what a real broker does. It ends with the test.
func FakeKafka(t testing.TB, cfg embedded.KafkaConfig) (*Broker, *embedded.Kafka) {
	t.Helper()
	fake, err := embedded.StartKafka(cfg)
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	return &Broker{clients: fake.Brokers(), direct: fake.Brokers()}, fake
}

// Within is a context that ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Nobody is an address without a listener.
func Nobody(t testing.TB) string {
	t.Helper()
	// none that a connection or another test's listener is given meanwhile
	address, err := freeAddress()
	require.NoError(t, err)
	return address
}

// SplitPort divides an address.
func SplitPort(t testing.TB, addr string) (string, int32) {
	t.Helper()
	host, text, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	port, err := strconv.ParseInt(text, 10, 32)
	require.NoError(t, err)
	return host, int32(port)
}

// RecordBatch is a batch as a broker keeps it: of offsets from first to first+span, of which
// records are left.
func RecordBatch(first int64, span int32, control, transactional bool,
	records ...kgo.Record) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: first, LastOffsetDelta: span, Magic: 2, PartitionLeaderEpoch: -1, ProducerID: -1,
		ProducerEpoch: -1, FirstSequence: -1,
		FirstTimestamp: time.Now().UnixMilli(), NumRecords: int32(len(records)), //nolint:gosec // a few
	}
	if control {
		b.Attributes |= 1 << 5
	}
	if transactional {
		b.Attributes |= 1 << 4
	}
	for _, r := range records {
		of := kmsg.Record{OffsetDelta: int32(r.Offset - first), Key: r.Key,
			Value: r.Value} //nolint:gosec // small
		for _, h := range r.Headers {
			of.Headers = append(of.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		// behind the length, which is zero
		body := of.AppendTo(nil)[1:]
		b.Records = append(kbin.AppendVarint(b.Records, int32(len(body))),
			body...) //nolint:gosec // small
	}
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)                                            //nolint:gosec // small
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))) //nolint:gosec // bits
	return b.AppendTo(nil)
}
