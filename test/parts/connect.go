package parts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ConnectWorker is a Kafka Connect worker of one test, in distributed mode, with Debezium's
// PostgreSQL connector in its plugin.path. Its own topics have names of their own.
type ConnectWorker struct {
	process *connectProcess
	url     string
	client  *http.Client
}

// KafkaConnect starts a worker on the broker, with further lines of its properties file over this
// package's own. It ends with the test, which may kill and restart it. Without Java and Maven, or
// a real broker, the test is skipped.
func KafkaConnect(t testing.TB, broker *Broker, properties map[string]string) *ConnectWorker {
	t.Helper()
	if !broker.Real {
		lacking(t, "connect", "no real Kafka broker to run it on")
		t.Skip("Kafka Connect needs a real Kafka broker")
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	process, err := newConnectProcess(ctx, broker.direct, properties)
	if err != nil {
		lacking(t, "connect", err.Error())
		t.Skipf("no Kafka Connect: %v", err)
	}
	// Connections that stay open would be goroutines left behind at the end.
	worker := &ConnectWorker{process: process, url: process.url,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the Kafka Connect log:\n%s", lastPart(process.out.String(), 8000))
		}
		require.NoError(t, process.close())
	})
	worker.Restart(t)
	return worker
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

// Offsets returns what the worker has stored of how far the connector came: the body of GET
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

// Status asks how the connector is.
func (w *ConnectWorker) Status(t testing.TB, name string) ConnectorStatus {
	t.Helper()
	var s ConnectorStatus
	require.NoError(t,
		json.Unmarshal(w.must(t, http.MethodGet, "/connectors/"+name+"/status", nil), &s))
	return s
}

// await waits until the connector's status is as wanted.
func (w *ConnectWorker) await(t testing.TB, name string, wanted func(ConnectorStatus) bool) {
	t.Helper()
	require.NoError(t, eventually(t.Context(), func(ctx context.Context) error {
		// Asking for a connector that a worker has just been told of, it may not know it yet.
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
	if !w.process.child.Running() {
		return nil, fmt.Errorf("the Kafka Connect worker has ended: %s",
			w.process.out.LastLines(20))
	}
	var sent io.Reader
	if body != nil {
		document, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(document)
	}
	request, err := http.NewRequestWithContext(ctx, method, w.url+path, sent)
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

// Kill ends the worker as a crash would, and waits until it is gone: offsets that it has not
// flushed are lost.
func (w *ConnectWorker) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, w.process.kill())
}

// Restart starts the killed worker with its old topics, and waits until it answers and has taken
// up its work.
func (w *ConnectWorker) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, w.process.start())
	w.must(t, http.MethodGet, "/connectors", nil)
}
