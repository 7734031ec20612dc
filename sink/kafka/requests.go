package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests is a hook of the client that tells of each request to produce. Requests are what a broker pays for.
type requests struct{ requested func(bytes int) }

var _ kgo.HookBrokerWrite = requests{}

// OnBrokerWrite is called by the client's goroutines, one per connection.
func (r requests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, err error) {
	if err == nil && key == int16(kmsg.Produce) && r.requested != nil {
		r.requested(bytes)
	}
}
