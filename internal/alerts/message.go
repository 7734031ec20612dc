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

// About says whose conditions they are. It becomes labels; what is empty is left out.
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

// message is Alertmanager's webhook payload, version 4, with one alert in it, so that its status is that of the alert and its groupKey
// belongs to the alert alone.
type message struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"` // the same for firing and resolved, for every severity and every process
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

// word is what one receiver is told of one condition at one time. It shares nothing with whoever made it.
type word struct {
	condition health.Condition
	severity  rank
	resolved  bool
	repeated  bool
	startsAt  time.Time
	endsAt    time.Time // zero unless resolved
}

func (w word) status() string {
	if w.resolved {
		return statusResolved
	}
	return statusFiring
}

// runbook is the heading with the name of the condition, or for what is none, as the test's, the one that explains notifications.
func runbook(name string) string {
	if slices.Contains(health.Names(), name) {
		return "docs/RUNBOOKS.md#" + health.Runbook(name)
	}
	return "docs/ALERTS.md#notifications"
}

// maxText bounds an annotation, in bytes: a reason may hold what a server said.
const maxText = 4 << 10

func (w word) message(about About, receiver, externalURL string) message {
	// The identity has neither severity nor instance: it stays when either changes, so that the end of a condition finds its beginning,
	// even one that another process told.
	identity := labels(map[string]string{"alertname": w.condition.Name, "slot": about.Slot, "database": about.Database, "server": about.Server})
	all := labels(map[string]string{"severity": w.severity.String(), "instance": about.Instance})
	maps.Copy(all, identity)
	c := w.condition
	annotations := labels(map[string]string{
		"summary": c.Reason, "description": describe(c), "wal": c.WAL, "next": c.Next, "culprit": c.Cause,
		"runbook_url": runbook(c.Name),
	})
	return message{
		Version: "4", GroupKey: groupKey(identity), Status: w.status(), Receiver: receiver,
		GroupLabels: identity, CommonLabels: all, CommonAnnotations: annotations, ExternalURL: externalURL,
		Alerts: []alert{{
			Status: w.status(), Labels: all, Annotations: annotations, StartsAt: w.startsAt.UTC(), EndsAt: w.endsAt.UTC(),
			GeneratorURL: externalURL, Fingerprint: fingerprint(identity),
		}},
	}
}

// describe says everything in one text, for receivers that show one annotation.
func describe(c health.Condition) string {
	text := c.Reason
	if c.Cause != "" {
		text += "\nbecause of: " + c.Cause
	}
	if c.WAL != "" {
		text += "\nWAL: " + c.WAL
	}
	if c.Next != "" {
		text += "\nnext: " + c.Next
	}
	return text
}

// labels leaves out what is empty, as Prometheus does, and cuts off what is too long.
func labels(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	for name, value := range m {
		if len(value) > maxText {
			m[name] = strings.ToValidUTF8(value[:maxText], "") + " ..."
		}
	}
	return m
}

// groupKey is written as Alertmanager writes it for a route without matchers.
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
