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

// webhook posts to a URL. No error contains a part of the URL, of a redirect or of a response
// body: the URL is a secret, and the others may contain it.
type webhook struct {
	url     secret.Secret // read at each attempt: its file may change
	timeout time.Duration // for error texts
	agent   string        // User-Agent
	client  http.Client
}

// maxRedirects allows for another path of the same receiver.
const maxRedirects = 3

func newWebhook(cfg Config, version string) *webhook {
	return &webhook{
		url: cfg.Webhook, timeout: cfg.Timeout, agent: strings.TrimSuffix("postrider/"+version, "/"),
		client: http.Client{
			// Notifications are hours apart: no keep-alive, since the address may change meanwhile.
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				DisableKeepAlives:      true,
				ForceAttemptHTTP2:      true,
				TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: checkRedirect,
		},
	}
}

// checkRedirect allows redirects with the same host, scheme and method. Others would disclose the
// alert and perhaps the secret, or arrive as a GET without the alert: for them the redirect itself
// is the response.
func checkRedirect(request *http.Request, via []*http.Request) error {
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
		// Not refused: the file may have changed by the next attempt.
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
	defer response.Body.Close() // not read: it has no limit
	return failureOf(response.StatusCode, response.Header, time.Now())
}

// failureOf returns the failure for a response, nil if the receiver accepted the notification.
func failureOf(code int, header http.Header, now time.Time) *failure {
	text := fmt.Sprintf("the receiver answered %d %s", code, http.StatusText(code))
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 500:
		return &failure{
			text: text, reached: true, retryAfter: retryAfter(header, now),
			next: "look into the receiver's log",
		}
	case code == http.StatusTooManyRequests,
		code == http.StatusRequestTimeout: // RFC 9110, 15.5.9: the client may repeat the request
		return &failure{text: text, retryAfter: retryAfter(header, now)}
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

// retryAfter parses the header Retry-After: seconds or a date.
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

// explain returns the text of an error without a response. It repeats only errors that contain no
// part of the URL but the host, which it replaces: errors of net/url contain the URL, those of
// net/http may contain data of the server.
func (h *webhook) explain(err error, host string) string {
	const prefix = "reach the host of alerts.webhook: "
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	certificate, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, otherName := errors.AsType[x509.HostnameError](err)
	network, isNetwork := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return prefix + "the process ended before there was an answer"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%sno answer within %s (alerts.timeout)", prefix, h.timeout)
	case isLookup:
		return prefix + lookup.Err
	case otherName:
		return prefix + "its certificate is for another name"
	case isCertificate:
		return prefix + strings.ReplaceAll(certificate.Error(), host, "host")
	case isNetwork:
		return prefix + strings.ReplaceAll(network.Error(), host, "host")
	case errors.Is(err, http.ErrSchemeMismatch):
		return prefix + "it speaks http, and the URL has https"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return prefix + "it closed the connection without an answer"
	}
	return prefix + "the connection broke, or the answer was not HTTP"
}
