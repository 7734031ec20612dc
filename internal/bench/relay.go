package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/internal/embedded/child"
)

// relay is the relay under test, a child process.
type relay struct {
	*child.Process
	started time.Time // just before it was started
	out     *child.Output
	url     string // of its listener
	client  *http.Client
}

// patience is how long the relay may take to connect and stream, and to drain.
const patience = 30 * time.Second

// startRelay starts the relay and waits until it listens, which it does before it connects to
// anything.
func (r *run) startRelay(ctx context.Context) (err error) {
	// No file: a configuration that happens to be here must not change what is measured. The
	// connection string is no argument, since every user of the machine can read arguments.
	args := []string{"run", "--config", os.DevNull}
	for _, s := range append(slices.Clone(r.cfg.Set),
		"slot.name="+r.cfg.Name, "slot.create=false", "replication.publication="+r.cfg.Name,
		"replication.tables="+r.table(),
		"router.route.topic.replacement="+r.prefix+"${routedByValue}",
		"sink.kafka.brokers="+strings.Join(r.cfg.Brokers, ","),
		"http.listen=127.0.0.1:0", "log.format=json", "log.level=info",
	) {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(r.cfg.Binary, args...)
	for _, v := range r.cfg.Env {
		if !strings.HasPrefix(v, "POSTRIDER_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "POSTRIDER_POSTGRES_URL="+r.cfg.Postgres)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	r.relay = &relay{started: time.Now(), out: &child.Output{},
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}}
	cmd.Stdout, cmd.Stderr = r.relay.out, r.relay.out
	if r.relay.Process, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	r.atEnd(r.relay.kill)
	return r.relay.await(ctx, 2*time.Millisecond, "listen", func() bool {
		r.relay.url = listenURL(r.relay.out.String())
		return r.relay.url != ""
	})
}

// listenURL finds the address in the log.
func listenURL(log string) string {
	for line := range strings.Lines(log) {
		var entry struct{ Message, Listen string }
		if json.Unmarshal([]byte(line), &entry) == nil &&
			entry.Message == "http listener started" {
			return "http://" + entry.Listen
		}
	}
	return ""
}

// await blocks until done, as long as the relay runs.
func (r *relay) await(ctx context.Context, every time.Duration, what string,
	done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); {
		if err := r.alive(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return r.failed("does not " + what + " within " + patience.String())
		}
		if !pause(ctx, every) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// awaitProgress is demo.AwaitProgress as long as the relay runs.
func (r *relay) awaitProgress(ctx context.Context, every time.Duration, want int64,
	count func() (int64, error)) error {
	return demo.AwaitProgress(ctx, every, want, func() (int64, error) {
		n, err := count()
		if err == nil && n < want {
			err = r.alive()
		}
		return n, err
	})
}

func (r *relay) alive() error {
	if r.Running() {
		return nil
	}
	return r.failed("has ended by itself: " + r.End().Error())
}

func (r *relay) failed(how string) error {
	return fmt.Errorf("the relay %s; its log:\n%s", how, r.out.LastLines(8))
}

func (r *run) awaitStreaming(ctx context.Context) error {
	return r.relay.await(ctx, 20*time.Millisecond, "stream", func() bool {
		body, status, err := r.relay.get(ctx, "/readyz")
		return err == nil && status == http.StatusOK && strings.Contains(string(body), "streaming")
	})
}

func (r *relay) get(ctx context.Context, path string) (body []byte, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return nil, 0, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return body, response.StatusCode, err
}

// reading is taken from the relay's metrics. A series that it does not have is NaN.
type reading struct {
	cpu, mallocs, allocBytes float64
	published, receivedBytes float64
	requests, requestBytes   float64
	ackBounds                []float64 // seconds
	ackCounts                []float64 // observations at or below each bound; one more: all
}

func (r *relay) read(ctx context.Context) (reading, error) {
	body, _, err := r.get(ctx, "/metrics")
	if err != nil {
		return reading{}, fmt.Errorf("read the relay's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return reading{}, fmt.Errorf("read the relay's metrics: %w", err)
	}
	value := func(name string) (total float64) {
		family, ok := families[name]
		if !ok {
			return math.NaN()
		}
		for _, m := range family.GetMetric() {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return total
	}
	got := reading{
		cpu:           value("process_cpu_seconds_total"),
		mallocs:       value("go_memstats_mallocs_total"),
		allocBytes:    value("go_memstats_alloc_bytes_total"),
		published:     value("postrider_sink_published_total"),
		receivedBytes: value("postrider_replication_received_bytes_total"),
		requests:      value("postrider_sink_requests_total"),
		requestBytes:  value("postrider_sink_request_bytes_total"),
	}
	if family, ok := families["postrider_relay_commit_to_ack_seconds"]; ok {
		got.ackBounds, got.ackCounts = histogram(family.GetMetric()[0].GetHistogram())
	}
	return got, nil
}

func histogram(h *dto.Histogram) (bounds, counts []float64) {
	for _, bucket := range h.GetBucket() {
		if bound := bucket.GetUpperBound(); bound < 1e9 { // not +Inf
			bounds, counts = append(bounds, bound),
				append(counts, float64(bucket.GetCumulativeCount()))
		}
	}
	return bounds, append(counts, float64(h.GetSampleCount()))
}

// stopRelay has the relay drain and end. One that takes long is an error.
func (r *run) stopRelay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := r.relay.Stop(ctx, syscall.SIGTERM); err != nil {
		return r.relay.failed("does not end within " + patience.String())
	}
	if err := r.relay.Err; err != nil {
		return r.relay.failed("ended with " + err.Error())
	}
	return nil
}

// kill ends the relay at once, unless it has ended.
func (r *relay) kill(context.Context) error {
	r.client.CloseIdleConnections()
	return r.Kill()
}
