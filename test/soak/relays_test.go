package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// relay is one slot with its topic, and the processes that have streamed from it, one at a time.
type relay struct {
	*servers
	name      string
	slot      string
	topic     string
	network   *parts.Proxy // to PostgreSQL
	file      string       // configuration
	settings  map[string]string
	processes []*parts.Relay
	http      *http.Client
}

const adminToken = "a token of the test"

// newRelay makes slot and topic. The slot is not left to the relay: what is committed before it is
// never sent.
func (s *servers) newRelay(name string) *relay {
	s.t.Helper()
	r := &relay{servers: s, name: name, slot: parts.Unique(name),
		topic: "soak." + name + "." + s.aggregate, http: &http.Client{Timeout: 20 * time.Second}}
	s.t.Cleanup(r.http.CloseIdleConnections)
	s.createTopic(r.topic)
	s.execute("SELECT pg_create_logical_replication_slot('" + r.slot + "', 'pgoutput')")
	u, err := url.Parse(s.dsn)
	require.NoError(s.t, err)
	r.network, err = parts.StartProxy(u.Host)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, r.network.Close()) })
	u.Host = r.network.Addr()
	r.file = filepath.Join(s.t.TempDir(), name+".toml")
	r.settings = map[string]string{
		"postgres.url":                   quote(u.String()),
		"slot.name":                      quote(r.slot),
		"replication.publication":        quote(s.publication),
		"router.route.topic.replacement": quote("soak." + name + ".${routedByValue}"),
		"router.position_headers":        "true",
		"sink.kafka.brokers":             `["` + strings.Join(s.broker.Brokers(), `", "`) + `"]`,
		"sink.kafka.compression":         quote("lz4"),
		"relay.in_flight_messages":       "1000",
		"prune.enabled":                  "true",
		"prune.retention":                quote("10s"),
		"prune.interval":                 quote("2s"),
		"slot.check_interval":            quote("1s"),
		"http.listen":                    quote("127.0.0.1:0"),
		"admin.listen":                   quote("127.0.0.1:0"),
		"admin.token":                    quote(adminToken),
		"log.format":                     quote("json"),
	}
	if s.cluster != nil {
		maps.Copy(r.settings, map[string]string{
			"sink.kafka.tls.enabled":    "true",
			"sink.kafka.tls.ca_file":    quote(s.cluster.CAFile),
			"sink.kafka.sasl.mechanism": quote("SCRAM-SHA-256"),
			"sink.kafka.sasl.username":  quote(parts.ClusterUser),
			"sink.kafka.sasl.password":  quote(parts.ClusterPassword),
		})
	}
	r.configure()
	r.start()
	return r
}

// configure writes the file.
func (r *relay) configure() {
	r.t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(r.settings)) {
		fmt.Fprintf(&b, "%s = %s\n", key, r.settings[key])
	}
	require.NoError(r.t, os.WriteFile(r.file, []byte(b.String()), 0o600))
}

// start starts a process, and returns when it takes signals.
func (r *relay) start() {
	r.t.Helper()
	p := parts.StartRelay(r.t, parts.RelayConfig{OneLog: true}, "run", "--config", r.file)
	r.processes = append(r.processes, p)
	p.AwaitLog(r.t, "relay started")
}

func (r *relay) process() *parts.Relay { return r.processes[len(r.processes)-1] }

func (r *relay) signal(s syscall.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.process().Signal(s))
}

// command runs another command of postrider with the relay's configuration.
func (r *relay) command(args ...string) (code int, printed string) {
	r.t.Helper()
	p, code := parts.RunRelay(r.t, parts.RelayConfig{OneLog: true},
		append(args, "--config", r.file)...)
	return code, p.Log.String()
}

// admin runs a command that asks the relay itself.
func (r *relay) admin(args ...string) {
	r.t.Helper()
	address, ok := r.process().AwaitLog(r.t, "admin listener started")["listen"].(string)
	require.True(r.t, ok)
	code, printed := r.command(append(args, "--set", "admin.listen="+address)...)
	require.Zero(r.t, code, "%s: %s", args, printed)
}

// get returns nil while no process answers.
func (r *relay) get(path string) []byte {
	resp, err := r.http.Get("http://" + r.process().Address() + path)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	return body
}

// report is the part of a relay's status that tests read.
type report struct {
	Relay struct{ Phase string }
	Slot  struct {
		ObservedAt time.Time `json:"observed_at"`
	}
}

// status is zero while no process answers.
func (r *relay) status() (status report) {
	if json.Unmarshal(r.get("/status"), &status) != nil {
		return report{}
	}
	return status
}

// await waits for a phase. That the process ends meanwhile fails the test.
func (r *relay) await(phase string) {
	r.t.Helper()
	parts.Await(r.t, r.name+" "+phase, func() (bool, error) {
		if p := r.process(); !p.Running() {
			return false, fmt.Errorf("%s ended: %w", r.name, p.End())
		}
		return r.status().Relay.Phase == phase, nil
	})
}

// caughtUp waits until relays stream, and all that is committed now is confirmed.
func caughtUp(t *testing.T, relays ...*relay) {
	t.Helper()
	var end string
	relays[0].query([]any{&end}, "SELECT pg_current_wal_lsn()::text")
	for _, r := range relays {
		r.await("streaming")
		parts.Await(t, r.name+" confirmed up to "+end, func() (confirmed bool, err error) {
			r.query([]any{&confirmed}, `SELECT confirmed_flush_lsn >= $1::pg_lsn
				FROM pg_replication_slots WHERE slot_name = $2`, end, r.slot)
			return confirmed, nil
		})
	}
}

// looked waits until the monitors of relays have looked at their slots, so that what happened before
// is in the logs.
func looked(t *testing.T, relays ...*relay) {
	t.Helper()
	since := time.Now()
	for _, r := range relays {
		parts.Await(t, r.name+" looks at its slot", func() (bool, error) {
			return r.status().Slot.ObservedAt.After(since), nil
		})
	}
}
