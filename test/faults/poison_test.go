package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/test/parts"
)

// poisonRig has an outbox that takes what cannot be delivered, and a dead-letter topic.
type poisonRig struct {
	*rig
	letters string
}

func newPoisonRig(t testing.TB, policy string) *poisonRig {
	t.Helper()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	p := &poisonRig{rig: r, letters: parts.Unique("letters")}
	execute(t, r.dsn, `ALTER TABLE outbox ALTER aggregate_type DROP NOT NULL, ALTER aggregate_id DROP NOT NULL, ALTER number SET DEFAULT 0,
		ADD headers jsonb, ADD happened timestamptz`)
	r.broker.CreateTopic(t, p.letters, 3, nil)
	r.settings["deadletter.topic"] = quote(p.letters)
	r.settings["deadletter.retries"] = "1"
	r.settings["router.headers_column"] = `"headers"`
	r.settings[`router."table.field.event.timestamp"`] = `"happened"`
	r.settings["replication.messages"] = `["outbox"]`
	r.settings["relay.backoff_min"] = `"20ms"`
	p.policy(policy)
	return p
}

func (p *poisonRig) policy(policy string) {
	for _, cause := range []string{"not_routable", "invalid_topic", "too_large", "refused", "malformed"} {
		p.settings["deadletter."+cause] = quote(policy)
	}
}

// row commits one good row.
func (p *poisonRig) row(t testing.TB, key string, number int) {
	t.Helper()
	p.rows(t, key, number, number)
}

func (p *poisonRig) rows(t testing.TB, key string, from, to int) {
	t.Helper()
	execute(t, p.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		SELECT '%s', '%s', jsonb_build_object('key', '%s', 'number', n), n FROM generate_series(%d, %d) n`, p.topic, key, key, from, to))
}

// startCommand starts postrider with the relay's configuration.
func (p *poisonRig) startCommand(t testing.TB, args ...string) *parts.Relay {
	t.Helper()
	file := filepath.Join(t.TempDir(), "postrider.toml")
	config := strings.ReplaceAll(p.config("127.0.0.1:0"), `log.level = "debug"`, `log.level = "info"`)
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return parts.StartRelay(t, parts.RelayConfig{}, append(args, "--config", file)...)
}

// cli runs postrider with the relay's configuration, and returns what it prints and its exit status.
func (p *poisonRig) cli(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	run := p.startCommand(t, args...)
	code = run.Wait(t)
	return run.Stdout.String(), run.Log.String(), code
}

// deadLetter is one as the command lists it.
type deadLetter struct {
	ID, Form, Cause, Reason, Topic, Position, SHA256, Action string
	EventID                                                  string `json:"event_id"`
	Key                                                      *string
	Size                                                     int64
	Parked                                                   bool
}

func (p *poisonRig) list(t testing.TB, args ...string) (letters []deadLetter) {
	t.Helper()
	out, errs, code := p.cli(t, append([]string{"deadletter", "list", "--json"}, args...)...)
	require.Zero(t, code, errs)
	require.NoError(t, json.Unmarshal([]byte(out), &letters), out)
	return letters
}

// records are those of the dead-letter topic that are letters, by their ID: each may be there once.
func (p *poisonRig) records(t testing.TB) map[string]*kgo.Record {
	t.Helper()
	found := map[string]*kgo.Record{}
	for _, r := range p.broker.All(t, p.letters) {
		if id := headerOf(r, "postrider.dead_letter.id"); id != "" {
			require.NotContains(t, found, id, "a letter that is there twice")
			found[id] = r
		}
	}
	return found
}

func headerOf(r *kgo.Record, name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// numbers are those of a key in its topic, in order.
func (p *poisonRig) numbers(t testing.TB, key string) (all []int) {
	t.Helper()
	for _, r := range p.broker.All(t, "outbox.event."+p.topic) {
		var e event
		if string(r.Key) == key && json.Unmarshal(r.Value, &e) == nil {
			all = append(all, int(e.Number))
		}
	}
	return all
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// poisons are the rows that cannot be routed, one a key, each between two good rows of its key.
var poisons = map[string]struct{ cause, form, sql string }{
	"no-route":     {"not_routable", "row", `INSERT INTO outbox (aggregate_id, payload) VALUES ('no-route', '{}')`},
	"no-key":       {"not_routable", "row", `INSERT INTO outbox (aggregate_type, payload) VALUES ('%s', '{}')`},
	"bad-time":     {"not_routable", "row", `INSERT INTO outbox (aggregate_type, aggregate_id, payload, happened) VALUES ('%s', 'bad-time', '{}', 'infinity')`},
	"bad-topic":    {"invalid_topic", "row", `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('%s/€', 'bad-topic', '{}')`},
	"bad-headers":  {"malformed", "row", `INSERT INTO outbox (aggregate_type, aggregate_id, payload, headers) VALUES ('%s', 'bad-headers', '{}', '[1]')`},
	"no-json":      {"malformed", "row", `SELECT pg_logical_emit_message(true, 'outbox', '{"aggregate_type": "%s", broken')`},
	"nul-in-a-key": {"", "", `INSERT INTO outbox (aggregate_type, aggregate_id, payload, headers) VALUES ('%s', 'nul-in-a-key', '{}', '{"a": "\\u0001"}')`},
	"large":        {"too_large", "claim", `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('%s', 'large', jsonb_build_object('pad', repeat('x', 300000)))`},
}

func TestFault21_PoisonGoesWhereThePolicySays(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"dead_letter", "dead_letter_key", "skip"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			p := newPoisonRig(t, policy)
			p.settings["sink.kafka.max_message_bytes"] = "200000"
			want := map[string]int{}
			for _, name := range slices.Sorted(maps.Keys(poisons)) {
				p.row(t, name, 1)
				sql := poisons[name].sql
				if strings.Contains(sql, "%s") {
					sql = fmt.Sprintf(sql, p.topic)
				}
				execute(t, p.dsn, sql)
				p.row(t, name, 2)
				if cause := poisons[name].cause; cause != "" {
					want[cause]++
				}
			}
			relay := p.started(t)
			p.drained(t, time.Minute)
			relay.stop(t)
			if policy == "skip" {
				require.Empty(t, p.records(t))
				for name := range poisons {
					require.Subset(t, p.numbers(t, name), upTo(2), name)
				}
				matrix(t, 21, policy, fmt.Sprintf("skip: %d poison rows left out, all others published", len(poisons)-1))
				return
			}
			parks := map[string]bool{"bad-headers": true, "bad-time": true, "large": true} // of the others the topic, or the key, is what is wrong
			got := map[string]int{}
			parked := 0
			for id, r := range p.records(t) {
				cause := headerOf(r, "postrider.dead_letter.cause")
				if cause == "parked" {
					parked++
					require.True(t, parks[string(r.Key)], "%s follows", r.Key)
					continue
				}
				got[cause]++
				require.NotEmpty(t, headerOf(r, "postrider.dead_letter.error"), id)
				require.NotEmpty(t, headerOf(r, "postrider.dead_letter.position"), id)
				require.NotEmpty(t, headerOf(r, "postrider.dead_letter.relation"), id)
				require.NotEmpty(t, headerOf(r, "postrider.dead_letter.source"), id)
				if cause == "too_large" {
					require.Equal(t, "claim", headerOf(r, "postrider.dead_letter.form"))
					require.Len(t, headerOf(r, "postrider.dead_letter.sha256"), 64)
					require.NotContains(t, string(r.Value), "xxxx")
					require.NotEmpty(t, headerOf(r, "id"), "the header of the message")
				}
			}
			require.Equal(t, want, got)
			for name := range poisons {
				if policy == "dead_letter_key" && parks[name] {
					require.Equal(t, []int{1}, withoutZero(p.numbers(t, name)), name)
				} else {
					require.Equal(t, upTo(2), withoutZero(p.numbers(t, name)), name)
				}
			}
			if policy == "dead_letter_key" {
				require.Equal(t, len(parks), parked)
			}
			matrix(t, 21, policy, fmt.Sprintf("%s: %d poison rows of %d causes kept, each once, all others published", policy, len(p.records(t))-parked, len(want)))
		})
	}
}

// withoutZero leaves out the payload of poison that was published after all.
func withoutZero(numbers []int) []int {
	return slices.DeleteFunc(numbers, func(n int) bool { return n == 0 })
}

// alter sets a topic's setting.
func (p *poisonRig) alter(t testing.TB, topic, name, value string) {
	t.Helper()
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = name, kmsg.StringPtr(value)
	resource.Configs = append(resource.Configs, config)
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(t.Context(), p.broker.Client(t))
	require.NoError(t, err)
	require.Zero(t, response.Resources[0].ErrorCode)
}

// Row 20: what is over a limit of ours, and what only the broker refuses. The letter says where the row is, and redrive brings it home once it fits.
func TestFault20_TooLargeIsClaimedAndRedriven(t *testing.T) {
	t.Parallel()
	for _, whose := range []string{"local", "broker"} {
		t.Run(whose, func(t *testing.T) {
			t.Parallel()
			p := newPoisonRig(t, "dead_letter_key")
			topic := "outbox.event." + p.topic
			if whose == "local" {
				p.settings["sink.kafka.max_message_bytes"] = "100000"
			} else {
				p.alter(t, topic, "max.message.bytes", "100000")
			}
			// Redrive reads the row from its table, where the database has other habits than the stream.
			execute(t, p.dsn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = German', current_database()); END $$`)
			p.rows(t, "k", 1, 3)
			execute(t, p.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number, happened)
				SELECT '%s', 'k', jsonb_build_object('key', 'k', 'number', 4, 'pad', repeat(md5('x'), 5000)), 4, '2024-02-03T04:05:06Z'`, p.topic))
			p.rows(t, "k", 5, 7)
			p.rows(t, "other", 1, 5)
			relay := p.started(t)
			p.drained(t, time.Minute)
			require.Equal(t, upTo(3), firstOf(p.numbers(t, "k")))
			require.Equal(t, upTo(5), firstOf(p.numbers(t, "other")))
			letters := p.list(t)
			require.Len(t, letters, 4)
			require.Equal(t, []string{"too_large", "parked", "parked", "parked"}, []string{letters[0].Cause, letters[1].Cause, letters[2].Cause, letters[3].Cause})
			claim := letters[0]
			require.Equal(t, "claim", claim.Form)
			payload := query[string](t, p.dsn, "SELECT payload::text FROM outbox WHERE number = 4")
			sum := sha256.Sum256([]byte(payload))
			require.Equal(t, hex.EncodeToString(sum[:]), claim.SHA256)
			require.Greater(t, claim.Size, int64(160_000))
			require.Len(t, p.records(t), 4)

			out, errs, code := p.cli(t, "deadletter", "redrive", "--all", "--yes")
			require.Equal(t, 1, code, "it does not fit yet: %s%s", out, errs)
			require.Contains(t, errs, claim.ID)
			require.Contains(t, errs, "nor the 3 behind it")
			require.Len(t, p.list(t), 4)

			if whose == "local" {
				p.settings["sink.kafka.max_message_bytes"] = "1000000"
			} else {
				p.alter(t, topic, "max.message.bytes", "1000000")
			}
			out, errs, code = p.cli(t, "deadletter", "redrive", "--key", "k", "--yes")
			require.Zero(t, code, errs)
			require.Contains(t, out, "4 dead letters redriven")
			require.Contains(t, out, "no longer parked")
			p.rows(t, "k", 8, 9)
			p.drained(t, time.Minute)
			require.Equal(t, upTo(9), firstOf(p.numbers(t, "k")))
			require.Empty(t, p.list(t))
			out, _, code = p.cli(t, "deadletter", "redrive", "--all", "--yes")
			require.Zero(t, code)
			require.Contains(t, out, "nothing to redrive")
			relay.stop(t)
			matrix(t, 20, whose, whose+" limit: the row kept once, with hash and headers; 4 rows of its key redriven in order")
		})
	}
}

// firstOf leaves out repeats: where the broker refuses what was sent, a session ends, and rows come again.
func firstOf(numbers []int) (all []int) {
	for _, n := range numbers {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

// Rows of a parked key come all the time while it is redriven: each arrives once, and in order.
func TestFault21_RedriveKeepsTheOrderWhileRowsCome(t *testing.T) {
	t.Parallel()
	p := newPoisonRig(t, "dead_letter_key")
	p.rows(t, "k", 1, 5)
	execute(t, p.dsn, fmt.Sprintf(poisons["bad-headers"].sql, p.topic))
	execute(t, p.dsn, fmt.Sprintf("INSERT INTO outbox (aggregate_type, aggregate_id, payload, headers) VALUES ('%s', 'k', '{}', '[1]')", p.topic))
	relay := p.started(t)
	p.drained(t, time.Minute)

	conn := parts.Connect(t, p.dsn)
	stop, written := make(chan struct{}), make(chan int)
	end := sync.OnceValue(func() int { close(stop); return <-written })
	t.Cleanup(func() { end() }) // before the connection is closed
	go func() {                 // ends with stop
		n := 5
		for {
			select {
			case <-stop:
				written <- n
				return
			case <-time.After(5 * time.Millisecond):
			}
			n++
			if _, err := conn.Exec(context.Background(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
				VALUES ($1, 'k', jsonb_build_object('key', 'k', 'number', $2::bigint), $2)`, p.topic, n); err != nil {
				t.Error(err)
			}
		}
	}()
	eventually(t, time.Minute, "letters of the key", func() bool { return len(p.records(t)) > 50 })
	letters := p.list(t, "--key", "k")
	require.Equal(t, "malformed", letters[0].Cause)
	out, errs, code := p.cli(t, "deadletter", "redrive", letters[0].ID, "--yes")
	require.Equal(t, 1, code, "its headers are still no object: %s%s", out, errs)
	_, errs, code = p.cli(t, "deadletter", "discard", letters[0].ID, "--yes")
	require.Zero(t, code, errs)
	out, errs, code = p.cli(t, "deadletter", "redrive", "--key", "k", "--yes")
	require.Zero(t, code, errs)
	require.Contains(t, out, "no longer parked", errs)
	at := len(p.numbers(t, "k"))
	eventually(t, time.Minute, "rows of the key", func() bool { return len(p.numbers(t, "k")) > at+20 })
	n := end()
	p.drained(t, time.Minute)
	relay.stop(t)
	require.Equal(t, upTo(n), p.numbers(t, "k"))
	require.Empty(t, p.list(t, "--key", "k"))
	matrix(t, 21, "redrive", fmt.Sprintf("%d rows of a key that was parked and redriven while they came: each once, in order", n))
}

// A kill between a letter and the confirmation of its row makes no second letter.
func TestFault21_Kill9WritesALetterOnce(t *testing.T) {
	t.Parallel()
	p := newPoisonRig(t, "dead_letter_key")
	kills, number, bad := full(t, 3, 20), 0, 0
	for range kills {
		relay := p.started(t)
		for range 20 {
			number++
			p.row(t, "k", number)
			execute(t, p.dsn, fmt.Sprintf(poisons["bad-headers"].sql, p.topic))
			bad++
		}
		relay.Kill(t)
	}
	relay := p.started(t)
	p.drained(t, time.Minute)
	relay.stop(t)
	require.Len(t, p.records(t), bad)
	require.Equal(t, upTo(number), firstOf(p.numbers(t, "k")))
	matrix(t, 21, "kill", fmt.Sprintf("%d kills, %d poison rows: a letter of each, once", kills, bad))
}

// One row names a topic that does not exist. The policy says what becomes of it once the cluster has said so for long enough; no other topic waits for longer
// than that, also not behind a kill, and the row comes home in the order of its key.
func TestFault19_ATopicThatStaysMissingStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"at least once", "exactly once"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPoisonRig(t, "dead_letter_key")
			p.settings["deadletter.unknown_topic"] = `"dead_letter_key"`
			p.settings["deadletter.unknown_topic_after"] = `"10s"`
			if mode == "exactly once" {
				p.exactlyOnce(t)
			}
			typo := parts.Unique("typo")
			mistyped := func(number int) {
				execute(t, p.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number) VALUES ('%s', 'lost', '{"number": %d}', %[2]d)`, typo, number))
			}
			p.row(t, "good", 1)
			mistyped(1)
			p.row(t, "good", 2)
			relay := p.started(t)
			relay.names(t, "outbox.event."+typo)
			p.drained(t, time.Minute)
			mistyped(2)
			p.row(t, "good", 3)
			p.drained(t, 9*time.Second) // the topic has been missing for long enough
			relay.Kill(t)
			mistyped(3)
			p.row(t, "good", 4)
			relay = p.started(t)
			p.drained(t, time.Minute)
			require.Equal(t, upTo(4), withoutZero(p.numbers(t, "good")))
			require.Len(t, p.records(t), 3)
			for _, r := range p.records(t) {
				require.Contains(t, []string{"unknown_topic", "parked"}, headerOf(r, "postrider.dead_letter.cause"))
			}
			p.broker.CreateTopic(t, "outbox.event."+typo, 1, nil)
			mistyped(4) // behind those of its key
			p.drained(t, time.Minute)
			_, stderr, code := p.cli(t, "deadletter", "redrive", "--all", "--yes")
			require.Zero(t, code, stderr)
			mistyped(5)
			p.drained(t, time.Minute)
			relay.stop(t)
			var came []string
			for _, r := range p.broker.All(t, "outbox.event."+typo) {
				came = append(came, strings.TrimSpace(string(r.Value)))
			}
			require.Len(t, came, 5)
			for i, value := range came {
				require.JSONEq(t, fmt.Sprintf(`{"number": %d}`, i+1), value)
			}
			matrix(t, 19, "stays missing, "+mode, "the row was given up after 10 s, and came home in order")
		})
	}
}
