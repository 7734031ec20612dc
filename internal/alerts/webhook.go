package alerts

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// webhook posts to a URL. No error contains a part of the URL, of a redirect or of the answer's
// body: the URL is a secret, and the others may repeat it.
type webhook struct {
	url     secret.Secret // read at each attempt: its file may be rotated
	timeout time.Duration // for the text of an error
	agent   string
	client  http.Client
}

// maxRedirects allows for a receiver that has moved behind the same address.
const maxRedirects = 3

func newWebhook(cfg Config, version string) *webhook {
	return &webhook{
		url: cfg.Webhook, timeout: cfg.Timeout, agent: strings.TrimSuffix("postrider/"+version, "/"),
		client: http.Client{
			// Notifications are hours apart: until the next one the name may have another address.
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				DisableKeepAlives:      true,
				ForceAttemptHTTP2:      true,
				TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: follow,
		},
	}
}

// follow follows a redirect that keeps host, scheme and method. Another one would disclose the
// alert, and maybe the secret, or arrive as a GET without the alert: then the redirect itself is
// the answer.
func follow(request *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || request.Method != first.Method ||
		request.URL.Scheme != first.URL.Scheme || request.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

func (h *webhook) send(ctx context.Context, payload message) *failure {
	u, err := revealURL(h.url)
	if err != nil {
		// Not refused: the file may be right the next time.
		return &failure{
			text: "alerts.webhook: " + err.Error(), next: "correct alerts.webhook, or the file it is in",
		}
	}
	body, err := json.Marshal(payload)
	if err != nil {
		return &failure{text: "encode notification: " + err.Error(), refused: true}
	}
	var written atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { written.Store(i.Err == nil) },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(),
		bytes.NewReader(body))
	if err != nil {
		return &failure{
			text: "alerts.webhook: " + errURL.Error(), next: "correct alerts.webhook", refused: true,
		}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", h.agent)
	response, err := h.client.Do(request)
	if err != nil {
		return &failure{
			text: h.explain(err, u.Hostname()), reached: written.Load(),
			next: "is the receiver up, and can this machine reach it? postrider alerts test",
		}
	}
	defer response.Body.Close() // not read: it may be endless
	return judge(response.StatusCode, response.Header, time.Now())
}

// judge returns nil for an answer of a receiver that took the notification.
func judge(code int, header http.Header, now time.Time) *failure {
	text := fmt.Sprintf("the receiver answered %d %s", code, http.StatusText(code))
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 500:
		return &failure{
			text: text, reached: true, after: retryAfter(header, now), next: "look into the receiver's log",
		}
	case code == http.StatusTooManyRequests:
		return &failure{text: text, after: retryAfter(header, now)}
	case code >= 300 && code < 400:
		return &failure{
			text: text + ": a redirect to another host, or one that turns POST into GET, is not " +
				"followed",
			refused: true, next: "set alerts.webhook to the URL that it leads to",
		}
	}
	next := "look into the receiver's log, correct alerts.webhook, then: postrider alerts test"
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		next = "the secret in alerts.webhook is wrong or was withdrawn; correct it, then: postrider " +
			"alerts test"
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		next = "no receiver answers at this URL; correct alerts.webhook, then: postrider alerts test"
	case http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		next = "the receiver has to take Alertmanager's webhook payload, version 4; if it does not, " +
			"let alerts.command translate"
	}
	return &failure{text: text, refused: true, next: next}
}

// retryAfter reads the header, in seconds or as a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), retryAfterMax)
}

// explain is why there is no answer. It repeats only errors that contain no part of the URL but
// the host, and takes that out: net/url's contain the URL, net/http's may contain what a server
// echoes.
func (h *webhook) explain(err error, host string) string {
	const what = "reach the host of alerts.webhook: "
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	certificate, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, otherName := errors.AsType[x509.HostnameError](err)
	network, isNetwork := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return what + "the process ended before there was an answer"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%sno answer within %s (alerts.timeout)", what, h.timeout)
	case isLookup:
		return what + lookup.Err
	case otherName:
		return what + "its certificate is for another name"
	case isCertificate:
		return what + strings.ReplaceAll(certificate.Error(), host, "host")
	case isNetwork:
		return what + strings.ReplaceAll(network.Error(), host, "host")
	case errors.Is(err, http.ErrSchemeMismatch):
		return what + "it speaks http, and the URL says https"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return what + "it closed the connection without an answer"
	}
	return what + "the connection broke, or the answer was not HTTP"
}
