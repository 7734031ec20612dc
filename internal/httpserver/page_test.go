package httpserver

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"io/fs"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, url string, headers map[string]string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", "identity")
	for name, value := range headers {
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, body
}

// browsers ask for HTML by name; this is what Chromium and Firefox send.
const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestPage_IsForBrowsersAndTheIndexForOthers(t *testing.T) {
	var c counter
	url := start(t, withParts(c.part("verdict")))
	for accept, contentType := range map[string]string{
		browserAccept: "text/html; charset=utf-8", "*/*": "text/plain; charset=utf-8",
		"text/plain": "text/plain; charset=utf-8", "": "text/plain; charset=utf-8",
	} {
		resp, _ := get(t, url+"/", map[string]string{"Accept": accept})
		require.Equal(t, contentType, resp.Header.Get("Content-Type"), accept)
		require.Contains(t, resp.Header.Get("Vary"), "Accept")
	}
	resp, packed := get(t, url+"/", map[string]string{"Accept": browserAccept,
		"Accept-Encoding": "gzip, br"})
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	r, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	unpacked, err := io.ReadAll(r)
	require.NoError(t, err)
	_, plain := get(t, url+"/", map[string]string{"Accept": browserAccept})
	require.Equal(t, string(plain), string(unpacked))
	require.Less(t, len(packed), 30<<10)
}

func TestPage_AllowsItsOwnScriptAndNothingElse(t *testing.T) {
	var c counter
	url := start(t, withParts(c.part("verdict")))
	resp, body := get(t, url+"/", map[string]string{"Accept": browserAccept})
	document := string(body)
	policy := resp.Header.Get("Content-Security-Policy")
	for _, directive := range []string{
		"default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'",
		"form-action 'none'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'",
	} {
		require.Contains(t, policy, directive)
	}
	require.NotContains(t, policy, "unsafe")
	require.Equal(t, 2, strings.Count(document, "<script"))
	require.Equal(t, 1, strings.Count(document, "<style"))
	// Counted by other means than those that made the policy.
	for _, part := range strings.Split(document, "<script")[1:] {
		_, rest, _ := strings.Cut(part, ">")
		script, _, closed := strings.Cut(rest, "</script>")
		require.True(t, closed)
		sum := sha256.Sum256([]byte(script))
		require.Contains(t, policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	require.NotContains(t, document, "{{")
}

// Nothing comes from elsewhere, and no text becomes markup.
func TestPage_SourcesStandAlone(t *testing.T) {
	files, err := fs.Glob(sources, "page/*")
	require.NoError(t, err)
	for _, file := range files {
		b, err := fs.ReadFile(sources, file)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "")
		require.NotRegexp(t, regexp.MustCompile(`(?i)https?://|@import|url\(|\bimport\b.*from`), text,
			file)
		require.NotRegexp(t, regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function| style=|\son[a-z]+="`), text, file)
		if strings.HasSuffix(file, ".js") && file != "page/theme.js" {
			require.True(t, slices.Contains(scripts, strings.TrimPrefix(file, "page/")),
				"%s is not part of the page", file)
		}
	}
}

// Browsers get a page of it: what is markup in the text is none in the page, and links lead to
// what the binary has.
func TestRunbook_IsRenderedForBrowsers(t *testing.T) {
	h := new(answers).handlers()
	h.Runbook = func(section string) string {
		return map[string]string{
			"PostriderStuck": "### PostriderStuck\n\n- **Do**: `postrider check`, then [near " +
				"loss](#near), [checks](CHECK.md#wal_level), [promises](GUARANTEES.md#x), [gone](#gone), " +
				"[PG](https://www.postgresql.org/docs/)\n\n| a | b |\n|---|---|\n| 1 | 2 " +
				"|\n\n<script>alert(1)</script>\n",
			"near": "### near\n", "CHECK.md#wal_level": "### wal_level\n",
		}[section]
	}
	url := start(t, h)
	resp, body := get(t, url+"/runbook/PostriderStuck", map[string]string{"Accept": browserAccept})
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
	page := string(body)
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), policy(page))
	for _, part := range []string{
		"<title>PostriderStuck · postrider</title>", "<h3>PostriderStuck</h3>", "<strong>Do</strong>",
		"<code>postrider check</code>", "<td>1</td>",
		`<a href="near">near loss</a>`, `<a href="CHECK.md%23wal_level">checks</a>`,
		"promises (docs/GUARANTEES.md#x), gone,", `<a href="https://www.postgresql.org/docs/">PG</a>`,
	} {
		require.Contains(t, page, part)
	}
	require.NotContains(t, page, "alert(1)")
	require.NotContains(t, page, "{{")
}

func TestRunbook_IsServedAsText(t *testing.T) {
	h := new(answers).handlers()
	h.Parts = []Part{{Name: "verdict", Get: func() any { return 1 }}}
	h.Runbook = func(section string) string {
		return map[string]string{
			"PostriderSlotLost":  "### PostriderSlotLost\n\n<script>is text</script>\n",
			"CHECK.md#wal_level": "### wal_level\n",
		}[section]
	}
	url := start(t, h)
	resp, body := request(t, http.MethodGet, url+"/runbook/PostriderSlotLost")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	require.Contains(t, body, "### PostriderSlotLost")
	resp, body = request(t, http.MethodGet, url+"/runbook/CHECK.md%23wal_level")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, body, "### wal_level")
	resp, _ = request(t, http.MethodGet, url+"/runbook/other")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	_, document := get(t, url+"/", map[string]string{"Accept": browserAccept})
	require.Contains(t, string(document), `data-runbooks="runbook/"`)
	h.Runbook = nil
	_, document = get(t, start(t, h)+"/", map[string]string{"Accept": browserAccept})
	require.Contains(t, string(document), `data-runbooks=""`)
}

func TestHost_ForeignNamesAreRefusedOnLoopback(t *testing.T) {
	var c counter
	url := start(t, withParts(c.part("slot")))
	port := url[strings.LastIndex(url, ":"):]
	for host, want := range map[string]int{
		"127.0.0.1" + port: http.StatusOK, "localhost" + port: http.StatusOK, "LOCALHOST": http.StatusOK,
		"postrider.localhost" + port: http.StatusOK,
		"[::1]" + port:               http.StatusOK, "10.1.2.3" + port: http.StatusOK,
		"evil.example" + port: http.StatusMisdirectedRequest, "localhost.evil.example" +
			port: http.StatusMisdirectedRequest, "127.0.0.1.evil.example": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/", "/api/slot", "/status", "/metrics"} {
			resp, _ := get(t, url+path, map[string]string{"Host": host})
			require.Equal(t, want, resp.StatusCode, "%s of %s", path, host)
		}
		resp, _ := get(t, url+"/livez", map[string]string{"Host": host})
		require.Equal(t, http.StatusOK, resp.StatusCode, "a probe may come by any name")
	}
	resp, _ := get(t, url+"/api/stream", map[string]string{"Host": "evil.example"})
	require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
}

func TestHost_AnyNameWillDoBeyondLoopback(t *testing.T) {
	var c counter
	s := New(Config{Listen: ":0"}, withParts(c.part("slot")))
	serve(t, s)
	_, port, err := net.SplitHostPort(s.Addr().String())
	require.NoError(t, err)
	resp, _ := get(t, "http://127.0.0.1:"+port+"/api/slot",
		map[string]string{"Host": "postrider.shop.svc"})
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestHost_TheConfiguredNameIsOurs(t *testing.T) {
	require.True(t, isLocal("Relay.internal:8432", "relay.internal"))
	require.True(t, isLocal("relay.internal", "relay.internal"))
	require.False(t, isLocal("other.internal:8432", "relay.internal"))
	require.True(t, isLocal("localhost.:8432", "127.0.0.1"))
}
