package parts

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
)

// ConnectWorker is a Kafka Connect worker of one test, in distributed mode, with Debezium's
// PostgreSQL connector in its plugin.path. Its own topics have names of their own.
type ConnectWorker struct {
	process *javaProcess
	url     string
	client  *http.Client
}

// DebeziumVersion is the connector that the tests compare with, the one in connect/debezium.xml; a
// test compares the two.
const DebeziumVersion = "3.7.0.Final"

//go:embed connect/worker.xml connect/debezium.xml
var connectFiles embed.FS

// KafkaConnect starts a worker on the broker, with further lines of its properties file over this
// package's own. It ends with the test, which may kill and restart it. Without Java and Maven, or
// a real broker, the test is skipped.
func KafkaConnect(t testing.TB, broker *Broker, properties map[string]string) *ConnectWorker {
	t.Helper()
	if !broker.Real {
		Lacking(t, "connect", "no real Kafka broker to run it on")
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	worker, err := newConnectWorker(ctx, broker.direct, properties)
	if err != nil {
		Lacking(t, "connect", err.Error())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the Kafka Connect log:\n%s", lastPart(worker.process.out.String(), 8000))
		}
		require.NoError(t, worker.process.close())
	})
	worker.Restart(t)
	return worker
}

// newConnectWorker fetches the jars if this machine has none and writes the properties. It does
// not start the worker.
func newConnectWorker(ctx context.Context, brokers []string, properties map[string]string) (
	*ConnectWorker, error) {
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
	process, err := newJavaProcess("connect", "org.apache.kafka.connect.cli.ConnectDistributed",
		javaFlags(jars))
	if err != nil {
		return nil, err
	}
	// Each directory in plugin.path is one plugin.
	plugins := filepath.Join(process.dir, "plugins")
	w := &ConnectWorker{process: process, url: fmt.Sprintf("http://127.0.0.1:%d", port),
		// Connections that stay open would be goroutines left behind at the end.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	all := connectProperties(brokers, w.url, plugins)
	maps.Copy(all, properties)
	err = errors.Join(os.Mkdir(plugins, 0o755),
		os.Symlink(debezium, filepath.Join(plugins, "debezium-connector-postgres")),
		writeProperties(process.propertiesFile(), all))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare Kafka Connect: %w", err), process.close())
	}
	return w, nil
}

// connectProperties suit a worker that starts fast. Everything that decides what a connector
// publishes, and when it stores its offsets, is as Kafka Connect has it by default.
func connectProperties(brokers []string, url, plugins string) map[string]string {
	group := Unique("connect")
	p := map[string]string{
		"bootstrap.servers": strings.Join(brokers, ","),
		"group.id":          group,
		"key.converter":     "org.apache.kafka.connect.json.JsonConverter",
		"value.converter":   "org.apache.kafka.connect.json.JsonConverter",
		"listeners":         url,
		"plugin.path":       plugins,
		// reads only jars that list their plugins
		"plugin.discovery": "service_load",
		// tasks of a worker that has ended start elsewhere at once
		"scheduled.rebalance.max.delay.ms": "0",
		// how soon a worker that was killed may take up its work again
		"session.timeout.ms":    "6000",
		"heartbeat.interval.ms": "1000",
	}
	for _, kind := range []string{"config", "offset", "status"} {
		p[kind+".storage.topic"] = group + "." + kind + "s"
		p[kind+".storage.replication.factor"] = "1"
	}
	p["status.storage.topic"] = group + ".status"
	p["offset.storage.partitions"], p["status.storage.partitions"] = "1", "1"
	return p
}

// URL is where the worker's REST interface is, without a slash at its end.
func (w *ConnectWorker) URL() string { return w.url }

// Create adds a connector, or changes the one of this name, and waits until it and its task run.
func (w *ConnectWorker) Create(t testing.TB, name string, config map[string]string) {
	t.Helper()
	w.must(t, http.MethodPut, "/connectors/"+name+"/config", config)
	w.AwaitRunning(t, name)
}

// AwaitRunning waits until the connector and its task run, and fails the test if they do not but
// fail.
func (w *ConnectWorker) AwaitRunning(t testing.TB, name string) {
	t.Helper()
	failed := ""
	w.await(t, name, func(s ConnectorStatus) bool {
		for _, part := range append([]ConnectorState{s.Connector}, s.Tasks...) {
			if part.State == "FAILED" {
				failed = part.Trace
				return true
			}
		}
		return s.Connector.State == "RUNNING" && len(s.Tasks) == 1 && s.Tasks[0].State == "RUNNING"
	})
	require.Empty(t, failed, "connector %s has failed", name)
}

// Stop stops a connector as an operator would, and waits until its task has ended: its offsets
// stay readable.
func (w *ConnectWorker) Stop(t testing.TB, name string) {
	t.Helper()
	w.must(t, http.MethodPut, "/connectors/"+name+"/stop", nil)
	w.await(t, name,
		func(s ConnectorStatus) bool {
			return s.Connector.State == "STOPPED" && len(s.Tasks) == 0
		})
}

// Resume lets a stopped connector run again, from its offsets, and waits until it does.
func (w *ConnectWorker) Resume(t testing.TB, name string) {
	t.Helper()
	w.must(t, http.MethodPut, "/connectors/"+name+"/resume", nil)
	w.AwaitRunning(t, name)
}

// Delete removes a connector. Its offsets stay in the worker's topic, and can no longer be read
// through the worker.
func (w *ConnectWorker) Delete(t testing.TB, name string) {
	t.Helper()
	w.must(t, http.MethodDelete, "/connectors/"+name, nil)
}

// Offsets returns the stored progress of the connector: the body of GET
// /connectors/NAME/offsets.
func (w *ConnectWorker) Offsets(t testing.TB, name string) []byte {
	t.Helper()
	return w.must(t, http.MethodGet, "/connectors/"+name+"/offsets", nil)
}

// ConnectorStatus is the body of GET /connectors/NAME/status.
type ConnectorStatus struct {
	Connector ConnectorState   `json:"connector"`
	Tasks     []ConnectorState `json:"tasks"`
}

// ConnectorState is RUNNING, FAILED, STOPPED, UNASSIGNED and so on.
type ConnectorState struct {
	State string `json:"state"`
	Trace string `json:"trace"` // of the exception, if it failed
}

// await waits until the connector's status is as wanted. Just after a connector was created, a
// worker may not have it yet.
func (w *ConnectWorker) await(t testing.TB, name string, wanted func(ConnectorStatus) bool) {
	t.Helper()
	require.NoError(t, eventually(t.Context(), func(ctx context.Context) error {
		body, err := w.call(ctx, http.MethodGet, "/connectors/"+name+"/status", nil)
		if err != nil {
			return err
		}
		var s ConnectorStatus
		if err := json.Unmarshal(body, &s); err != nil {
			return err
		}
		if !wanted(s) {
			return fmt.Errorf("status of connector %s: %s", name, body)
		}
		return nil
	}))
}

// must is call for requests that succeed sooner or later: while a worker takes up its work, it
// refuses them.
func (w *ConnectWorker) must(t testing.TB, method, path string, body any) []byte {
	t.Helper()
	var answer []byte
	require.NoError(t, eventually(t.Context(), func(ctx context.Context) (err error) {
		answer, err = w.call(ctx, method, path, body)
		return err
	}))
	return answer
}

func (w *ConnectWorker) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	if !w.process.Running() {
		return nil, fmt.Errorf("the Kafka Connect worker has ended: %s",
			w.process.out.LastLines(20))
	}
	var document []byte
	if body != nil {
		var err error
		if document, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, w.url+path, bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status,
			strings.TrimSpace(string(answer)))
	}
	return answer, nil
}

// Kill ends the worker as a crash would, and waits for its end: offsets that it has not
// flushed are lost.
func (w *ConnectWorker) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, w.process.Kill())
}

// Restart starts the killed worker with its old topics, and waits until it answers and has taken
// up its work.
func (w *ConnectWorker) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, w.process.start())
	w.must(t, http.MethodGet, "/connectors", nil)
}
