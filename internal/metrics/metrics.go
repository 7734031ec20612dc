// Package metrics holds every series that postrider exports.
//
// A name is postrider_<package>_<what>. Every series but postrider_build_info has the label slot.
// Units are seconds and bytes; an LSN is exported as its byte position, so that the difference of
// two is a distance in bytes. A point in time is exported as Unix time, not as an age, which would
// not grow without updates. What is not known yet is absent, not zero.
//
//	metrics.go  Set: the name and the labels of every series
//	help.txt    the help text of every series, by name
//	register.go making series from the fields of a struct
//	kinds.go    Optional, OptionalVec, Enum: gauges that may be absent
//	topics.go   the series of a topic, with a bound
//	read.go     reading series back for the status page
package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// Set is every series of one relay. All fields are safe for concurrent use. Updates of counters,
// gauges and histograms, also those of TopicMetrics, do not allocate; those of a *Vec may, so
// resolve its labels once and keep the result.
//
// The tags give name and labels.
type Set struct {
	Ready          prometheus.Gauge       `name:"relay_ready"`                // 1 or 0
	Phase          *Enum                  `name:"relay_phase" labels:"phase"` // relay.Phase
	SessionsOpened prometheus.Counter     `name:"relay_sessions_opened_total"`
	SessionsEnded  *prometheus.CounterVec `name:"relay_sessions_ended_total" labels:"reason"`
	Transactions   prometheus.Counter     `name:"relay_transactions_total"`
	Events         *prometheus.CounterVec `name:"relay_events_total" labels:"result"`
	InFlight       prometheus.Gauge       `name:"relay_in_flight_messages"`
	InFlightBytes  prometheus.Gauge       `name:"relay_in_flight_bytes"`
	OldestUnacked  *Optional              `name:"relay_oldest_unacked_timestamp_seconds"` // SetTime
	AckedLSN       *Optional              `name:"relay_acked_lsn"`                        // SetLSN
	CommitToAck    prometheus.Histogram   `name:"relay_commit_to_ack_seconds"`
	LastProgress   *Optional              `name:"relay_last_progress_timestamp_seconds"` // SetTime
	ConfigLoaded   *Optional              `name:"relay_config_loaded_timestamp_seconds"` // SetTime
	ConfigReloaded *Optional              `name:"relay_config_reload_successful"`        // SetBool
	Paused         prometheus.Gauge       `name:"relay_paused"`                          // 1 or 0
	// By the key of the limit: relay.max_rate, relay.rate[1].
	RateLimitRows  *OptionalVec           `name:"relay_rate_limit_rows_per_second" labels:"limit"`
	RateLimitBytes *OptionalVec           `name:"relay_rate_limit_bytes_per_second" labels:"limit"`
	RateWaited     *prometheus.CounterVec `name:"relay_rate_wait_seconds_total" labels:"limit"`
	// Messages of transactions that a failover lost.
	PhantomMessages prometheus.Counter `name:"relay_phantom_messages_total"`

	// The results of Events.
	EventsRouted, EventsSkipped, EventsRefused, EventsRepeated prometheus.Counter

	Connected         prometheus.Gauge   `name:"replication_connected"` // 1 or 0
	ReceivedBytes     prometheus.Counter `name:"replication_received_bytes_total"`
	ReceivedLSN       *Optional          `name:"replication_received_lsn"`        // SetLSN
	ConfirmedFlushLSN *Optional          `name:"replication_confirmed_flush_lsn"` // SetLSN

	// Those of single topics are in Topic.
	PublishSeconds prometheus.Histogram   `name:"sink_publish_seconds"`
	PublishErrors  *prometheus.CounterVec `name:"sink_publish_errors_total" labels:"reason"`
	Stalled        prometheus.Gauge       `name:"sink_stalled_partitions"`
	Requests       prometheus.Counter     `name:"sink_requests_total"` // produce requests
	RequestBytes   prometheus.Counter     `name:"sink_request_bytes_total"`

	SlotActive            *Optional          `name:"slot_active"`              // SetBool
	SlotConfirmedFlushLSN *Optional          `name:"slot_confirmed_flush_lsn"` // SetLSN
	SlotRestartLSN        *Optional          `name:"slot_restart_lsn"`         // SetLSN
	SlotServerWALLSN      *Optional          `name:"slot_server_wal_lsn"`      // SetLSN
	SlotLagBytes          *Optional          `name:"slot_lag_bytes"`
	SlotRetainedBytes     *Optional          `name:"slot_retained_bytes"`
	SlotSafeWALBytes      *Optional          `name:"slot_safe_wal_bytes"`
	SlotWALStatus         *Enum              `name:"slot_wal_status" labels:"status"` // wal_status
	SlotPublicationOK     *Optional          `name:"slot_publication_ok"`             // SetBool
	SlotObserved          *Optional          `name:"slot_observed_timestamp_seconds"` // SetTime
	SlotObserveErrors     prometheus.Counter `name:"slot_observe_errors_total"`
	// SlotSafeWALBytes may be negative. The rest of slot is as in monitor.Observation.
	SlotWALLimitBytes  *Optional    `name:"slot_wal_limit_bytes"`
	SlotWALRate        *OptionalVec `name:"slot_wal_rate_bytes_per_second" labels:"window"` // 5m, 1h
	SlotDrainRate      *OptionalVec `name:"slot_drain_rate_bytes_per_second" labels:"window"`
	SlotTimeToLoss     *Optional    `name:"slot_time_to_loss_seconds"`
	SlotTimeToDiskFull *Optional    `name:"slot_time_to_disk_full_seconds"`
	SlotCatchUp        *Optional    `name:"slot_catch_up_seconds"`
	SlotInactiveSince  *Optional    `name:"slot_inactive_since_timestamp_seconds"` // SetTime
	SlotInvalidated    *OptionalVec `name:"slot_invalidated" labels:"reason"`
	SlotConflicting    *Optional    `name:"slot_conflicting"`          // SetBool
	SlotFailover       *Optional    `name:"slot_failover"`             // SetBool
	SlotSynced         *Optional    `name:"slot_synced"`               // SetBool
	SlotStandbyBlocked *Optional    `name:"slot_standby_gate_blocked"` // SetBool
	SlotCatalogXminAge *Optional    `name:"slot_catalog_xmin_age"`     // transactions
	// By transaction, prepared_transaction, standby_feedback; Unix times.
	SlotOldestBlocker     *OptionalVec `name:"slot_held_since_timestamp_seconds" labels:"holder"`
	SlotSpillBytes        *Optional    `name:"slot_spill_bytes_total"` // the server's own counter
	SlotSpillTransactions *Optional    `name:"slot_spill_transactions_total"`
	SlotStreamBytes       *Optional    `name:"slot_stream_bytes_total"`
	SlotDecodedBytes      *Optional    `name:"slot_decoded_bytes_total"`
	// The server's clock minus ours.
	SlotClockSkew     *Optional    `name:"slot_clock_skew_seconds"`
	SlotOtherActive   *OptionalVec `name:"slot_other_active" labels:"other_slot"`
	SlotOtherRetained *OptionalVec `name:"slot_other_retained_bytes" labels:"other_slot"`
	SlotOtherSafeWAL  *OptionalVec `name:"slot_other_safe_wal_bytes" labels:"other_slot"`

	HealthState     *Enum        `name:"health_state" labels:"state"` // of health.Verdict
	HealthCondition *OptionalVec `name:"health_condition" labels:"condition severity"`

	// The receivers are webhook and command.
	AlertsSent    *prometheus.CounterVec `name:"alerts_notifications_total" labels:"receiver"`
	AlertsFailed  *prometheus.CounterVec `name:"alerts_notification_failures_total" labels:"receiver"`
	AlertsDropped prometheus.Counter     `name:"alerts_notifications_dropped_total"`

	SnapshotRows      prometheus.Counter `name:"snapshot_rows_total"`
	SnapshotEstimated *Optional          `name:"snapshot_estimated_rows"`
	SnapshotRunning   prometheus.Gauge   `name:"snapshot_running"`   // 1 or 0
	SnapshotCompleted *Optional          `name:"snapshot_completed"` // SetBool

	// The result is published or failed.
	WriteBackRows      *prometheus.CounterVec `name:"write_back_rows_total" labels:"result"`
	WriteBackLastSweep *Optional              `name:"write_back_last_sweep_timestamp_seconds"` // SetTime
	WriteBackFailures  prometheus.Counter     `name:"write_back_failures_total"`

	// The cause is "parked" for a row that follows an earlier one of its key.
	DeadLetters       *prometheus.CounterVec `name:"dead_letters_total" labels:"cause" formerly:"deadletter_letters_total"`
	DeadLetterSkipped *prometheus.CounterVec `name:"deadletter_skipped_total" labels:"cause"`
	ParkedKeys        *Optional              `name:"deadletter_parked_keys"`

	// Of [prune], by table.
	PruneRows       *prometheus.CounterVec `name:"prune_rows_total" labels:"relation"`
	PruneLastRun    *Optional              `name:"prune_last_run_timestamp_seconds"` // SetTime
	PruneFailures   prometheus.Counter     `name:"prune_failures_total"`
	PruneGaps       *OptionalVec           `name:"prune_gaps" labels:"relation"`
	PruneOldestRow  *OptionalVec           `name:"prune_oldest_row_timestamp_seconds" labels:"relation"`
	PruneDeadRows   *OptionalVec           `name:"prune_dead_rows" labels:"relation"`
	PruneAutovacuum *OptionalVec           `name:"prune_last_autovacuum_timestamp_seconds" labels:"relation"`

	topics topics
}

// New registers every series with reg. It panics if they are registered already: one relay has one
// registry.
func New(reg prometheus.Registerer, slotName string) *Set {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"slot": slotName}, reg)
	s := &Set{}
	register(reg, s)
	register(reg, &s.topics.series)
	s.Phase.values = []string{
		"starting", "snapshot", "streaming", "standby", "backing_off", "paused", "draining", "stopped",
		"halted",
	}
	s.SlotWALStatus.values = []string{"reserved", "extended", "unreserved", "lost"}
	s.HealthState.values = []string{"ok", "degraded", "failing", "standby"}
	s.topics.known.Store(&map[string]*TopicMetrics{})
	s.EventsRouted = s.Events.WithLabelValues("routed")
	s.EventsSkipped = s.Events.WithLabelValues("skipped")
	s.EventsRefused = s.Events.WithLabelValues("refused")
	s.EventsRepeated = s.Events.WithLabelValues("repeated")
	return s
}

// RegisterBuild registers postrider_build_info. It has no label slot: it belongs to the process.
func RegisterBuild(reg prometheus.Registerer, version string) {
	var s struct {
		Build *prometheus.GaugeVec `name:"build_info" labels:"version go_version"`
	}
	register(reg, &s)
	s.Build.WithLabelValues(version, runtime.Version()).Set(1)
}
