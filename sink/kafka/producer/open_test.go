package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func TestOpen_NamesEveryBrokerItTried(t *testing.T) {
	first, second := parts.Nobody(t), parts.Nobody(t)
	err := openFails(t, quick(first, second, "no-such-host.invalid:9092"))
	require.ErrorIs(t, err, sink.ErrUnreachable)
	requireAdvice(t, err)
	for _, text := range []string{first + ": connection refused", second + ": connection refused",
		"no-such-host.invalid:9092", "sink.kafka.brokers"} {
		require.ErrorContains(t, err, text)
	}
}

func TestOpen_IsContentWithOneBroker(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"))
	requireDelivers(t, quick(parts.Nobody(t), c.ListenAddrs()[0]))
}

func TestOpen_GivesUpOnABrokerThatSaysNothing(t *testing.T) {
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.ListenFn(gate.Listen))
	defer gate.Shut()()
	cfg := quick(c.ListenAddrs()...)
	cfg.DialTimeout = 50 * time.Millisecond
	require.ErrorIs(t, openFails(t, cfg), sink.ErrUnreachable)
}

func TestOpen_EndsWithItsContext(t *testing.T) {
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.ListenFn(gate.Listen))
	defer gate.Shut()()
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, enough)
	defer cancel()
	cfg := quick(c.ListenAddrs()...)
	cfg.DialTimeout = time.Minute
	_, err := Open(ctx, cfg, zerolog.Nop(), nil)
	require.ErrorIs(t, err, enough)
}

func TestOpen_RefusesABadConfiguration(t *testing.T) {
	_, err := Open(context.Background(), kafka.Config{}, zerolog.Nop(), nil)
	require.ErrorContains(t, err, "sink.kafka.brokers")
}

// writer is a user who may write to some topics, and describe them.
func writer(topics ...string) kfake.Opt {
	var acls []kfake.ACL
	for _, topic := range topics {
		for _, op := range []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe} {
			acls = append(acls, kfake.ACL{
				Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral,
				Operation: op, Allow: true,
			})
		}
	}
	return kfake.User("PLAIN", "rider", "s3cret", acls...)
}

func TestPublish_NeedsPermissionForTheTopic(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders", "secrets"), kfake.EnableSASL(),
		kfake.EnableACLs(), writer("orders"))
	cfg := quick(c.ListenAddrs()...)
	cfg.SASL = kafka.SASLConfig{Mechanism: "PLAIN", Username: "rider", Password: secret.Of("s3cret")}
	requireDelivers(t, cfg)

	s := openSink(t, cfg, newOutcomes().done)
	err := s.Publish(parts.Within(t, patience), numbered("secrets", 1))
	require.ErrorIs(t, err, sink.ErrPermission)
	require.ErrorContains(t, err, "kafka-acls.sh")
	requireAdvice(t, err)
	require.ErrorContains(t, err, "secrets")
}

func TestOpen_NeedsPermissionToProduce(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(), kfake.EnableACLs(),
		writer())
	cfg := quick(c.ListenAddrs()...)
	cfg.SASL = kafka.SASLConfig{Mechanism: "PLAIN", Username: "rider", Password: secret.Of("s3cret")}
	err := openFails(t, cfg)
	require.ErrorIs(t, err, sink.ErrPermission)
	requireAdvice(t, err)
}

// Without a producer id a client repeats requests all the same, and brokers write them twice, or
// behind others.
func TestOpen_NeedsAProducerID(t *testing.T) {
	old := kversion.V2_8_0()
	old.SetMaxKeyVersion(int16(kmsg.InitProducerID), -1)
	err := openFails(t, quick(parts.Cluster(t, kfake.MaxVersions(old)).ListenAddrs()...))
	require.ErrorIs(t, err, errNoProducerID)

	cfg := quick(parts.Cluster(t).ListenAddrs()...)
	cfg.Version = "0.10.2.0"
	require.ErrorIs(t, openFails(t, cfg), errNoProducerID)
}
