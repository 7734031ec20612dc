package status

import (
	"time"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
)

// pagePipeline is the way of a position, from the server to the slot.
type Pipeline struct {
	Phase       relay.Phase `json:"phase"`
	Since       time.Time   `json:"since"`
	Paused      relay.Pause `json:"paused,omitzero"`
	NextAttempt time.Time   `json:"next_attempt,omitzero"`
	Error       string      `json:"error,omitempty"`
	Sessions    int         `json:"sessions"`
	At          time.Time   `json:"at,omitzero"` // when the positions were read, all at once
	Server      LSN         `json:"server_wal_lsn"`
	Received    LSN         `json:"received_lsn"`
	Acked       LSN         `json:"acked_lsn"`
	Confirmed   LSN         `json:"confirmed_flush_lsn"`
	Restart     LSN         `json:"restart_lsn"`
	Distances   Distances   `json:"distances"`
	Rates       Rates       `json:"rates"`

	Published     uint64         `json:"published"`
	InFlight      int            `json:"in_flight"`
	InFlightBytes int64          `json:"in_flight_bytes"`
	OldestUnacked time.Time      `json:"oldest_unacked,omitzero"`
	Snapshot      relay.Snapshot `json:"snapshot,omitzero"`
}

// pageDistances are bytes of WAL between one position and the next; nil: one of the two is not known.
type Distances struct {
	Received  *int64 `json:"server_to_received,omitempty"`
	Acked     *int64 `json:"received_to_acked,omitempty"`
	Confirmed *int64 `json:"acked_to_confirmed,omitempty"`
	Restart   *int64 `json:"confirmed_to_restart,omitempty"`
}

type Rates struct {
	WAL            *float64 `json:"wal_bytes_per_second,omitempty"`
	Drain          *float64 `json:"drain_bytes_per_second,omitempty"`
	Published      float64  `json:"published_per_second"`
	PublishedBytes float64  `json:"published_bytes_per_second"`
}

type History struct {
	Interval float64          `json:"interval_seconds"`
	Samples  []history.Sample `json:"samples"`
}

type Events struct {
	Events []relay.Published `json:"events"`
}

type Topics struct {
	Topics []Topic `json:"topics"`
}

type Topic struct {
	Topic             string    `json:"topic"`
	Published         float64   `json:"published"`
	Bytes             float64   `json:"bytes"`
	PerSecond         float64   `json:"published_per_second"`
	BytesPerSecond    float64   `json:"bytes_per_second"`
	Failed            int       `json:"failed"` // refused by the broker
	LastPublished     time.Time `json:"last_published,omitzero"`
	Partitions        int       `json:"partitions,omitempty"`         // as check last saw it
	ReplicationFactor int       `json:"replication_factor,omitempty"` // the same
	Warnings          []string  `json:"warnings,omitempty"`           // what check has to say of the topic
}

type Errors struct {
	Errors []Error `json:"errors"`
}

type Error struct {
	relay.Failure
	Runbook string `json:"runbook"`
}

type Config struct {
	File   string         `json:"file,omitempty"`
	Values []config.Value `json:"values"`
}

type Build struct {
	Version       string    `json:"version"`
	Commit        string    `json:"commit,omitempty"`
	Modified      bool      `json:"modified,omitempty"`
	GoVersion     string    `json:"go_version"`
	OS            string    `json:"os"`
	Arch          string    `json:"arch"`
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
	ServerVersion string    `json:"server_version,omitempty"`
}

// checkReport is the part check of the page.
type Check struct {
	Running  bool           `json:"running"`
	At       time.Time      `json:"at,omitzero"`
	OK       bool           `json:"ok"`
	Findings []slot.Finding `json:"findings"`
}
