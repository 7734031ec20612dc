package alerts

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// Config is the section [alerts]. Without a webhook and a command nobody is told.
type Config struct {
	Webhook        secret.Secret `toml:"webhook"`         // URL; takes Alertmanager's webhook payload, version 4
	Command        []string      `toml:"command"`         // program and arguments; the same payload on its standard input
	Severity       string        `toml:"severity"`        // least severity that is told: info, warning, critical
	RepeatInterval time.Duration `toml:"repeat_interval"` // how often what goes on is told again; 0s: never
	Timeout        time.Duration `toml:"timeout"`         // of one attempt
	ExternalURL    string        `toml:"external_url"`    // of the status page, as people reach it; empty: none in the payload
}

// DefaultConfig returns the defaults; config.example.toml gives the reasons.
func DefaultConfig() Config {
	return Config{Severity: "info", RepeatInterval: 4 * time.Hour, Timeout: 10 * time.Second}
}

// On tells whether anybody is told.
func (c Config) On() bool { return c.Webhook.IsSet() || len(c.Command) > 0 }

// Validate reports every wrong value. What it says of the webhook does not show it: such an URL is a password. A URL in a file is looked
// at when it is used, as it may change.
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
		errs = append(errs, fmt.Errorf("alerts.severity = %q: must be info, warning or critical", c.Severity))
	}
	if c.RepeatInterval < 0 {
		errs = append(errs, fmt.Errorf("alerts.repeat_interval = %s: must not be negative", c.RepeatInterval))
	}
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("alerts.timeout = %s: must be positive", c.Timeout))
	}
	if u, err := url.Parse(c.ExternalURL); c.ExternalURL != "" && (err != nil || !isHTTP(u)) {
		errs = append(errs, errors.New("alerts.external_url: must be an http or https URL")) // not shown: it may have a password in it all the same
	} else if err == nil && u.User != nil {
		errs = append(errs, errors.New("alerts.external_url: must not have a user or a password in it, since it stands in each notification"))
	}
	return errors.Join(errs...)
}

// Warnings are what may keep a valid configuration from telling anybody on this machine, or tells too much. They show no secret.
func (c Config) Warnings() []string {
	var warnings []string
	if c.Webhook.IsSet() {
		u, err := revealURL(c.Webhook)
		switch {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("alerts.webhook: %v", err))
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			warnings = append(warnings, "alerts.webhook: http sends the URL, and what is not well, readable for everybody on the way; use https")
		}
	}
	if len(c.Command) > 0 {
		if err := LookProgram(c.Command); err != nil {
			warnings = append(warnings, fmt.Sprintf("alerts.command: %v", err))
		}
	}
	return warnings
}

// errURL shows nothing of the URL, and neither do the errors of package url that it stands for.
var errURL = errors.New("must be an http or https URL with a host (it is not shown here, since it is a secret)")

// revealURL reads the webhook's file, if it is in one. Its errors show nothing of the URL.
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
