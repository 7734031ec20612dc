package alerts

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
)

// payload has the fields that Alertmanager's documentation lists for webhook_config, and no other.
type payload struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   *int              `json:"truncatedAlerts"`
	Status            string            `json:"status"`
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       *string           `json:"externalURL"`
	Alerts            []struct {
		Status       string            `json:"status"`
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
		StartsAt     time.Time         `json:"startsAt"`
		EndsAt       time.Time         `json:"endsAt"`
		GeneratorURL *string           `json:"generatorURL"`
		Fingerprint  string            `json:"fingerprint"`
	} `json:"alerts"`
}

func decode(t testing.TB, b []byte) payload {
	t.Helper()
	var p payload
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&p), "%s", b)
	require.Equal(t, "4", p.Version)
	require.Len(t, p.Alerts, 1)
	require.Equal(t, p.Status, p.Alerts[0].Status)
	require.NotNil(t, p.TruncatedAlerts)
	require.Zero(t, *p.TruncatedAlerts)
	require.NotNil(t, p.ExternalURL)
	require.NotNil(t, p.Alerts[0].GeneratorURL)
	return p
}

func encode(t testing.TB, w notification, about About) payload {
	t.Helper()
	b, err := json.Marshal(w.message(about, "webhook", "https://status.example.com"))
	require.NoError(t, err)
	return decode(t, b)
}

func TestMessage_IsAlertmanagersVersion4(t *testing.T) {
	w := notification{
		condition: condition("PostriderNotReady", health.Critical, 0), severity: critical,
		startsAt: time.Date(2026, 5, 6, 9, 8, 9, 0, time.FixedZone("", 7200)),
	}
	p := encode(t, w, about)
	require.Equal(t, "firing", p.Status)
	require.Equal(t, "webhook", p.Receiver)
	require.Equal(t, "https://status.example.com", *p.ExternalURL)
	require.Equal(t, "https://status.example.com", *p.Alerts[0].GeneratorURL)
	require.Equal(t, `{}:{alertname="PostriderNotReady", database="shop", server="db:5432", slot="orders"}`, p.GroupKey)
	require.Equal(t, map[string]string{
		"alertname": "PostriderNotReady", "database": "shop", "server": "db:5432", "slot": "orders",
	}, p.GroupLabels)
	require.Equal(t, map[string]string{
		"alertname": "PostriderNotReady", "database": "shop", "server": "db:5432", "slot": "orders",
		"severity": "critical", "instance": "relay-0",
	}, p.Alerts[0].Labels)
	require.Equal(t, p.Alerts[0].Labels, p.CommonLabels)
	require.Equal(t, map[string]string{
		"summary": "reason of PostriderNotReady",
		"description": "reason of PostriderNotReady\nbecause of: kafka\nWAL: kept\nnext: postrider " +
			"check",
		"wal": "kept", "next": "postrider check", "culprit": "kafka",
		"runbook_url": "docs/RUNBOOKS.md#postridernotready",
	}, p.Alerts[0].Annotations)
	require.Equal(t, p.Alerts[0].Annotations, p.CommonAnnotations)
	require.Equal(t, "2026-05-06T07:08:09Z", p.Alerts[0].StartsAt.Format(time.RFC3339))
	require.True(t, p.Alerts[0].EndsAt.IsZero())
	require.Regexp(t, `^[0-9a-f]{16}$`, p.Alerts[0].Fingerprint)

	w.resolved, w.endsAt = true, w.startsAt.Add(time.Hour)
	p = encode(t, w, about)
	require.Equal(t, "resolved", p.Status)
	require.Equal(t, "2026-05-06T08:08:09Z", p.Alerts[0].EndsAt.Format(time.RFC3339))
}

func TestMessage_KeepsItsIdentityAcrossSeveritiesAndProcesses(t *testing.T) {
	w := notification{condition: condition("PostriderBacklog", health.Warning, 0), severity: warning}
	first := encode(t, w, about)
	other := about
	other.Instance, other.Version = "relay-1", "2"
	w.severity = critical
	w.condition.Reason = "another"
	second := encode(t, w, other)
	require.Equal(t, first.GroupKey, second.GroupKey)
	require.Equal(t, first.Alerts[0].Fingerprint, second.Alerts[0].Fingerprint)
	for _, change := range []func(*About){
		func(a *About) { a.Slot = "payments" }, func(a *About) { a.Database = "crm" },
		func(a *About) { a.Server = "db-2:5432" },
	} {
		other := about
		change(&other)
		p := encode(t, w, other)
		require.NotEqual(t, first.GroupKey, p.GroupKey)
		require.NotEqual(t, first.Alerts[0].Fingerprint, p.Alerts[0].Fingerprint)
	}
}

func TestMessage_LeavesOutWhatIsEmptyAndCutsWhatIsLong(t *testing.T) {
	w := notification{condition: health.Condition{
		Name: "PostriderBacklog", Reason: strings.Repeat("ä", maxText),
	}, severity: info}
	p := encode(t, w, About{Slot: "orders"})
	require.NotContains(t, p.CommonLabels, "database")
	require.NotContains(t, p.CommonAnnotations, "next")
	require.LessOrEqual(t, len(p.CommonAnnotations["summary"]), maxText+4)
	require.True(t, utf8.ValidString(p.CommonAnnotations["summary"]))
	require.NotContains(t, p.CommonAnnotations["summary"], "\ufffd")
}

func TestMessage_LinksToHeadingsThatExist(t *testing.T) {
	headings := map[string]bool{}
	for _, page := range []string{"docs/RUNBOOKS.md", "docs/ALERTS.md"} {
		b, err := os.ReadFile("../../" + page)
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			level, name, found := strings.Cut(strings.TrimSpace(line), " ")
			if found && strings.Trim(level, "#") == "" {
				headings[page+"#"+strings.ToLower(name)] = true
			}
		}
	}
	for _, name := range append(health.Names(), "PostriderTest") {
		require.Contains(t, headings, runbook(name))
	}
}
