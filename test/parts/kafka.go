package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/embedded"
)

// KafkaConfig is how an exclusive broker differs from a plain one.
type KafkaConfig struct {
	// ThroughProxy puts a Proxy before the broker: Brokers leads through it, and so does every
	// address that the broker advertises there. The helpers of this package go past it.
	ThroughProxy bool
	// Protocol of the listener that Brokers names: PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL.
	// Empty means PLAINTEXT. The listener is called CLIENT in Properties
	// ("listener.name.client...").
	Protocol string
	// Host is where clients reach that listener; empty: 127.0.0.1.
	Host string
	// Properties are further lines of server.properties, over this package's own.
	Properties map[string]string
	// Listeners are further ones, by name: SASL_PLAINTEXT, PLAINTEXT. Broker.Listener has
	// their addresses.
	Listeners map[string]string
	// Java are further flags of the process.
	Java []string
	// Advertised are addresses that further listeners give for themselves instead of their own.
	Advertised map[string]string

	node        int      // from 1
	controllers []string // addresses of the controllers of its cluster; nil: it is alone
	data        string   // directory; empty: with the other files of the process
}

// Broker is one Kafka broker that does not create topics by itself.
type Broker struct {
	// Real is false for the in-process stand-in.
	Real bool
	// Proxy is in front of the broker; nil: there is none.
	Proxy *Proxy

	clients  []string          // where the code under test connects
	direct   []string          // where the helpers connect
	replicas int16             // of the topics that the helpers create; 0: one
	process  *javaProcess      // nil unless it is a process of ours
	further  map[string]string // addresses of KafkaConfig.Listeners
}

// Listener is where a further listener of an exclusive broker is, host:port.
func (b *Broker) Listener(name string) string { return b.further[name] }

// Kafka gives the test the broker that it shares with the others of its package. Topics should
// have unique names; see Topic.
func Kafka(t testing.TB) *Broker {
	t.Helper()
	broker, err := sharedKafka()
	if broker == nil {
		t.Fatalf("start Kafka: %v", err)
	}
	if !broker.Real {
		lacking(t, "kafka", fmt.Sprintf("an in-process broker stands in for a real one: %v", err))
	}
	return broker
}

// RealKafka is Kafka for tests that mean nothing against a stand-in: they are skipped there.
func RealKafka(t testing.TB) *Broker {
	t.Helper()
	broker := Kafka(t)
	if !broker.Real {
		t.Skip("needs a real Kafka broker")
	}
	return broker
}

// ExclusiveKafka starts a broker for this test alone, which it may pause, kill and restart. It is
// always a process of ours, since those need its process id. It ends with the test.
func ExclusiveKafka(t testing.TB, cfg KafkaConfig) *Broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	broker, err := startKafkaProcess(ctx, cfg)
	if err != nil {
		Lacking(t, "kafka", err.Error())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the Kafka log:\n%s", lastPart(broker.process.out.String(), 4000))
		}
		require.NoError(t, broker.close())
	})
	return broker
}

// sharedKafka goes through the sources in order, once. With the stand-in it returns the error of
// the real ones.
var sharedKafka = sync.OnceValues(func() (*Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if addresses := os.Getenv("POSTRIDER_TEST_KAFKA"); addresses != "" {
		broker := &Broker{Real: true, clients: strings.Split(addresses, ",")}
		broker.direct = broker.clients
		if err := broker.waitReady(ctx); err != nil {
			return nil, fmt.Errorf("connect to POSTRIDER_TEST_KAFKA: %w", err)
		}
		return broker, nil
	}
	broker, dockerErr := startKafkaContainer(ctx)
	if dockerErr == nil {
		return broker, nil
	}
	dockerFailed("Kafka", dockerErr)
	broker, processErr := startKafkaProcess(ctx, KafkaConfig{})
	if processErr == nil {
		AtEnd(broker.close)
		return broker, nil
	}
	why := errors.Join(dockerErr, processErr)
	fake, err := embedded.StartKafka(embedded.KafkaConfig{})
	if err != nil {
		return nil, errors.Join(why, err)
	}
	AtEnd(func() error { fake.Close(); return nil })
	return &Broker{clients: fake.Brokers(), direct: fake.Brokers()}, why
})

// startKafkaContainer runs the official image, or the one that POSTRIDER_TEST_KAFKA_IMAGE names,
// which has to understand the official image's environment.
func startKafkaContainer(ctx context.Context) (*Broker, error) {
	if _, err := dockerPool(); err != nil {
		return nil, err
	}
	image := cmp.Or(os.Getenv("POSTRIDER_TEST_KAFKA_IMAGE"), "apache/kafka:"+KafkaVersion)
	// The broker announces its address to its clients, so it needs its port when it starts.
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	resource, err := runContainer(image, "9092/tcp", port, []string{
		"KAFKA_NODE_ID=1",
		"KAFKA_PROCESS_ROLES=broker,controller",
		// A broker with transactions talks to itself, and from inside of the container the port of
		// this machine leads nowhere.
		"KAFKA_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093,ITSELF://localhost:9094",
		"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://" + address + ",ITSELF://localhost:9094",
		"KAFKA_INTER_BROKER_LISTENER_NAME=ITSELF",
		"KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=" +
			"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,ITSELF:PLAINTEXT",
		"KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0",
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE=false",
	}, nil)
	if err != nil {
		return nil, err
	}
	broker := &Broker{Real: true, clients: []string{address}, direct: []string{address}}
	if err := broker.waitReady(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for Kafka in Docker: %w", err), resource.Close())
	}
	AtEnd(resource.Close)
	return broker, nil
}

// Brokers are the addresses that the code under test should bootstrap from.
func (b *Broker) Brokers() []string { return b.clients }

// Direct is where the helpers connect: no fault that a test makes is on this way.
func (b *Broker) Direct() []string { return b.direct }

// waitReady waits until the broker answers and counts itself in: before that it refuses new
// topics.
func (b *Broker) waitReady(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.direct...), kgo.RetryTimeout(time.Second),
		kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	return eventually(ctx, func(ctx context.Context) error {
		if b.process != nil && !b.process.Running() {
			return errors.New("the process ended")
		}
		if err := client.Ping(ctx); err != nil {
			return err
		}
		if len(client.DiscoveredBrokers()) == 0 {
			return errors.New("no broker has registered yet")
		}
		return nil
	})
}

// Pause stops the process where it is: connections stay open and nothing answers.
func (b *Broker) Pause(t testing.TB) {
	t.Helper()
	require.NoError(t, b.own(t).Pause())
}

// Resume undoes Pause.
func (b *Broker) Resume(t testing.TB) {
	t.Helper()
	require.NoError(t, b.own(t).Resume())
}

// Kill ends the process as a crash would, and waits for its end.
func (b *Broker) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, b.own(t).Kill())
}

// Stop shuts the broker down in an orderly way and waits for its end.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, b.own(t).Stop(Within(t, time.Minute), syscall.SIGTERM))
}

// Running reports whether the process of the broker exists.
func (b *Broker) Running() bool { return b.process.Running() }

// Restart starts the killed or stopped broker on the same data and ports, and waits until it is
// ready.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	b.Launch(t)
	require.NoError(t, b.waitReady(t.Context()), b.process.out.LastLines(20))
}

// Launch is Restart without the wait: a broker is ready only when the cluster has a controller.
func (b *Broker) Launch(t testing.TB) {
	t.Helper()
	require.NoError(t, b.own(t).start())
}

func (b *Broker) own(t testing.TB) *javaProcess {
	t.Helper()
	require.NotNil(t, b.process, "only an exclusive broker may be disturbed")
	return b.process
}

func (b *Broker) close() error {
	var err error
	if b.Proxy != nil {
		err = b.Proxy.Close()
	}
	return errors.Join(err, b.process.close())
}

// kafkaTools are the classes that the scripts of a Kafka distribution run, by the script's name.
var kafkaTools = map[string]string{
	"kafka-acls.sh":             "org.apache.kafka.tools.AclCommand",
	"kafka-configs.sh":          "kafka.admin.ConfigCommand",
	"kafka-topics.sh":           "org.apache.kafka.tools.TopicCommand",
	"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}

// KafkaTool runs a script of Kafka's, such as kafka-topics.sh, with these arguments, requires that
// it succeeds, and returns what it prints. It needs an exclusive broker, whose jars it takes.
func (b *Broker) KafkaTool(t testing.TB, script string, args ...string) string {
	t.Helper()
	class := kafkaTools[script]
	require.NotEmpty(t, class, "what does %s run?", script)
	args = slices.Concat(b.own(t).java, []string{class}, args)
	said, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return string(said)
}
