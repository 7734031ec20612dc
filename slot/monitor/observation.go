package monitor

import (
	"math"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/slot"
)

// Observation is what the Monitor has observed. Unknown values are absent, and a Note has the
// reason. While the server is away the values stay; Slot.ObservedAt is their time.
type Observation struct {
	Slot   slot.Status `json:"slot"`
	Server Server      `json:"server"`
	Limit  Limit       `json:"limit"`
	// nil: no session streams from the slot, or the login may not see it
	Stream   *Walsender `json:"stream,omitempty"`
	Decoding *Decoding  `json:"decoding,omitempty"` // nil: the slot was never used, or not known
	// CatalogXminAge is the age in transactions of the slot's catalog_xmin; nil: it has none, or it
	// is not known.
	CatalogXminAge *int64 `json:"catalog_xmin_age,omitempty"`

	// what holds restart_lsn and catalog_xmin back, or VACUUM alone, the oldest first
	Blockers []Blocker `json:"holders,omitempty"`
	// slots of synchronized_standby_slots, from 17; only if the slot has failover
	Standbys []StandbySlot `json:"gate,omitempty"`
	// the other slots of the server, by name; empty with monitor.other_slots off
	Others   []slot.Status `json:"others,omitempty"`
	Rates    Rates         `json:"rates"`
	Distance Distance      `json:"distance"`
	// nil: the server archives nothing, monitor.volume_size is not set, or the login lacks pg_monitor
	Archive  *Archive `json:"archive,omitempty"`
	Pace     *Pace    `json:"pace,omitempty"` // nil: nothing limits what the relay publishes
	Forecast Forecast `json:"forecast"`
	Clock    *Clock   `json:"clock,omitempty"`
	Notes    []Note   `json:"notes,omitempty"`
	// changes of server and slot since the Monitor runs, the newest first, at most 20
	Events []Event `json:"events,omitempty"`
}

// Server is the server as a whole.
type Server struct {
	Version   string    `json:"version,omitempty"`
	Standby   bool      `json:"standby"`
	Timeline  int32     `json:"timeline,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
}

// Limit has the settings that decide how much WAL is kept, and when it is removed.
type Limit struct {
	MaxSlotWALKeepSize *int64 `json:"max_slot_wal_keep_size,omitempty"` // bytes; nil: no limit
	WALKeepSize        int64  `json:"wal_keep_size"`                    // bytes
	// bytes: the larger of MaxSlotWALKeepSize and WALKeepSize; nil: no limit
	Effective         *int64  `json:"effective,omitempty"`
	MaxWALSize        int64   `json:"max_wal_size"` // bytes
	SegmentSize       int64   `json:"segment_size"` // bytes
	CheckpointTimeout Seconds `json:"checkpoint_timeout_seconds"`
	CheckpointTarget  float64 `json:"checkpoint_completion_target"`
	// bytes; a checkpoint writes no more than that
	SharedBuffers int64   `json:"shared_buffers"`
	IdleTimeout   Seconds `json:"idle_replication_slot_timeout_seconds"` // PostgreSQL 18; zero: none
	// nil: the login may not call pg_control_checkpoint
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// bytes, of monitor.volume_size
	VolumeSize int64 `json:"volume_size,omitempty"`
	// bytes in pg_wal; nil: the login lacks pg_monitor
	WALDirectory *int64 `json:"wal_directory,omitempty"`
}

// Checkpoint is the last completed checkpoint. The end of a checkpoint invalidates slots.
type Checkpoint struct {
	StartedAt time.Time     `json:"started_at"` // by the server's clock
	RedoLSN   pglogrepl.LSN `json:"-"`
	// estimated from the observations around its end; zero: not known
	Took Seconds `json:"took_seconds,omitempty"`
	// growth of changedPages since StartedAt: the work of the next checkpoint; nil: the monitor
	// began later
	Pages *int64 `json:"pages,omitempty"`
}

// Walsender is the row of pg_stat_replication of the session that streams from the slot, and its
// wait_event of pg_stat_activity, which other roles than its own see only with pg_read_all_stats.
type Walsender struct {
	PID         int32         `json:"pid"`
	Application string        `json:"application,omitempty"`
	User        string        `json:"user,omitempty"`
	State       string        `json:"state,omitempty"` // catchup, streaming ...
	WaitEvent   string        `json:"wait_event,omitempty"`
	SentLSN     pglogrepl.LSN `json:"-"`
}

// Decoding is the row of pg_stat_replication_slots: the server's work for the slot since ResetAt.
type Decoding struct {
	SpillTransactions int64 `json:"spill_transactions"`
	// written to the server's disk beyond logical_decoding_work_mem
	SpillBytes         int64     `json:"spill_bytes"`
	StreamTransactions int64     `json:"stream_transactions"`
	StreamBytes        int64     `json:"stream_bytes"`
	TotalTransactions  int64     `json:"total_transactions"`
	TotalBytes         int64     `json:"total_bytes"`
	ResetAt            time.Time `json:"reset_at,omitzero"`

	countedSince time.Time // by the SQL countedSince
}

// The kinds of a Blocker.
const (
	BlockerTransaction = "transaction"          // open, with a transaction ID
	BlockerPrepared    = "prepared_transaction" // PREPARE TRANSACTION without COMMIT PREPARED
	// BlockerStandby is hot_standby_feedback. It holds VACUUM back, and not the catalog_xmin of a
	// slot that exists; a new slot begins at it.
	BlockerStandby = "standby_feedback"
)

// Blocker holds restart_lsn and catalog_xmin back, or VACUUM alone. It has no query text, which
// may contain data.
type Blocker struct {
	Kind        string `json:"kind"`
	PID         int32  `json:"pid,omitempty"`         // zero: none, or not known
	Application string `json:"application,omitempty"` // application_name, or of the standby
	User        string `json:"user,omitempty"`
	Database    string `json:"database,omitempty"`
	State       string `json:"state,omitempty"` // of pg_stat_activity: "idle in transaction"
	GID         string `json:"gid,omitempty"`   // of a prepared transaction
	XID         uint64 `json:"xid,omitempty"`
	// transactions that began since it did; of a standby: since the one that it reports
	Age int64 `json:"age_transactions,omitempty"`
	// start of the transaction; if the login may not see it, when the monitor first saw it
	Since   time.Time `json:"since,omitzero"`
	Restart bool      `json:"holds_restart_lsn"` // the slot's restart_lsn cannot pass it
}

// StandbySlot is a slot of a standby that has to confirm a position before the relay gets it.
type StandbySlot struct {
	Name          string    `json:"name"`
	Exists        bool      `json:"exists"`
	Active        bool      `json:"active"`
	InactiveSince time.Time `json:"inactive_since,omitzero"`
	WALStatus     string    `json:"wal_status,omitempty"`
	// it is a logical slot, for which the server waits for ever, whoever reads from it
	Logical bool `json:"logical,omitempty"`
	// it is missing, inactive, lost, logical or behind, so the server sends the relay nothing
	Blocks bool `json:"blocks"`
	// How long it has not confirmed WAL for which the walsender waits, and how many bytes have been
	// written since what it has confirmed. Zero and nil: it is not behind.
	Behind      Seconds `json:"behind_seconds,omitempty"`
	BehindBytes *int64  `json:"behind_bytes,omitempty"`
}

// Rates are bytes of WAL per second; nil: not observed for long enough.
type Rates struct {
	WAL5m   *float64 `json:"wal_5m,omitempty"` // written by the whole server
	WAL1h   *float64 `json:"wal_1h,omitempty"`
	Drain5m *float64 `json:"drain_5m,omitempty"` // by which confirmed_flush_lsn moves
	Drain1h *float64 `json:"drain_1h,omitempty"`
	// over the last minute, at least 30 s: the first to show a change of the load
	WAL1m *float64 `json:"wal_1m,omitempty"`
	// growth of changedPages, in pages per second; a checkpoint with more pages takes longer
	Pages5m *float64 `json:"pages_5m,omitempty"`
}

// Forecast has the estimates of an Observation.
type Forecast struct {
	Loss     Estimate `json:"loss"`      // of the slot
	DiskFull Estimate `json:"disk_full"` // of the volume with pg_wal
	// DiskFullByArchiver: DiskFull is that of WAL that waits for the archiver.
	DiskFullByArchiver bool     `json:"disk_full_by_archiver,omitempty"`
	CatchUp            Estimate `json:"catch_up"` // until confirmed_flush_lsn reaches the server
	// Grows: the slot keeps more and more WAL. False: the reader keeps up, and nothing is known to
	// hold restart_lsn back.
	Grows bool `json:"grows"`
}

// Estimate is a time after ObservedAt.
type Estimate struct {
	// nil: it does not happen, or is not known; see Assumption
	Seconds  *float64 `json:"seconds,omitempty"`
	Earliest *float64 `json:"earliest,omitempty"` // seconds; set if Seconds is
	Latest   *float64 `json:"latest,omitempty"`   // seconds; nil: open
	// one sentence: what the estimate assumes, or why there is none
	Assumption string `json:"assumption"`
	// By is the setting that invalidates the slot; empty: max_slot_wal_keep_size, or none.
	By string `json:"by,omitempty"`
}

// ByIdleness is Estimate.By of a slot that no session reads: a higher limit of WAL does not help.
const ByIdleness = "idle_replication_slot_timeout"

// Clock is the difference between the server's clock and ours.
type Clock struct {
	Skew  Seconds `json:"skew_seconds"`  // the server's minus ours
	Error Seconds `json:"error_seconds"` // at most; half of the round-trip time

	at time.Time // of the measurement, with its monotonic clock reading
}

// ServerTime returns the server's clock at now. It counts the time since the measurement, which a
// step of our clock does not change.
func (c *Clock) ServerTime(now time.Time) time.Time {
	switch {
	case c == nil:
		return now
	case c.at.IsZero(): // it comes from JSON
		return now.Add(c.Skew.Duration())
	}
	return c.at.Add(now.Sub(c.at)).Add(c.Skew.Duration())
}

// skew returns Skew, or zero if it may be an error of measurement: most clocks are synchronized.
func (c *Clock) skew() time.Duration {
	if c == nil || c.Skew.Duration().Abs() <= c.Error.Duration() {
		return 0
	}
	return c.Skew.Duration()
}

// agrees reports whether c and other can be measurements of the same difference.
func (c *Clock) agrees(other *Clock) bool {
	return math.Abs(float64(c.Skew-other.Skew)) <= float64(c.Error+other.Error)
}

// Seconds is a duration whose JSON is a number of seconds.
type Seconds float64

// Duration returns s as a time.Duration.
func (s Seconds) Duration() time.Duration {
	return time.Duration(float64(s) * float64(time.Second))
}

// Note is why a value is absent.
type Note struct {
	Value string `json:"value"` // "wal_directory"
	Text  string `json:"text"`  // "pg_ls_waldir() needs pg_monitor: GRANT pg_monitor TO postrider"
}

// Event is a change that an operator may look for later: a restart, a promotion, a slot that was
// dropped, renamed or recreated.
type Event struct {
	At   time.Time `json:"at"`
	Code string    `json:"code"` // snake_case, for machines: server_restarted, slot_missing
	Text string    `json:"text"`
}
