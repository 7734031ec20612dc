package parts

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/embedded/child"
)

// DebeziumVersion is the connector that the tests compare with, the one in connect/debezium.xml; a
// test holds the two together.
const DebeziumVersion = "3.7.0.Final"

//go:embed connect/worker.xml connect/debezium.xml
var connectFiles embed.FS

// connectProcess is a Kafka Connect worker in a Java process. What it has to remember is in its
// topics.
type connectProcess struct {
	jars   string // directory of the class path
	dir    string // of the properties file; removed by close
	remove func() error
	url    string
	out    *child.Output
	child  *child.Process
}

// newConnectProcess fetches the jars if this machine has none and writes the properties. It does
// not start the worker.
func newConnectProcess(ctx context.Context, brokers []string,
	properties map[string]string) (*connectProcess, error) {
	if err := checkJava(ctx); err != nil {
		return nil, err
	}
	jars, err := prepareJars(ctx, "connect-"+KafkaVersion, connectFiles, "connect/worker.xml")
	if err != nil {
		return nil, err
	}
	debezium, err := prepareJars(ctx, "debezium-"+DebeziumVersion, connectFiles,
		"connect/debezium.xml")
	if err != nil {
		return nil, err
	}
	port, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	dir, remove, err := child.TempDir("", "postrider-connect-")
	if err != nil {
		return nil, err
	}
	process := &connectProcess{jars: jars, dir: dir, remove: remove,
		url: fmt.Sprintf("http://127.0.0.1:%d", port), out: &child.Output{}}
	all, err := connectProperties(dir, brokers, process.url, debezium)
	if err == nil {
		maps.Copy(all, properties)
		err = writeProperties(process.propertiesFile(), all)
	}
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return process, nil
}

// connectProperties suit a worker that starts fast. Everything that decides what a connector
// publishes, and when it stores its offsets, is as Kafka Connect has it by default.
func connectProperties(dir string, brokers []string, url, debezium string) (map[string]string,
	error) {
	// Each directory in plugin.path is one plugin.
	plugins := filepath.Join(dir, "plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of plugins: %w", err)
	}
	if err := os.Symlink(debezium,
		filepath.Join(plugins, "debezium-connector-postgres")); err != nil {
		return nil, fmt.Errorf("put Debezium among the plugins: %w", err)
	}
	group := Unique("connect")
	return map[string]string{
		"bootstrap.servers":                 strings.Join(brokers, ","),
		"group.id":                          group,
		"config.storage.topic":              group + ".configs",
		"offset.storage.topic":              group + ".offsets",
		"status.storage.topic":              group + ".status",
		"config.storage.replication.factor": "1",
		"offset.storage.replication.factor": "1",
		"status.storage.replication.factor": "1",
		"offset.storage.partitions":         "1",
		"status.storage.partitions":         "1",
		"key.converter":                     "org.apache.kafka.connect.json.JsonConverter",
		"value.converter":                   "org.apache.kafka.connect.json.JsonConverter",
		"listeners":                         url,
		"plugin.path":                       plugins,
		// reads only jars that list their plugins
		"plugin.discovery": "service_load",
		// tasks of a worker that has gone start elsewhere at once
		"scheduled.rebalance.max.delay.ms": "0",
		// How soon a worker that was killed may take up its work again.
		"session.timeout.ms":    "6000",
		"heartbeat.interval.ms": "1000",
	}, nil
}

func (c *connectProcess) propertiesFile() string {
	return filepath.Join(c.dir,
		"connect.properties")
}

func (c *connectProcess) start() error {
	var me child.Account
	cmd := me.Command("java",
		append(javaFlags(c.jars), "org.apache.kafka.connect.cli.ConnectDistributed",
			c.propertiesFile())...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = c.out, c.out
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	c.child = process
	return nil
}

func (c *connectProcess) kill() error {
	if err := c.child.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.child.Done
	return nil
}

// close ends the worker, whatever its state, and removes its files.
func (c *connectProcess) close() error {
	var err error
	if c.child != nil {
		err = c.kill()
	}
	return errors.Join(err, c.remove())
}
