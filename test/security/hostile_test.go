package security

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// liar stands in front of an honest server and changes what that says, differently in each connection.
type liar struct {
	net.Listener
	target string
	seed   uint64

	mu          sync.Mutex
	honest      bool
	connections uint64
	open        map[net.Conn]bool
	all         sync.WaitGroup
}

// announced is a listener that is reached by another address than its own, as brokers tell clients theirs.
type announced struct {
	net.Listener
	addr net.Addr
}

func (a announced) Addr() net.Addr { return a.addr }

func lieAbout(t *testing.T, target string, seed uint64) *liar {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &liar{Listener: inner, target: target, seed: seed, open: map[net.Conn]bool{}}
	l.all.Go(func() { // ends when the listener is closed
		for {
			c, err := inner.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.connections++
			n, honest := l.connections, l.honest
			l.open[c] = true
			l.mu.Unlock()
			l.all.Go(func() { l.serve(c, n, honest) })
		}
	})
	t.Cleanup(func() { _ = inner.Close(); l.hangUp(); l.all.Wait() })
	return l
}

func (l *liar) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connections
}

// behave tells the truth from now on, in connections that are made anew.
func (l *liar) behave() {
	l.mu.Lock()
	l.honest = true
	l.mu.Unlock()
	l.hangUp()
}

func (l *liar) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close()
	}
}

func (l *liar) serve(c net.Conn, n uint64, honest bool) {
	defer func() {
		_ = c.Close()
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
	}()
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() { // ends with either side
		_, _ = io.Copy(server, c)
		_ = server.Close()
	})
	defer func() { _ = c.Close() }()
	if honest {
		_, _ = io.Copy(c, server)
		return
	}
	life := time.AfterFunc(200*time.Millisecond, func() { _ = c.Close(); _ = server.Close() }) // who waits for an answer has waited long enough
	defer life.Stop()
	r := rand.New(rand.NewPCG(l.seed, n))
	left := int64(r.IntN(1 + r.IntN(20000))) // bytes that are true; most of the talking is done in the first
	if _, err := io.CopyN(c, server, left); err != nil {
		return
	}
	l.lie(c, server, r)
}

func (l *liar) lie(c, server net.Conn, r *rand.Rand) {
	buf := make([]byte, 4096)
	switch r.IntN(6) {
	case 0: // noise, and then nothing more
		for i := range buf {
			buf[i] = byte(r.Uint32())
		}
		_, _ = c.Write(buf)
	case 1: // a length, of about any size, where one may stand
		_, _ = c.Write([]byte{byte(r.Uint32()), 0x7f, 0xff, 0xff, 0xf0 | byte(r.Uint32()), 0, 0, 0, byte(r.Uint32())})
		_, _ = io.CopyN(c, server, 1000)
	case 2: // the same without an end
		for range 2000 {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	case 3: // the truth, with some bits of it changed
		for {
			n, err := server.Read(buf)
			for range 1 + r.IntN(3) {
				buf[r.IntN(max(n, 1))] ^= 1 << r.IntN(8)
			}
			if _, writeErr := c.Write(buf[:n]); err != nil || writeErr != nil {
				return
			}
		}
	case 4: // the truth without a part of it, so that numbers and lengths belong to others
		_, _ = io.CopyN(io.Discard, server, int64(1+r.IntN(16)))
		_, _ = io.CopyN(c, server, 4000)
	case 5: // half of an answer
	}
}

// residentBytes is the memory of a process that is in use.
func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0 // no Linux, or no process: the caller looks after that
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// TestHostile_ServersAndBrokersNeitherCrashNorFillTheRelay lets the relay go through some connections to a server, or to a broker, that lies.
// It stays in bounds, crashes never, and works as soon as it is told the truth.
func TestHostile_ServersAndBrokersNeitherCrashNorFillTheRelay(t *testing.T) {
	seed := rand.Uint64()
	for _, who := range []string{"server", "broker"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", seed)
			db := parts.Postgres(t, "17")
			conn := db.Connect(t)
			slot := parts.Unique("slot")
			for _, sql := range []string{
				`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text, payload jsonb)`,
				`CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`,
				`SELECT pg_create_logical_replication_slot('` + slot + `', 'pgoutput')`,
				`INSERT INTO outbox (aggregate_type, aggregate_id, payload) SELECT 'order', n, '{}' FROM generate_series(1, 500) n`,
			} {
				_, err := conn.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			var l *liar
			var options []kfake.Opt
			if who == "broker" {
				l = lieAbout(t, "", seed)
				options = append(options, kfake.ListenFn(func(network, address string) (net.Listener, error) {
					inner, err := net.Listen(network, address)
					if err == nil {
						l.target = inner.Addr().String()
					}
					return announced{inner, l.Addr()}, err
				}))
			}
			k, err := embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{"outbox.event.order": 3}, Options: options})
			require.NoError(t, err)
			t.Cleanup(k.Close)
			dsn, err := url.Parse(db.DSN())
			require.NoError(t, err)
			b := &box{binary: parts.Binary(t), dir: t.TempDir(), said: map[string]string{}, keys: map[string]string{
				"slot.name": toml(slot), "http.listen": toml(free(t)), "relay.backoff_min": toml("1ms"), "relay.backoff_max": toml("5ms"),
				"slot.check_interval": toml("100ms"), "sink.kafka.dial_timeout": toml("500ms"), "log.format": toml("json"),
				"replication.max_row_bytes": toml("1MiB"), "postgres.connect_timeout": toml("500ms"),
			}}
			b.keys["sink.kafka.brokers"] = "[" + toml(k.Brokers()[0]) + "]"
			if who == "server" {
				l = lieAbout(t, dsn.Host, seed)
				dsn.Host = l.Addr().String()
			}
			b.keys["postgres.url"] = toml(dsn.String())

			file := b.with(t, nil)
			var relay *parts.Relay
			start := func() { relay = parts.StartRelay(t, parts.RelayConfig{}, "run", "--config", file) }
			start()
			connections := map[string]uint64{"server": 40, "broker": 5}[who] // the Kafka client takes its time between two
			const most = 400 << 20                                           // with the race detector, which multiplies what is used
			var peak int64
			await := func(what string, met func() bool) {
				t.Helper()
				deadline, tick := time.After(3*time.Minute), time.NewTicker(20*time.Millisecond)
				defer tick.Stop()
				for !met() {
					select {
					case <-relay.Done:
						// A bit is enough for a wal_level that no slot can have, or for a row past
						// max_row_bytes: the relay ends as it does for a true one, and is started again.
						if code := relay.Wait(t); code != 1 && (code < 64 || code > 78) {
							t.Fatalf("the relay ended with %d before %s:\n%s", code, what, last(relay.Log.String()))
						}
						start()
					case <-deadline:
						t.Fatalf("not in time: %s (%d connections)", what, l.count())
					case <-tick.C:
						peak = max(peak, residentBytes(t, relay.PID))
					}
				}
			}
			await("its connections", func() bool {
				// A connection may be true for long enough to deliver all there is: another row asks for the next.
				_, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', '1', '{}')`)
				require.NoError(t, err)
				return l.count() >= connections
			})
			l.behave()
			await("an honest session", func() bool {
				var caught bool
				require.NoError(t, conn.QueryRow(t.Context(), `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, slot).Scan(&caught))
				return caught
			})
			asked := time.Now()
			require.NoError(t, relay.Signal(syscall.SIGINT))
			require.Zero(t, relay.Wait(t), last(relay.Log.String()))
			require.Less(t, time.Since(asked), 40*time.Second, "the relay does not stop")
			require.Less(t, peak, int64(most), "resident bytes")
			t.Logf("%d connections, at most %d MiB resident", l.count(), peak>>20)
		})
	}
}

func last(s string) string { return s[max(0, len(s)-4000):] }
