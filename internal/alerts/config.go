package alerts

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// Config is the section [alerts]. Without a webhook and a command it notifies nobody.
type Config struct {
	Webhook        secret.Secret `toml:"webhook"`         // URL for Alertmanager's payload, version 4
	Command        []string      `toml:"command"`         // program and arguments; payload on stdin
	Severity       string        `toml:"severity"`        // least: info, warning, critical
	RepeatInterval time.Duration `toml:"repeat_interval"` // while a condition goes on; 0s: never
	Timeout        time.Duration `toml:"timeout"`         // of one attempt
	ExternalURL    string        `toml:"external_url"`    // of the status page; empty: none
}

// DefaultConfig returns the defaults; config.example.toml gives the reasons.
func DefaultConfig() Config {
	return Config{Severity: "info", RepeatInterval: 4 * time.Hour, Timeout: 10 * time.Second}
}

// On reports whether there is a receiver.
func (c Config) On() bool { return c.Webhook.IsSet() || len(c.Command) > 0 }

// Validate reports every wrong value. It does not show the webhook's URL, which is a password, and
// does not read a URL from its file, which may change.
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
		// Not shown: it may still contain a password.
		errs = append(errs, errors.New("alerts.external_url: must be an http or https URL"))
	} else if err == nil && u.User != nil {
		errs = append(errs, errors.New("alerts.external_url: must not have a user or a password in it, "+
			"since it stands in each notification"))
	}
	return errors.Join(errs...)
}

// Warnings lists what may keep a valid configuration from notifying on this machine, or discloses
// the notifications. They show no secret.
func (c Config) Warnings() []string {
	var warnings []string
	if c.Webhook.IsSet() {
		u, err := revealURL(c.Webhook)
		switch {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("alerts.webhook: %v", err))
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			warnings = append(warnings, "alerts.webhook: http sends the URL, and what is not well, "+
				"readable for everybody on the way; use https")
		}
	}
	if len(c.Command) > 0 {
		if err := LookProgram(c.Command); err != nil {
			warnings = append(warnings, fmt.Sprintf("alerts.command: %v", err))
		}
	}
	return warnings
}

// errURL takes the place of errors of package url, which show the URL.
var errURL = errors.New("must be an http or https URL with a host " +
	"(it is not shown here, since it is a secret)")

// revealURL reads the URL, from its file if it is in one. Its errors show no part of it.
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
