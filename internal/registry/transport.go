package registry

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/tlsfiles"
)

// httpClient bounds each request by registry.timeout, and follows no redirect, which keeps a login
// from going elsewhere. Requests are counted in requests.
func (c Config) httpClient(requests *requests) *http.Client {
	return &http.Client{Timeout: c.Timeout,
		Transport:     &transport{files: c.TLS.files(), requests: requests},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// transport reads the files of TLS again for each request, and connects anew where they have
// changed. It may be used from any goroutine.
type transport struct {
	files    tlsfiles.Files
	requests *requests

	mu     sync.Mutex // guards what follows
	inner  *http.Transport
	digest [sha256.Size]byte // of the files
}

// maxAnswer bounds an answer: Confluent's registry has schemas of 1 MB at most.
const maxAnswer = 16 << 20

// unavailable is an answer after which another server of the registry may have a better one.
type unavailable struct {
	status int
	text   string
}

func (e *unavailable) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.status) }

// RoundTrip implements http.RoundTripper. The error is an *unavailable where the server cannot
// answer for now.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.requests.begin()
	defer t.requests.end()
	inner, err := t.current()
	if err != nil {
		return nil, err
	}
	answer, err := inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if closeErr := answer.Body.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("it answers more than %d bytes", maxAnswer)
	case answer.StatusCode >= http.StatusInternalServerError,
		answer.StatusCode == http.StatusTooManyRequests,
		answer.StatusCode == http.StatusRequestEntityTooLarge: // for this proxy, not for the next
		text := oneLine(excerpt(string(body)))
		if text == "" {
			text = http.StatusText(answer.StatusCode)
		}
		return nil, &unavailable{answer.StatusCode, text}
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// current is the transport with the files as they are.
func (t *transport) current() (*http.Transport, error) {
	sum := sha256.New()
	for _, path := range []string{t.files.CA, t.files.Cert, t.files.Key} {
		if path == "" {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(sum, "%d\n%s", len(content), content)
	}
	digest := [sha256.Size]byte(sum.Sum(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inner != nil && t.digest == digest {
		return t.inner, nil
	}
	config, err := t.files.Client(section + ".tls")
	if err != nil {
		return nil, err
	}
	if t.inner != nil {
		t.inner.CloseIdleConnections()
	}
	t.digest = digest
	t.inner = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config,
		MaxResponseHeaderBytes: 1 << 20}
	return t.inner, nil
}

// requests knows when a request last ran. It may be used from any goroutine.
type requests struct {
	mu      sync.Mutex // guards what follows
	running int
	ended   time.Time // zero: none has
}

func (r *requests) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running++
}

func (r *requests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.ended = time.Now()
}

// last is now while a request runs, and otherwise when the last one ended; zero: there was none.
func (r *requests) last() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running > 0 {
		return time.Now()
	}
	return r.ended
}
