package status

import (
	"time"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/relay"
)

// Pipeline is the part pipeline: the positions from the server to the slot.
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

	Rate ratelimit.State `json:"rate,omitzero"` // zero: no limit
}

// Distances are bytes of WAL between one position and the next; nil if one of the two is not
// known.
type Distances struct {
	Received  *int64 `json:"server_to_received,omitempty"`
	Acked     *int64 `json:"received_to_acked,omitempty"`
	Confirmed *int64 `json:"acked_to_confirmed,omitempty"`
	Restart   *int64 `json:"confirmed_to_restart,omitempty"`
}

// Rates are those of the last seconds; nil if not known.
type Rates struct {
	WAL            *float64 `json:"wal_bytes_per_second,omitempty"`
	Drain          *float64 `json:"drain_bytes_per_second,omitempty"`
	Published      float64  `json:"published_per_second"`
	PublishedBytes float64  `json:"published_bytes_per_second"`
}

// History is the part history: samples of the last hour.
type History struct {
	Interval float64          `json:"interval_seconds"`
	Samples  []history.Sample `json:"samples"`
}

// Events is the part events: the events published last.
type Events struct {
	Events []relay.Published `json:"events"`
}

// Topics is the part topics.
type Topics struct {
	Topics []Topic `json:"topics"`
}

// Topic is what is known of one topic since the start.
type Topic struct {
	Topic             string    `json:"topic"`
	Published         float64   `json:"published"`
	Bytes             float64   `json:"bytes"`
	PerSecond         float64   `json:"published_per_second"`
	BytesPerSecond    float64   `json:"bytes_per_second"`
	Failed            int       `json:"failed"` // refused by the broker
	LastPublished     time.Time `json:"last_published,omitzero"`
	Partitions        int       `json:"partitions,omitempty"`         // as of the last check
	ReplicationFactor int       `json:"replication_factor,omitempty"` // the same
	Warnings          []string  `json:"warnings,omitempty"`           // of the last check
}

// Errors is the part errors.
type Errors struct {
	Errors []Error `json:"errors"`
}

// Error is a reason for which sessions failed, with its runbook.
type Error struct {
	relay.Failure
	Runbook string `json:"runbook"`
}

// Config is the part config: the effective values, secrets masked.
type Config struct {
	File   string         `json:"file,omitempty"`
	Values []config.Value `json:"values"`
}

// Build is the part build: program, process and server.
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
