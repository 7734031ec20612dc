package alerts

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/secret"
)

func TestValidate_NamesEveryWrongValueAndShowsNoSecret(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	require.False(t, DefaultConfig().On())
	for _, good := range []string{"http://localhost:9000/hook", "https://user:pw@example.com/a/b?c=d",
		"https://[::1]:8443/"} {
		cfg := DefaultConfig()
		cfg.Webhook = secret.Of(good)
		require.NoError(t, cfg.Validate(), good)
		require.True(t, cfg.On())
	}
	for _, bad := range []string{
		canary, "ftp://example.com/" + canary, "https:///" + canary, "http://" + canary + ":port",
		"http://%zz" + canary, "https://example.com/\n" + canary,
		"mailto:" + canary + "@example.com", "http://:80/" + canary,
	} {
		cfg := DefaultConfig()
		cfg.Webhook = secret.Of(bad)
		err := cfg.Validate()
		require.ErrorContains(t, err, "alerts.webhook: must be an http or https URL")
		require.NotContains(t, err.Error(), canary)
	}
	for want, change := range map[string]func(*Config){
		"alerts.command":         func(c *Config) { c.Command = []string{"", "x"} },
		"alerts.severity":        func(c *Config) { c.Severity = "loud" },
		"alerts.repeat_interval": func(c *Config) { c.RepeatInterval = -time.Second },
		"alerts.timeout":         func(c *Config) { c.Timeout = 0 },
		"alerts.external_url":    func(c *Config) { c.ExternalURL = "example.com" },
		"user or a password": func(c *Config) {
			c.ExternalURL = "https://me:" + canary + "@example.com"
		},
	} {
		cfg := DefaultConfig()
		change(&cfg)
		err := cfg.Validate()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), canary)
	}
}

func TestWarnings_NameWhatMayKeepUsFromTelling(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	cfg := DefaultConfig()
	require.Empty(t, cfg.Warnings())
	cfg.Webhook, cfg.Command = secret.Of("https://example.com/"+canary), []string{program}
	require.Empty(t, cfg.Warnings())
	cfg.Webhook = secret.Of("http://127.0.0.1:9000/" + canary)
	require.Empty(t, cfg.Warnings())

	missing := filepath.Join(t.TempDir(), "missing")
	cfg.Webhook, cfg.Command = secret.Of("http://example.com/"+canary), []string{missing}
	warnings := cfg.Warnings()
	require.Len(t, warnings, 2)
	require.Contains(t, warnings[0], "use https")
	require.NotContains(t, warnings[0], canary)
	require.Contains(t, warnings[1], missing)

	cfg.Webhook, cfg.Command = secret.File(missing), nil
	require.Contains(t, cfg.Warnings()[0], missing)
}
