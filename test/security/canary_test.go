package security

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

// canaries stand where secrets stand, and rows where people's data stand. None of them may ever be printed.
var canaries = map[string]string{
	"postgres.url":             "cAnary-pg/p@ss w%rd",
	"sink.kafka.sasl.password": "cAnary-sasl:pa$s",
	"alerts.webhook":           "cAnary-hook-token",
	"alerts.webhook login":     "cAnary-hook-login",
	"admin.token":              "cAnary-admin-token-0123456789",
	"alerts.command":           "cAnary-bearer-of-a-program",
	"text of any key":          "cAnary-in-any-key-that-takes-text",
	"sink.kafka.tls.key_file":  "cAnaryKeyMaterialOfAPrivateKey0123456789",
	"a wrong password":         "cAnary-wrong-password",
	"a client's secret":        "cAnary-secret-of-an-oauth-client",
	"an access token":          "cAnary-access-token",
	"an assertion":             "cAnary-assertion.of.a-client",
	"a registry's password":    "cAnary-registry-password",
	"a program's password":     "cAnary-printed-by-a-program",
	"a payload":                "cAnary-payload-of-a-row",
	"a key":                    "cAnary-key-of-a-row",
	"a header":                 "cAnary-header-of-a-row",
}

// box is a directory with a configuration, in which everything is in order.
type box struct {
	binary string
	dir    string
	keys   map[string]string // of the configuration, as TOML
	port   int               // of PostgreSQL
	mu     sync.Mutex
	said   map[string]string // by what said it
}

func newBox(t *testing.T) *box {
	t.Helper()
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{
		Version: "17", HBA: "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
	})
	superuser := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", pg.Port())
	conn := parts.Connect(t, superuser)
	for _, sql := range []string{
		`CREATE ROLE rider LOGIN REPLICATION PASSWORD '` + canaries["postgres.url"] + `'`,
		`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL,
			event_type text NOT NULL, payload jsonb, headers jsonb)`,
		`CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`,
		`SELECT pg_create_logical_replication_slot('postrider', 'pgoutput')`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	k, err := embedded.StartKafka(embedded.KafkaConfig{
		Topics:  map[string]int32{"outbox.event.order": 3, "postrider.dead_letters": 1},
		Options: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "rider", canaries["sink.kafka.sasl.password"])},
	})
	require.NoError(t, err)
	t.Cleanup(k.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0") // refuses every notification
	require.NoError(t, err)
	hook := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = hook.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = hook.Close() })

	b := &box{binary: parts.Binary(t), dir: t.TempDir(), port: pg.Port(), said: map[string]string{}}
	b.keys = map[string]string{
		"postgres.url": toml((&url.URL{Scheme: "postgres", User: url.UserPassword("rider", canaries["postgres.url"]),
			Host: fmt.Sprintf("127.0.0.1:%d", pg.Port()), Path: "/postgres", RawQuery: "sslmode=disable"}).String()),
		"router.headers_column":     toml("headers"),
		"sink.kafka.brokers":        "[" + toml(k.Brokers()[0]) + "]",
		"sink.kafka.sasl.mechanism": toml("PLAIN"),
		"sink.kafka.sasl.username":  toml("rider"),
		"sink.kafka.sasl.password":  toml(canaries["sink.kafka.sasl.password"]),
		"alerts.webhook":            toml("http://hook:" + canaries["alerts.webhook login"] + "@" + l.Addr().String() + "/" + canaries["alerts.webhook"]),
		"alerts.command":            fmt.Sprintf(`["/bin/sh", "-xc", "exit 3", "-H", "Authorization: Bearer %[1]s", "--token=%[1]s"]`, canaries["alerts.command"]),
		"alerts.timeout":            toml("300ms"),
		"admin.listen":              toml(free(t)),
		"admin.token":               toml(canaries["admin.token"]),
		"http.listen":               toml(free(t)),
		"relay.backoff_min":         toml("50ms"),
		"relay.backoff_max":         toml("100ms"),
		"log.level":                 toml("trace"),
		"log.format":                toml("json"),
	}
	insert := `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ($1, $2, 'e', $3, $4)`
	for _, topic := range []string{"order", "not a topic"} { // the second halts the relay
		_, err := conn.Exec(t.Context(), insert, topic, canaries["a key"], `{"p": "`+canaries["a payload"]+`"}`, `{"h": "`+canaries["a header"]+`"}`)
		require.NoError(t, err)
	}
	return b
}

// free is an address to listen at later: none that a connection or another test may be given meanwhile.
func free(t *testing.T) string {
	t.Helper()
	port, err := child.FreePort()
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func toml(s string) string { return fmt.Sprintf("%q", s) }

// with is the box with keys changed; an empty value leaves a key out.
func (b *box) with(t *testing.T, changes map[string]string) (config string) {
	t.Helper()
	keys := maps.Clone(b.keys)
	maps.Copy(keys, changes)
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if keys[k] != "" {
			fmt.Fprintf(&text, "%s = %s\n", k, keys[k])
		}
	}
	f, err := os.CreateTemp(b.dir, "*.toml")
	require.NoError(t, err)
	_, err = f.WriteString(text.String())
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.Name()
}

func (b *box) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(b.dir, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return toml(path)
}

func (b *box) heard(what, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said[what] += text
}

func (b *box) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "GORACE=atexit_sleep_ms=0"}
}

// run runs a command to its end, or to its deadline, and keeps what it said. A goroutine dump is
// part of it if it had to be ended. parts.RunRelay has no deadline, and is not for the goroutines
// of a group.
func (b *box) run(t *testing.T, within time.Duration, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Dir = b.dir
	cmd.Env = append(b.environment(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // most of them fail, and should
	b.heard("postrider "+strings.Join(args, " "), out.String())
	return out.String()
}

var commandLine = regexp.MustCompile(`(?m)^  ([a-z][a-z-]+) +\S`)

// commands walks the help and lists every command there is.
func (b *box) commands(t *testing.T, above ...string) (all [][]string) {
	t.Helper()
	help := b.run(t, time.Minute, nil, append(slices.Clone(above), "--help")...)
	_, list, found := strings.Cut(help, "Available Commands:\n")
	if !found {
		return [][]string{above}
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		if path := append(slices.Clone(above), m[1]); m[1] != "help" && m[1] != "demo" && m[1] != "bench" { // these have servers of their own
			all = append(all, b.commands(t, path...)...)
		}
	}
	return all
}

func TestCanary_NoSecretIsEverPrinted(t *testing.T) {
	b := newBox(t)
	whole := b.with(t, nil)

	// A relay that runs, and what it shows to those who may ask.
	d := parts.StartRelay(t, parts.RelayConfig{Dir: b.dir, Env: b.environment(), OneLog: true},
		"run", "--config", whole)
	b.ask(t)
	parts.Await(t, "the row that cannot be routed", func() (bool, error) {
		return d.Log.Count("not a topic") > 0, nil
	})
	// state, reload, and a dump of all goroutines
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGQUIT} {
		_ = d.Signal(sig)
	}
	d.Wait(t)
	b.heard("the log", d.Log.String())

	// Every command, with everything in order and with something wrong.
	var several group
	commands := b.commands(t)
	require.Greater(t, len(commands), 20)
	for _, c := range commands {
		within := 5 * time.Second
		if c[0] == "run" || c[0] == "tail" || c[0] == "status" {
			within = 2 * time.Second
		}
		several.do(func() { b.run(t, within, nil, append(c, "--config", whole)...) })
	}
	for _, args := range [][]string{{"check", "--json"}, {"status", "--json"}, {"config", "print", "--json"}, {"tail", "--since", "1h"}, {"slot", "show", "postrider"},
		{"run", "--dry-run"}, {"config", "print", "--set", "postgres.url=postgres://rider:" + canaries["a wrong password"] + "@127.0.0.1/x"},
		{"run", "--set", "postgres.url:postgres://rider:" + canaries["a wrong password"] + "@127.0.0.1/x"}, {"check", "--set", "admin.token: " + canaries["a wrong password"]}} {
		several.do(func() { b.run(t, 2*time.Second, nil, append(args, "--config", whole)...) })
	}
	escaped := url.QueryEscape(canaries["a wrong password"])
	token := func(answer http.HandlerFunc) map[string]string { // a login by OAUTHBEARER
		o := parts.NewOIDC(t, time.Hour)
		o.Answer(answer)
		return map[string]string{"sink.kafka.sasl.username": "", "sink.kafka.sasl.password": "",
			"sink.kafka.sasl.mechanism": toml("OAUTHBEARER"), "sink.kafka.sasl.oauth.token_url": toml(o.TokenURL()),
			"sink.kafka.sasl.oauth.client_id": toml("rider"), "sink.kafka.sasl.oauth.client_secret": toml(canaries["a client's secret"])}
	}
	and := func(changes map[string]string, more map[string]string) map[string]string {
		maps.Copy(changes, more)
		return changes
	}
	says := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, text) }
	}
	registry := httptest.NewServer(says(http.StatusUnauthorized, `{"error_code":40101,"message":"Unauthorized"}`))
	t.Cleanup(registry.Close)
	prints := func(script string) map[string]string { // a password of a program
		return map[string]string{"postgres.url": toml(fmt.Sprintf("postgres://rider@127.0.0.1:%d/postgres?sslmode=disable", b.port)),
			"postgres.password_command": fmt.Sprintf(`["/bin/sh", "-c", "%s", "%s"]`, script, canaries["a program's password"])}
	}
	at := func(rest string) string { return toml(fmt.Sprintf("postgres://rider:"+rest, b.port)) }
	for _, changes := range map[string]map[string]string{
		"wrong password":            {"postgres.url": at(escaped + "@127.0.0.1:%d/postgres?sslmode=disable")},
		"wrong database":            {"postgres.url": strings.Replace(b.keys["postgres.url"], "/postgres?", "/nothing?", 1)},
		"unreachable":               {"postgres.url": toml("postgres://rider:" + escaped + "@127.0.0.1:1/postgres?sslmode=disable")},
		"unresolvable":              {"postgres.url": toml("postgres://rider:" + escaped + "@nowhere.invalid/postgres")},
		"no TLS there":              {"postgres.url": strings.Replace(b.keys["postgres.url"], "sslmode=disable", "sslmode=require", 1)},
		"URL that cannot be read":   {"postgres.url": at(canaries["postgres.url"] + "@127.0.0.1:%d/postgres?sslmode=disable")},
		"URL with a wrong port":     {"postgres.url": toml("postgres://rider@127.0.0.1:" + escaped + "/postgres")},
		"password as an option":     {"postgres.url": at("@127.0.0.1:%d/postgres?sslmode=nonsense&password=" + escaped)},
		"keywords":                  {"postgres.url": toml("host=127.0.0.1 port=1 user=rider password='" + canaries["postgres.url"] + "' sslmode=disable")},
		"keywords, not closed":      {"postgres.url": toml("host=127.0.0.1 password='" + canaries["postgres.url"])},
		"URL in a file":             {"postgres.url": "", "postgres.url_file": b.file(t, "url", "postgres://rider:"+escaped+"@127.0.0.1:1/postgres?sslmode=disable\n")},
		"nonsense in a file":        {"postgres.url": "", "postgres.url_file": b.file(t, "nonsense", canaries["postgres.url"]+"\n"+canaries["postgres.url"])},
		"a directory for a file":    {"postgres.url": "", "postgres.url_file": toml(b.dir)},
		"wrong SASL password":       {"sink.kafka.sasl.password": toml(canaries["a wrong password"])},
		"wrong SASL mechanism":      {"sink.kafka.sasl.mechanism": toml("SCRAM-SHA-512")},
		"SASL password in a file":   {"sink.kafka.sasl.password": "", "sink.kafka.sasl.password_file": b.file(t, "sasl", canaries["sink.kafka.sasl.password"])},
		"key that cannot be read":   {"sink.kafka.tls.enabled": "true", "sink.kafka.tls.cert_file": b.file(t, "cert", "x"), "sink.kafka.tls.key_file": b.file(t, "key", "-----BEGIN PRIVATE KEY-----\n"+canaries["sink.kafka.tls.key_file"]+"\n-----END PRIVATE KEY-----\n")},
		"webhook unreachable":       {"alerts.webhook": toml("http://hook:" + canaries["alerts.webhook login"] + "@127.0.0.1:1/" + canaries["alerts.webhook"])},
		"webhook that is no URL":    {"alerts.webhook": toml("http://hook:" + canaries["alerts.webhook login"] + "@127.0.0.1:x/" + canaries["alerts.webhook"])},
		"webhook of another kind":   {"alerts.webhook": toml("ftp://127.0.0.1/" + canaries["alerts.webhook"])},
		"program that is not there": {"alerts.command": `["/nothing/` + `there", "` + canaries["alerts.command"] + `"]`},
		"program and all in one":    {"alerts.command": `["curl -H '` + canaries["alerts.command"] + `'"]`},
		"command of a wrong type":   {"alerts.command": toml("curl -H " + canaries["alerts.command"])},
		"command with a number":     {"alerts.command": `["curl", "` + canaries["alerts.command"] + `", 7]`},
		"page with a login":         {"alerts.external_url": toml("ftp://me:" + canaries["a wrong password"] + "@pages.example/")},
		"page with a token":         {"alerts.external_url": toml("https://pages.example/?auth=" + canaries["a wrong password"])},
		"token of a wrong type":     {"admin.token": "[" + toml(canaries["admin.token"]) + "]"},
		"secret of a wrong type":    {"postgres.url": "{ x = " + toml(canaries["postgres.url"]) + " }"},
		"variable that is not set":  {"postgres.url": toml("postgres://rider:" + escaped + "${NOT_SET}@127.0.0.1/postgres")},
		"both":                      {"admin.token_file": b.file(t, "token", canaries["admin.token"])},
		"client refused":            token(says(http.StatusUnauthorized, `{"error":"invalid_client"}`)),
		"answer that is no token":   token(says(http.StatusOK, `<html>`+canaries["an access token"])),
		"token that is none":        token(says(http.StatusOK, `{"token_type":"Bearer","access_token":"`+canaries["an access token"]+` x"}`)),
		"token that is refused":     token(says(http.StatusOK, `{"token_type":"Bearer","expires_in":60,"access_token":"`+canaries["an access token"]+`"}`)),
		"token in a file": and(token(nil), map[string]string{"sink.kafka.sasl.oauth.token_url": "", "sink.kafka.sasl.oauth.client_id": "",
			"sink.kafka.sasl.oauth.client_secret": "", "sink.kafka.sasl.oauth.token_file": b.file(t, "access", canaries["an access token"])}),
		"assertion that is refused": and(token(says(http.StatusBadRequest, `{"error":"invalid_grant"}`)), map[string]string{
			"sink.kafka.sasl.oauth.client_secret": "", "sink.kafka.sasl.oauth.assertion_file": b.file(t, "assertion", canaries["an assertion"])}),
		"two logins": and(token(nil), map[string]string{"sink.kafka.sasl.password": toml(canaries["sink.kafka.sasl.password"])}),
		"registry refuses": {"format.value": toml("avro"), "registry.urls": "[" + toml(registry.URL) + "]", "registry.username": toml("rider"),
			"registry.password": toml(canaries["a registry's password"])},
		"registry with a login":  {"format.value": toml("avro"), "registry.urls": "[" + toml("http://rider:"+canaries["a registry's password"]+"@127.0.0.1:1") + "]"},
		"program that fails":     prints("echo $0; exit 3"),
		"program's password":     prints("echo $0"),
		"program prints NULs":    prints(`printf '%s\\\\000\\\\n' $0`),
		"a line that is no TOML": {"postgres.url": toml("postgres://rider:"+escaped+"@127.0.0.1:1/postgres") + " x"},
	} {
		config := b.with(t, changes)
		for _, args := range [][]string{{"config", "print"}, {"check"}, {"alerts", "test"}, {"run"}} {
			several.do(func() { b.run(t, time.Second, nil, append(args, "--config", config)...) })
		}
	}
	set := []string{"config", "print", "--config", whole}
	for _, key := range b.textKeys(t) {
		for _, value := range textsWithSecrets(key) {
			config := b.with(t, map[string]string{key.name: key.toml(value)})
			several.do(func() { b.run(t, 5*time.Second, nil, "config", "print", "--json", "--config", config) })
			several.do(func() {
				b.run(t, 5*time.Second, nil, "config", "print", "--config", whole, "--set", key.name+"="+value)
			})
			several.do(func() {
				b.run(t, 5*time.Second, nil, "config", "validate", "--config", b.with(t, map[string]string{key.name: "[[" + toml(value) + "]]"}))
			})
		}
	}
	b.run(t, 5*time.Second, nil, set...)
	b.run(t, 2*time.Second, []string{"POSTRIDER_POSTGRES_URL=postgres://rider:" + canaries["postgres.url"] + "@127.0.0.1:1/x", "POSTRIDER_ADMIN_TOKEN=" + canaries["admin.token"]}, "check")
	b.run(t, 2*time.Second, []string{"PGPASSWORD=" + canaries["a wrong password"], "PGHOST=127.0.0.1", "PGPORT=" + fmt.Sprint(b.port)}, "check", "--config", b.with(t, map[string]string{"postgres.url": ""}))

	several.Wait()
	b.search(t)
}

// group does things side by side, but not all at once. The zero value is ready.
type group struct {
	sync.WaitGroup
	once   sync.Once
	places chan struct{}
}

func (g *group) do(f func()) {
	g.once.Do(func() { g.places = make(chan struct{}, 4) })
	g.places <- struct{}{}
	g.Go(func() { defer func() { <-g.places }(); f() })
}

// ask reads all that the listeners show, and sends wrong tokens.
func (b *box) ask(t *testing.T) {
	t.Helper()
	var shown, admin string
	require.NoError(t, json.Unmarshal([]byte(b.keys["http.listen"]), &shown))
	require.NoError(t, json.Unmarshal([]byte(b.keys["admin.listen"]), &admin))
	get := func(address, path, token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		require.NoError(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			return 0, ""
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		headers, _ := json.Marshal(resp.Header)
		b.heard("GET "+path, string(headers)+string(body))
		return resp.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { code, _ := get(shown, "/livez", ""); return code != 0 }, 2*time.Minute, 10*time.Millisecond, "no listener")
	front := ""
	for _, path := range []string{"/", "/readyz", "/status", "/metrics", "/nothing"} {
		_, body := get(shown, path, "")
		front += body
	}
	for _, part := range []string{"verdict", "pipeline", "slot", "stream", "topics", "events", "errors", "checks", "check", "config", "build", "history"} {
		get(shown, "/api/"+part, "")
	}
	require.NotEmpty(t, front)
	for _, path := range []string{"/", "/state", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs", "/debug/pprof/symbol"} {
		get(admin, path, canaries["admin.token"])
		get(admin, path, canaries["a wrong password"])
	}
}

// search looks for each secret, as it is and as it travels.
func (b *box) search(t *testing.T) {
	t.Helper()
	require.Greater(t, len(b.said), 100)
	total := 0
	for what, text := range b.said {
		total += len(text)
		for name, secret := range canaries {
			forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), url.UserPassword("", secret).String()[1:],
				base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret)), strings.Trim(toml(secret), `"`)}
			for _, form := range forms {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("%s is in the output of %q: ...%s...", name, what, text[max(0, i-100):min(len(text), i+100)])
				}
			}
		}
		if strings.Contains(text, "WARNING: DATA RACE") || strings.Contains(text, "panic:") {
			t.Errorf("%s: %s", what, text)
		}
	}
	t.Logf("searched %d outputs of %d bytes for %d secrets", len(b.said), total, len(canaries))
}

// textKey is a key of the configuration that takes any text, or a list of such.
type textKey struct {
	name string
	list bool
}

func (k textKey) toml(value string) string {
	if k.list {
		return "[" + toml(value) + "]"
	}
	return toml(value)
}

// textKeys lists all of them, as the program's own schema has them: a new one is among them by itself.
func (b *box) textKeys(t *testing.T) (keys []textKey) {
	t.Helper()
	type schema struct {
		Type       any               `json:"type"`
		Enum       []string          `json:"enum"`
		Pattern    string            `json:"pattern"`
		Properties map[string]schema `json:"properties"`
		OneOf      []schema          `json:"oneOf"`
	}
	var root schema
	require.NoError(t, json.Unmarshal([]byte(b.run(t, time.Minute, nil, "config", "schema")), &root))
	taken := map[string]bool{}
	var walk func(name string, s schema)
	walk = func(name string, s schema) {
		if len(s.OneOf) > 0 {
			s = s.OneOf[0]
		}
		for leaf, below := range s.Properties {
			walk(strings.TrimPrefix(name+"."+leaf, "."), below)
		}
		if text := s.Type == "string" && s.Pattern == "" && len(s.Enum) == 0; (text || s.Type == "array") && !taken[name] {
			taken[name] = true
			keys = append(keys, textKey{name: name, list: s.Type == "array"})
		}
	}
	walk("", root)
	require.Greater(t, len(keys), 40)
	return keys
}

// textsWithSecrets are values of a key that none of the outputs may show: where a password stands in a URL anywhere, and all of it where the key is not
// one of those that are known to hold no secret.
func textsWithSecrets(key textKey) []string {
	secret := canaries["text of any key"]
	values := []string{"https://me:" + secret + "@host.example/?auth=" + secret + "#" + secret}
	if !config.Shown(key.name) && !strings.HasSuffix(key.name, "_file") {
		values = append(values, secret)
	}
	return values
}
