package alerts

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// Config is the section [alerts]. Without a webhook and a command there are no notifications.
type Config struct {
	Webhook        secret.Secret `toml:"webhook"`         // URL for Alertmanager's payload, version 4
	Command        []string      `toml:"command"`         // program and arguments; payload on stdin
	Severity       string        `toml:"severity"`        // lowest to send: info, warning, critical
	RepeatInterval time.Duration `toml:"repeat_interval"` // while a condition is firing; 0s: never
	Timeout        time.Duration `toml:"timeout"`         // of one attempt
	ExternalURL    string        `toml:"external_url"`    // of the status page; empty: none
}

// DefaultConfig returns the defaults; config.example.toml gives the reasons.
func DefaultConfig() Config {
	return Config{Severity: "info", RepeatInterval: 4 * time.Hour, Timeout: 10 * time.Second}
}

// On reports whether there is a receiver.
func (c Config) On() bool { return c.Webhook.IsSet() || len(c.Command) > 0 }

// Validate reports every wrong value. It does not show the webhook's URL, which is a secret, and
// does not read it from its file, which may change.
func (c Config) Validate() error {
	var errs []error
	if c.Webhook.IsSet() && c.Webhook.Path() == "" {
		if _, err := revealURL(c.Webhook); err != nil {
			errs = append(errs, fmt.Errorf("alerts.webhook: %w", err))
		}
	}
	if len(c.Command) > 0 && c.Command[0] == "" {
		errs = append(errs, errors.New("alerts.command: the first item must be a program"))
	}
	switch c.Severity {
	case "info", "warning", "critical":
	default:
		errs = append(errs, fmt.Errorf("alerts.severity = %q: must be info, warning or critical",
			c.Severity))
	}
	if c.RepeatInterval < 0 {
		errs = append(errs, fmt.Errorf("alerts.repeat_interval = %s: must not be negative",
			c.RepeatInterval))
	}
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("alerts.timeout = %s: must be positive", c.Timeout))
	}
	if u, err := url.Parse(c.ExternalURL); c.ExternalURL != "" && (err != nil || !isHTTP(u)) {
		// Not shown: it may contain a password.
		errs = append(errs, errors.New("alerts.external_url: must be an http or https URL"))
	} else if err == nil && u.User != nil {
		errs = append(errs, errors.New("alerts.external_url: must not contain a user or a password, "+
			"since each notification contains it"))
	}
	return errors.Join(errs...)
}

// Warnings returns problems of a valid configuration on this machine: a receiver that cannot be
// reached as configured, or notifications that others can read. They show no secret.
func (c Config) Warnings() []string {
	var warnings []string
	if c.Webhook.IsSet() {
		u, err := revealURL(c.Webhook)
		switch {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("alerts.webhook: %v", err))
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			warnings = append(warnings, "alerts.webhook: http sends the URL and the notifications "+
				"unencrypted; use https")
		}
	}
	if len(c.Command) > 0 {
		if err := LookProgram(c.Command); err != nil {
			warnings = append(warnings, fmt.Sprintf("alerts.command: %v", err))
		}
	}
	return warnings
}

// errURL replaces errors of package url, which show the URL.
var errURL = errors.New("must be an http or https URL with a host " +
	"(it is not shown here, since it is a secret)")

// revealURL returns the URL, from its file if it has one. Its errors show no part of it.
func revealURL(s secret.Secret) (*url.URL, error) {
	value, err := s.Reveal()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(value)
	if err != nil || !isHTTP(u) {
		return nil, errURL
	}
	return u, nil
}

func isHTTP(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
