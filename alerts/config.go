// Package alerts tells people when the verdict changes, for those who run no Prometheus: by a webhook in Alertmanager's format, and by a command.
package alerts

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"postrider/secret"
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

// Validate reports every wrong value. What it says of the webhook does not show it: such an URL is a password.
func (c Config) Validate() error {
	var errs []error
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
	if u, err := url.Parse(c.ExternalURL); c.ExternalURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		errs = append(errs, fmt.Errorf("alerts.external_url = %q: must be an http or https URL", c.ExternalURL))
	}
	return errors.Join(errs...)
}
