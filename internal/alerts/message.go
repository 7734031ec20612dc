package alerts

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/health"
)

// About identifies the relay. All fields but Version become labels, unless they are empty.
type About struct {
	Slot     string // name of the slot
	Database string // name of the database
	Server   string // host:port of the database, as configured; several with commas
	Instance string // host name of this process
	Version  string // of postrider
}

// The values of status.
const (
	statusFiring   = "firing"
	statusResolved = "resolved"
)

// message is Alertmanager's webhook payload, version 4. It has one alert, with the same status and
// identity as the message.
type message struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"` // without status, severity and process
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Status            string            `json:"status"`
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Alerts            []alert           `json:"alerts"`
}

type alert struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"` // year 1 while firing, as of Alertmanager
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"` // of the labels in groupKey
}

// runbook returns the link to the heading of a condition; for the test notification, to that about
// notifications.
func runbook(name string) string {
	if slices.Contains(health.Names(), name) {
		return "docs/RUNBOOKS.md#" + health.Runbook(name)
	}
	return "docs/ALERTS.md#notifications"
}

// maxText bounds a label or annotation, in bytes: a reason may contain a server's error.
const maxText = 4 << 10

func (p notification) message(about About, receiver, externalURL string) message {
	// Without severity and instance, which can change: firing and resolved have the same identity.
	c := p.condition
	identity := labels(map[string]string{
		"alertname": c.Name, "slot": about.Slot, "database": about.Database, "server": about.Server,
	})
	all := labels(map[string]string{"severity": p.severity.String(), "instance": about.Instance})
	maps.Copy(all, identity)
	annotations := labels(map[string]string{
		"summary": c.Reason, "description": describe(c), "wal": c.WAL, "next": c.Next,
		"culprit": c.Cause, "runbook_url": runbook(c.Name),
	})
	return message{
		Version: "4", GroupKey: groupKey(identity), Status: p.status(), Receiver: receiver,
		GroupLabels: identity, CommonLabels: all, CommonAnnotations: annotations,
		ExternalURL: externalURL,
		Alerts: []alert{{
			Status: p.status(), Labels: all, Annotations: annotations,
			StartsAt: p.startsAt.UTC(), EndsAt: p.endsAt.UTC(),
			GeneratorURL: externalURL, Fingerprint: fingerprint(identity),
		}},
	}
}

// describe joins the annotations, for receivers that show only one.
func describe(c health.Condition) string {
	text := c.Reason
	for _, part := range [][2]string{
		{"because of", c.Cause}, {"WAL", c.WAL}, {"next", c.Next},
	} {
		if part[1] != "" {
			text += "\n" + part[0] + ": " + part[1]
		}
	}
	return text
}

// labels removes empty values, as Prometheus does, and truncates long ones.
func labels(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	for name, value := range m {
		if len(value) > maxText {
			m[name] = strings.ToValidUTF8(value[:maxText], "") + " ..."
		}
	}
	return m
}

// groupKey returns a key in Alertmanager's form, of a route without matchers.
func groupKey(identity map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(identity)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", name, identity[name]))
	}
	return "{}:{" + strings.Join(pairs, ", ") + "}"
}

func fingerprint(identity map[string]string) string {
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(identity)) {
		_, _ = h.Write([]byte(name + "\xff" + identity[name] + "\xff"))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
