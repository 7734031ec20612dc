package parts

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
)

// KafkaVersion is the broker that the tests start, the one in kafka/pom.xml; a test compares
// the two.
const KafkaVersion = "4.1.2"

//go:embed kafka/pom.xml
var kafkaFiles embed.FS

// kafkaCache is what brokers start from, made once and kept in the user's cache.
type kafkaCache struct {
	jars      string // directory of the class path
	formatted string // an empty data directory
	classes   string // archive of the classes that a broker loads
}

// startKafkaProcess starts a broker, fetching its jars first if this machine has none.
func startKafkaProcess(ctx context.Context, cfg KafkaConfig) (*Broker, error) {
	if err := checkJava(ctx); err != nil {
		return nil, err
	}
	cache, err := prepareKafka(ctx)
	if err != nil {
		return nil, err
	}
	return newKafkaProcess(ctx, cfg, cache, "-XX:SharedArchiveFile="+cache.classes)
}

func newKafkaProcess(ctx context.Context, cfg KafkaConfig, cache kafkaCache,
	classes string) (*Broker, error) {
	process, err := newJavaProcess("kafka", "kafka.Kafka",
		slices.Concat(javaFlags(cache.jars), cfg.Java, []string{classes}))
	if err != nil {
		return nil, err
	}
	broker := &Broker{Real: true, process: process}
	if err := broker.startNew(ctx, cfg, cache.formatted); err != nil {
		return nil, errors.Join(fmt.Errorf("start Kafka: %w\n%s", err, process.out.LastLines(20)),
			broker.close())
	}
	return broker, nil
}

// startNew configures the broker, starts it, and returns when it is ready.
func (b *Broker) startNew(ctx context.Context, cfg KafkaConfig, formatted string) error {
	if err := b.configure(cfg, formatted); err != nil {
		return err
	}
	if err := b.process.start(); err != nil {
		return err
	}
	return b.waitReady(ctx)
}

// configure gives the broker its ports, its configuration and its formatted data.
func (b *Broker) configure(cfg KafkaConfig, formatted string) error {
	client, clientErr := freeAddressOf(cmp.Or(cfg.Host, "127.0.0.1"))
	direct, directErr := freeAddress()
	if err := errors.Join(clientErr, directErr); err != nil {
		return err
	}
	if cfg.controllers == nil {
		controller, err := freeAddress()
		if err != nil {
			return err
		}
		cfg.node, cfg.controllers = 1, []string{controller}
	}
	advertised := client
	if cfg.ThroughProxy {
		proxy, err := StartProxy(client)
		if err != nil {
			return err
		}
		b.Proxy, advertised = proxy, proxy.Addr()
	}
	b.clients, b.direct = []string{advertised}, []string{direct}

	data := filepath.Join(cmp.Or(cfg.data, b.process.dir), "data")
	if err := os.CopyFS(data, os.DirFS(formatted)); err != nil {
		return fmt.Errorf("copy the formatted data directory: %w", err)
	}
	if err := nameNode(data, cfg.node); err != nil {
		return err
	}
	properties := kafkaProperties(data, cfg.node, cfg.controllers)
	properties["listeners"] = fmt.Sprintf("CLIENT://%s,DIRECT://%s", client, direct)
	if cfg.node <= len(cfg.controllers) {
		properties["listeners"] += ",CONTROLLER://" + cfg.controllers[cfg.node-1]
	}
	properties["advertised.listeners"] = fmt.Sprintf("CLIENT://%s,DIRECT://%s", advertised, direct)
	properties["listener.security.protocol.map"] = "CLIENT:" +
		cmp.Or(cfg.Protocol, "PLAINTEXT") + ",DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	if err := b.addListeners(properties, cfg); err != nil {
		return err
	}
	maps.Copy(properties, cfg.Properties)
	return writeProperties(b.process.propertiesFile(), properties)
}

func freeAddress() (string, error) { return freeAddressOf("127.0.0.1") }

func freeAddressOf(host string) (string, error) {
	port, err := child.FreePort()
	return fmt.Sprintf("%s:%d", host, port), err
}

// addListeners adds those of KafkaConfig.Listeners.
func (b *Broker) addListeners(properties map[string]string, cfg KafkaConfig) error {
	b.further = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Listeners)) {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		b.further[name] = address
		advertised := cmp.Or(cfg.Advertised[name], address)
		properties["listeners"] += "," + name + "://" + address
		properties["advertised.listeners"] += "," + name + "://" + advertised
		properties["listener.security.protocol.map"] += "," + name + ":" + cfg.Listeners[name]
	}
	return nil
}

// kafkaProperties suit a small broker that starts fast. The first nodes, one for each of the
// addresses of controllers, are controllers too.
func kafkaProperties(data string, node int, controllers []string) map[string]string {
	roles, voters := "broker", make([]string, len(controllers))
	if node <= len(controllers) {
		roles = "broker,controller"
	}
	for i, address := range controllers {
		voters[i] = fmt.Sprintf("%d@%s", i+1, address)
	}
	return map[string]string{
		"process.roles":                  roles,
		"node.id":                        strconv.Itoa(node),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "DIRECT",
		"listeners":                      "DIRECT://127.0.0.1:0,CONTROLLER://" + controllers[0],
		"listener.security.protocol.map": "DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       data,
		// records of tests carry times of years ago
		"log.retention.ms":                         "-1",
		"auto.create.topics.enable":                "false",
		"num.partitions":                           "1",
		"offsets.topic.replication.factor":         "1",
		"offsets.topic.num.partitions":             "1",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.num.partitions":     "1",
		"transaction.state.log.min.isr":            "1",
		"group.initial.rebalance.delay.ms":         "0",
		"group.coordinator.rebalance.protocols":    "classic,consumer",
		"controlled.shutdown.enable":               "false", // there is no other broker
		// How soon a broker that was killed may register again.
		"broker.session.timeout.ms":    "2000",
		"broker.heartbeat.interval.ms": "400",
		"num.network.threads":          "2",
		"num.io.threads":               "4",
	}
}

// nameNode makes the formatted data directory, which is that of node 1, one of another node.
func nameNode(data string, node int) error {
	file := filepath.Join(data, "meta.properties")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the formatted data directory: %w", err)
	}
	id := rand.Text()[:directoryID]
	text = nodeInMeta.ReplaceAll(text, fmt.Appendf(nil, "node.id=%d", node))
	text = directoryInMeta.ReplaceAll(text, fmt.Appendf(nil, "directory.id=%s", id))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("write meta.properties: %w", err)
	}
	return nil
}

// directoryID is the length of a UUID in Kafka's form: 16 bytes in base64, without padding.
const directoryID = 22

var (
	nodeInMeta      = regexp.MustCompile(`(?m)^node\.id=.*$`)
	directoryInMeta = regexp.MustCompile(`(?m)^directory\.id=.*$`)
)

// prepareKafka makes what is not in the cache yet.
func prepareKafka(ctx context.Context) (cache kafkaCache, err error) {
	if cache.jars, err = prepareJars(ctx, "kafka-"+KafkaVersion, kafkaFiles,
		"kafka/pom.xml"); err != nil {
		return kafkaCache{}, err
	}
	cache.formatted = cache.jars + "-formatted"
	err = embedded.PrepareOnce(ctx, cache.formatted,
		func(tmp string) error { return formatKafka(ctx, cache.jars, tmp) })
	if err != nil {
		return kafkaCache{}, err
	}
	const archive = "classes.jsa"
	dir := cache.jars + "-classes"
	cache.classes = filepath.Join(dir, archive)
	err = embedded.PrepareOnce(ctx, dir,
		func(tmp string) error { return archiveClasses(ctx, cache, filepath.Join(tmp, archive)) })
	return cache, err
}

// archiveClasses has a broker write an archive of its loaded classes at its end. With it a broker
// starts in half of the time, and tests of faults, which start many, take a fifth less CPU.
// Another version of Java ignores the archive.
func archiveClasses(ctx context.Context, cache kafkaCache, file string) error {
	broker, err := newKafkaProcess(ctx, KafkaConfig{}, cache, "-XX:ArchiveClassesAtExit="+file)
	if err != nil {
		return err
	}
	return errors.Join(broker.process.Stop(ctx, syscall.SIGTERM), broker.close())
}

// formatKafka makes the data directory that all brokers start from. It contains no address.
func formatKafka(ctx context.Context, jars, dir string) error {
	properties := filepath.Join(filepath.Dir(dir), "format.properties")
	values := kafkaProperties(dir, 1, []string{"127.0.0.1:1"})
	if err := writeProperties(properties, values); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "java", append(javaFlags(jars), "kafka.tools.StorageTool",
		"format", "--cluster-id", "cG9zdHJpZGVyLXRlc3RzLQ", "--config", properties)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's data directory: %w\n%s", err,
			lastPart(string(output), 2000))
	}
	return nil
}
