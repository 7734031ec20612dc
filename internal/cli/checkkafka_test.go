package cli

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/test/parts"
)

func TestCheck_NamesABrokerThatCannotBeReachedUnderItsAddress(t *testing.T) {
	k := kafkaBroker(t)
	gone := parts.Nobody(t)
	host, port, err := net.SplitHostPort(gone)
	require.NoError(t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	require.NoError(t, err)
	k.Cluster.ControlKey(int16(kmsg.Metadata),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.Cluster.KeepControl()
			out := req.ResponseKind().(*kmsg.MetadataResponse)
			out.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 7, Host: host, Port: int32(number)}}
			return out, nil, true
		})
	i := newInstall(t, "17", k.Brokers()...)
	i.ok("init")
	code, found := i.check()
	require.Equal(t, exit.Unavailable, code)
	require.Equal(t, check.SeverityError, found["broker"].Severity)
	require.Equal(t, "7 at "+gone, found["broker"].Subject)
	require.Contains(t, found["broker"].Fix, "advertised.listeners")
}

func TestCheck_GivesUpOnABrokerThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never says a word
	require.NoError(t, err)
	defer l.Close()
	i := newInstall(t, "17", l.Addr().String())
	i.ok("init")
	began := time.Now()
	code, found := i.check("--set", "sink.kafka.dial_timeout=300ms")
	require.Equal(t, exit.Unavailable, code)
	require.Equal(t, check.SeverityError, found["kafka"].Severity)
	require.Equal(t, check.SeverityOK, found["slot"].Severity, "the rest is there")
	require.Less(t, time.Since(began), check.Timeout)
}
