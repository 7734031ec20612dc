// Package metrics holds every series that postrider exports: name, help, labels and buckets on one screen.
//
// Names are postrider_<package>_<what>. Every series but postrider_build_info carries the label slot. Units are seconds and bytes; an LSN is exported as
// its byte position, so that the difference of two of them is a distance in bytes. Points in time are exported as Unix
// times, not as ages, so that they keep aging when nobody updates them. What is not known yet is absent, not zero.
//
//	metrics.go every series
//	kinds.go   how series are made
//	topics.go  the series of a topic, with a bound
//	read.go    reading them back for the page
package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// Set is every series of one relay. All fields may be used from any goroutine. Counters, gauges and histograms of a field, and those of
// TopicMetrics, do not allocate when they are updated; a *Vec may, so resolve its labels once and keep the result.
type Set struct {
	// relay
	Ready          prometheus.Gauge // 1 or 0
	Phase          *Enum            // relay.Phase
	SessionsOpened prometheus.Counter
	SessionsEnded  *prometheus.CounterVec // reason
	Transactions   prometheus.Counter
	EventsRouted   prometheus.Counter // the results of one family, events_total{result}
	EventsSkipped  prometheus.Counter
	EventsRefused  prometheus.Counter
	EventsRepeated prometheus.Counter
	InFlight       prometheus.Gauge // messages
	InFlightBytes  prometheus.Gauge
	OldestUnacked  *Optional            // SetTime; Clear when everything is acked
	AckedLSN       *Optional            // SetLSN
	CommitToAck    prometheus.Histogram // seconds
	LastProgress   *Optional            // SetTime
	ConfigLoaded   *Optional            // SetTime
	ConfigReloaded *Optional            // SetBool: the last reload succeeded
	Paused         prometheus.Gauge     // 1 or 0
	// Messages of transactions that a failover lost.
	PhantomMessages prometheus.Counter

	// replication
	Connected         prometheus.Gauge // 1 or 0
	ReceivedBytes     prometheus.Counter
	ReceivedLSN       *Optional // SetLSN
	ConfirmedFlushLSN *Optional // SetLSN

	// sink; see also Topic
	PublishSeconds prometheus.Histogram   // seconds
	PublishErrors  *prometheus.CounterVec // reason
	Requests       prometheus.Counter     // to produce, written to a broker
	RequestBytes   prometheus.Counter
	published      *prometheus.CounterVec // topic
	publishedBytes *prometheus.CounterVec // topic
	lastPublished  *prometheus.GaugeVec   // topic

	// slot
	SlotActive            *Optional // SetBool
	SlotConfirmedFlushLSN *Optional // SetLSN
	SlotRestartLSN        *Optional // SetLSN
	SlotServerWALLSN      *Optional // SetLSN
	SlotLagBytes          *Optional
	SlotRetainedBytes     *Optional
	SlotSafeWALBytes      *Optional // may be negative; Clear when the server sets no limit
	SlotWALStatus         *Enum     // reserved, extended, unreserved, lost
	SlotPublicationOK     *Optional // SetBool
	SlotObserved          *Optional // SetTime
	SlotObserveErrors     prometheus.Counter
	// From here on as of monitor.Observation; see its fields.
	SlotWALLimitBytes     *Optional
	SlotWALRate           *OptionalVec // window: 5m, 1h
	SlotDrainRate         *OptionalVec // window
	SlotTimeToLoss        *Optional    // seconds
	SlotTimeToDiskFull    *Optional    // seconds
	SlotCatchUp           *Optional    // seconds
	SlotInactiveSince     *Optional    // SetTime
	SlotInvalidated       *OptionalVec // reason
	SlotConflicting       *Optional    // SetBool
	SlotFailover          *Optional    // SetBool
	SlotSynced            *Optional    // SetBool
	SlotStandbyBlocked    *Optional    // SetBool
	SlotCatalogXminAge    *Optional    // transactions
	SlotOldestBlocker     *OptionalVec // holder: transaction, prepared_transaction, standby_feedback; SetTime
	SlotSpillBytes        *Optional    // of the server's own counter
	SlotSpillTransactions *Optional
	SlotStreamBytes       *Optional
	SlotDecodedBytes      *Optional
	SlotClockSkew         *Optional    // seconds, the server's clock minus ours
	SlotOtherActive       *OptionalVec // other_slot
	SlotOtherRetained     *OptionalVec // other_slot
	SlotOtherSafeWAL      *OptionalVec // other_slot

	// health
	HealthState     *Enum        // ok, degraded, failing, standby
	HealthCondition *OptionalVec // condition, severity

	// alerts
	AlertsSent    *prometheus.CounterVec // receiver: webhook, command
	AlertsFailed  *prometheus.CounterVec // receiver
	AlertsDropped prometheus.Counter

	// snapshot
	SnapshotRows      prometheus.Counter
	SnapshotEstimated *Optional        // rows
	SnapshotRunning   prometheus.Gauge // 1 or 0
	SnapshotCompleted *Optional        // SetBool

	// deadletter; the label is the cause, or "parked" for a row that followed its key
	DeadLetters       *prometheus.CounterVec // cause
	DeadLetterSkipped *prometheus.CounterVec // cause
	ParkedKeys        *Optional              // keys

	topics topics
}

// Results of an event, the values of the label result.
const (
	resultRouted   = "routed"
	resultSkipped  = "skipped"
	resultRefused  = "refused"
	resultRepeated = "repeated"
)

var (
	// From half a millisecond, a local broker's answer, to a minute, by when a person has been paged.
	latencyBuckets = []float64{.0005, .001, .002, .003, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

	phases      = []string{"starting", "snapshot", "streaming", "standby", "backing_off", "paused", "draining", "stopped", "halted"}
	walStatuses = []string{"reserved", "extended", "unreserved", "lost"}

	healthStates = []string{"ok", "degraded", "failing", "standby"}
)

// New registers every series with reg. It panics if they are registered already: one relay, one registry.
func New(reg prometheus.Registerer, slotName string) *Set {
	b := builder{prometheus.WrapRegistererWith(prometheus.Labels{"slot": slotName}, reg)}
	events := b.counters("relay", "events_total", "result",
		"Events read, by what became of them: routed to a message, skipped as not ours, refused as undeliverable, repeated and left out because the topic has them. Refused above zero: the relay has halted, or a policy of [deadletter] took a row out.")

	s := &Set{
		Ready: b.gauge("relay", "ready",
			"1 while /readyz answers 200: streaming, publishing a snapshot, or standing by for a slot that another process holds. 0: rows wait in the WAL."),
		Phase: b.enum("relay", "phase", "phase", phases,
			"1 for what the relay is doing, 0 for all other phases. backing_off: the last session failed. halted: it waits for a person."),
		SessionsOpened: b.counter("relay", "sessions_opened_total",
			"Sessions opened, each from the slot's confirmed position. High: something ends them, see sessions_ended_total."),
		SessionsEnded: b.counters("relay", "sessions_ended_total", "reason",
			"Sessions ended, by reason. Rising: rows are published again after each, up to the in-flight limit."),
		Transactions: b.counter("relay", "transactions_total",
			"Transactions with at least one event of ours, as read. Not moving under load: look at replication_connected and in_flight_messages."),
		EventsRouted:   events.WithLabelValues(resultRouted),
		EventsSkipped:  events.WithLabelValues(resultSkipped),
		EventsRefused:  events.WithLabelValues(resultRefused),
		EventsRepeated: events.WithLabelValues(resultRepeated),
		InFlight: b.gauge("relay", "in_flight_messages",
			"Messages handed to the sink and not yet acknowledged. At the limit and not moving: the broker does not answer."),
		InFlightBytes: b.gauge("relay", "in_flight_bytes",
			"Bytes that the messages in flight hold in memory: their rows, and what was read around them. At the limit: reading waits for the broker, and WAL is kept."),
		OldestUnacked: b.optional("relay", "oldest_unacked_timestamp_seconds",
			"Commit time, by the server's clock, of the oldest transaction not yet acknowledged. Absent: none. Long ago: consumers are that late."),
		AckedLSN: b.optional("relay", "acked_lsn",
			"End of the longest prefix of transactions that is fully delivered, as a byte position. Far below replication_received_lsn: the broker is behind."),
		CommitToAck: b.histogram("relay", "commit_to_ack_seconds",
			"From the commit, by the server's clock, to the broker's acknowledgement, by ours. High: consumers are late; a skew of the two clocks adds to it."),
		LastProgress: b.optional("relay", "last_progress_timestamp_seconds",
			"When the session loop last turned. Long ago: the process hangs, and /livez says so."),
		ConfigLoaded: b.optional("relay", "config_loaded_timestamp_seconds",
			"When the configuration in use was loaded. Older than the file: a restart is due."),

		ConfigReloaded: b.optional("relay", "config_reload_successful",
			"1 if the configuration was read again when that was last asked for with SIGHUP, 0 if it was refused and the old one stays. Absent: never asked."),
		Paused: b.gauge("relay", "paused",
			"1 while the relay is paused by somebody. The slot keeps WAL, more with every write."),
		PhantomMessages: b.counter("relay", "phantom_messages_total",
			"Messages published of transactions that the database lost in a failover, as far as they are remembered. Rising: consumers have events that never happened."),

		Connected: b.gauge("replication", "connected",
			"1 while the replication connection streams. 0: nothing is read, and the slot keeps WAL."),
		ReceivedBytes: b.counter("replication", "received_bytes_total",
			"Bytes of copy data read from the replication connection. High beside few events: the publication holds large rows or other tables."),
		ReceivedLSN: b.optional("replication", "received_lsn",
			"Newest position read from the connection, as a byte position; kept while disconnected. Far below slot_server_wal_lsn: reading is behind."),
		ConfirmedFlushLSN: b.optional("replication", "confirmed_flush_lsn",
			"Flush position as last sent to the server, as a byte position. Below relay_acked_lsn for long: statuses do not go out."),

		PublishSeconds: b.histogram("sink", "publish_seconds",
			"From the hand-over of a message to its acknowledgement. High: the broker or its replicas are slow."),
		PublishErrors: b.counters("sink", "publish_errors_total", "reason",
			"Messages that the sink reported as failed, by reason. Each ends the session; the rows are published again."),
		Requests: b.counter("sink", "requests_total",
			"Requests to produce that were written to the brokers. Requests, not messages, are what a broker pays for: about as many as messages, and batches do not form."),
		RequestBytes: b.counter("sink", "request_bytes_total",
			"Bytes of the requests to produce, compressed, without TLS. Above sink_published_bytes_total: batches are sent again, or hold few messages."),
		published: b.counters("sink", "published_total", "topic",
			"Messages acknowledged by the broker. Topics beyond the first 200 count as \"other\"."),
		publishedBytes: b.counters("sink", "published_bytes_total", "topic",
			"Bytes of key, value and headers of the messages acknowledged by the broker."),

		lastPublished: b.gauges("sink", "last_published_timestamp_seconds", []string{"topic"},
			"When the broker last acknowledged a message of the topic. Long ago: no rows for it, or they cannot be published."),

		SlotActive: b.optional("slot", "active",
			"1 while a process, not necessarily this one, streams from the slot. 0: the slot keeps WAL and nobody reads it."),
		SlotConfirmedFlushLSN: b.optional("slot", "confirmed_flush_lsn",
			"Flush position as the server has it, as a byte position. The next session starts here."),
		SlotRestartLSN: b.optional("slot", "restart_lsn",
			"Oldest WAL that the slot keeps, as a byte position. Far below slot_confirmed_flush_lsn: an open transaction holds it."),
		SlotServerWALLSN: b.optional("slot", "server_wal_lsn",
			"Where the server writes WAL, as a byte position, when the slot was last observed."),
		SlotLagBytes: b.optional("slot", "lag_bytes",
			"WAL from the slot's confirmed position to the server's. High: the relay is behind or stopped."),
		SlotRetainedBytes: b.optional("slot", "retained_bytes",
			"WAL kept on the database's disk for this slot. High: the disk fills, or the slot nears its limit."),
		SlotSafeWALBytes: b.optional("slot", "safe_wal_bytes",
			"WAL that may still be written before the slot can be lost. Absent: max_slot_wal_keep_size sets no limit. Zero or below: lost at the next checkpoint."),
		SlotWALStatus: b.enum("slot", "wal_status", "status", walStatuses,
			"1 for the wal_status of the slot, 0 for the others. unreserved: about to be lost. lost: rows are missing, see docs/RUNBOOKS.md."),
		SlotPublicationOK: b.optional("slot", "publication_ok",
			"1 while the publication exists, holds every configured table and publishes inserts. 0: rows are not sent to us."),
		SlotObserved: b.optional("slot", "observed_timestamp_seconds",
			"When the slot was last observed. Long ago: the other postrider_slot series are old."),
		SlotObserveErrors: b.counter("slot", "observe_errors_total",
			"Observations of the slot that failed. Rising: the monitor cannot query the database."),
		SlotWALLimitBytes: b.optional("slot", "wal_limit_bytes",
			"The larger of max_slot_wal_keep_size and wal_keep_size. Absent: the server sets no limit, so a stopped relay fills the disk."),
		SlotWALRate: b.optionals("slot", "wal_rate_bytes_per_second", []string{"window"},
			"WAL that the whole server writes, over the window. Absent: not observed for long enough."),
		SlotDrainRate: b.optionals("slot", "drain_rate_bytes_per_second", []string{"window"},
			"WAL that is confirmed for the slot, over the window. Below slot_wal_rate_bytes_per_second: lag grows."),
		SlotTimeToLoss: b.optional("slot", "time_to_loss_seconds",
			"When the slot will be lost at the present rates; /status says on which assumption. Absent: not in sight."),
		SlotTimeToDiskFull: b.optional("slot", "time_to_disk_full_seconds",
			"When the volume with pg_wal will be full at the present rates. Absent: monitor.volume_size is not set, or not in sight."),
		SlotCatchUp: b.optional("slot", "catch_up_seconds",
			"When the lag will be worked off at the present rates. Absent: it is not shrinking, or there is none."),
		SlotInactiveSince: b.optional("slot", "inactive_since_timestamp_seconds",
			"Since when nobody streams from the slot: the server's own time from 17 on, else when the monitor first saw it. Absent: it is active."),
		SlotInvalidated: b.optionals("slot", "invalidated", []string{"reason"},
			"1 with the server's reason once the slot is invalidated, which is for ever. Absent: it is valid."),
		SlotConflicting: b.optional("slot", "conflicting",
			"1 if recovery on a standby invalidated the slot (from 16)."),
		SlotFailover: b.optional("slot", "failover",
			"1 if standbys may keep a copy of the slot (from 17). 0: a failover loses it."),
		SlotSynced: b.optional("slot", "synced",
			"1 on a standby that holds a copy of the slot (from 17)."),
		SlotStandbyBlocked: b.optional("slot", "standby_gate_blocked",
			"1 while a slot of synchronized_standby_slots is missing, inactive or lost: the relay is sent nothing until it is back. Absent: there is no such gate."),
		SlotCatalogXminAge: b.optional("slot", "catalog_xmin_age",
			"Transactions since the oldest catalogue row that the slot keeps. High: catalogues bloat, and in the extreme the server stops taking writes."),
		SlotOldestBlocker: b.optionals("slot", "held_since_timestamp_seconds", []string{"holder"},
			"Begin of the oldest transaction that keeps restart_lsn or catalog_xmin back, by its kind. Absent: none. /status names it."),
		SlotSpillBytes: b.counted("slot", "spill_bytes_total",
			"Bytes that decoding for the slot wrote to the server's disk, since logical_decoding_work_mem was not enough. The server's own counter."),
		SlotSpillTransactions: b.counted("slot", "spill_transactions_total",
			"Transactions that decoding for the slot wrote to the server's disk. The server's own counter."),
		SlotStreamBytes: b.counted("slot", "stream_bytes_total",
			"Bytes of transactions sent before their commit. The server's own counter; the relay does not ask for it."),
		SlotDecodedBytes: b.counted("slot", "decoded_bytes_total",
			"Bytes of transactions decoded for the slot. The server's own counter."),
		SlotClockSkew: b.optional("slot", "clock_skew_seconds",
			"The server's clock minus ours, measured. commit_to_ack_seconds is corrected by it."),
		SlotOtherActive: b.optionals("slot", "other_active", []string{"other_slot"},
			"1 while somebody streams from another slot of the server. 0: it keeps WAL and nobody reads it."),
		SlotOtherRetained: b.optionals("slot", "other_retained_bytes", []string{"other_slot"},
			"WAL kept on the database's disk for another slot of the server."),
		SlotOtherSafeWAL: b.optionals("slot", "other_safe_wal_bytes", []string{"other_slot"},
			"WAL that may still be written before another slot can be lost. Absent: no limit."),

		HealthState: b.enum("health", "state", "state", healthStates,
			"1 for the verdict of /status, 0 for the others. failing: rows are not relayed, or will be lost."),
		HealthCondition: b.optionals("health", "condition", []string{"condition", "severity"},
			"1 for each condition that holds; its name is that of an alert, and a heading in docs/RUNBOOKS.md."),

		AlertsSent: b.counters("alerts", "notifications_total", "receiver",
			"Notifications that the receiver took."),
		AlertsFailed: b.counters("alerts", "notification_failures_total", "receiver",
			"Attempts to notify that failed. Rising: nobody hears of what goes wrong."),
		AlertsDropped: b.counter("alerts", "notifications_dropped_total",
			"Notifications that a receiver never took: refused, over before a try succeeded, or left when the process ended. Rising: the log says why."),

		SnapshotRows: b.counter("snapshot", "rows_total",
			"Rows already in the tables that this process has read and published. Not moving while snapshot_running is 1: the broker or the database is slow."),
		SnapshotEstimated: b.optional("snapshot", "estimated_rows",
			"Rows that the snapshot has, by the planner's estimate of each table. Absent: no snapshot in this process."),
		SnapshotRunning: b.gauge("snapshot", "running",
			"1 while rows already in the tables are published. New rows wait in the WAL until that is done."),
		SnapshotCompleted: b.optional("snapshot", "completed",
			"1 once the snapshot of the slot is complete, 0 before. Absent: none was asked for."),

		DeadLetters: b.counters("deadletter", "letters_total", "cause",
			"Rows sent to the dead-letter topic instead of their own; cause parked: because an earlier one of their key is there. Rising: consumers do not get them until somebody redrives them."),
		DeadLetterSkipped: b.counters("deadletter", "skipped_total", "cause",
			"Rows left out by a policy skip. Rising: consumers never get them."),
		ParkedKeys: b.optional("deadletter", "parked_keys",
			"Keys whose rows go to the dead-letter topic until it is redriven. Absent: no policy makes dead letters."),
	}
	s.topics.set = s
	s.topics.known.Store(&map[string]*TopicMetrics{})
	return s
}

// RegisterBuild registers postrider_build_info, which carries no slot label: it is the process's, not a relay's.
func RegisterBuild(reg prometheus.Registerer, version string) {
	builder{reg}.gauges("", "build_info", []string{"version", "go_version"},
		"1, with the versions of postrider and of Go as labels.").WithLabelValues(version, runtime.Version()).Set(1)
}
