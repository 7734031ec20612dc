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

// About identifies the relay. Its fields become labels, without the empty ones.
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

// message is Alertmanager's webhook payload, version 4. It has one alert, whose status and
// identity are those of the message.
type message struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"` // of every status, severity and process
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
	EndsAt       time.Time         `json:"endsAt"` // year 1 while it is firing, as with Alertmanager
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"` // of what groupKey names
}

// runbook is the heading of the condition; for the test notification, the heading about
// notifications.
func runbook(name string) string {
	if slices.Contains(health.Names(), name) {
		return "docs/RUNBOOKS.md#" + health.Runbook(name)
	}
	return "docs/ALERTS.md#notifications"
}

// maxText bounds an annotation, in bytes: a reason may contain an error of a server.
const maxText = 4 << 10

func (p notification) message(about About, receiver, externalURL string) message {
	// Without severity and instance: the end of a condition has the identity of its beginning, also
	// when either changed or another process sent that.
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

// describe joins the annotations, for receivers that show one.
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

// labels drops empty values, as Prometheus does, and cuts long ones.
func labels(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	for name, value := range m {
		if len(value) > maxText {
			m[name] = strings.ToValidUTF8(value[:maxText], "") + " ..."
		}
	}
	return m
}

// groupKey has the form of Alertmanager's for a route without matchers.
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
