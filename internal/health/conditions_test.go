package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

const (
	kib4  = `4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`
	quiet = "the relay keeps up, and no open transaction is seen that would hold restart_lsn back"
)

// input is a relay that is well, before a change.
func input(changes ...func(*Input)) Input {
	in := Input{
		Now: now, Relay: streaming(nil), Observation: monitor.Observation{Slot: observed(nil)},
		Sink: "kafka at kafka-1:9092", Config: DefaultConfig(),
	}
	for _, change := range changes {
		change(&in)
	}
	return in
}

func inSlot(change func(*slot.Status)) func(*Input) {
	return func(in *Input) { change(&in.Observation.Slot) }
}

func inRelay(change func(*relay.State)) func(*Input) {
	return func(in *Input) { change(&in.Relay) }
}

func inactive(since time.Duration) func(*Input) {
	return inSlot(func(s *slot.Status) {
		s.Active, s.ActivePID, s.InactiveSince = false, 0, ago(since)
	})
}

// retained leaves so much behind the server, and so much behind that.
func retained(lag, all int64) func(*Input) {
	return inSlot(func(s *slot.Status) { s.LagBytes, s.RetainedBytes = &lag, &all })
}

func paused(since time.Duration, reason string) func(*Input) {
	return inRelay(func(r *relay.State) {
		r.Phase, r.Since, r.Paused = relay.Paused, ago(since),
			relay.Pause{Since: ago(since), Reason: reason}
	})
}

func backingOff(reason, text string) func(*Input) {
	return inRelay(func(r *relay.State) {
		r.Phase, r.Since, r.Reason, r.Error, r.NextAttempt = relay.BackingOff, ago(3*time.Minute),
			reason, text, now.Add(4*time.Second)
	})
}

func silentFor(d time.Duration) func(*Input) {
	return inRelay(func(r *relay.State) {
		r.InFlight, r.WaitingSince, r.OldestUnacked = 17, ago(d), ago(d)
	})
}

// partitionStalled has some partitions wait, while others are acknowledged.
func partitionStalled(d time.Duration, partitions int, leaderless bool) func(*Input) {
	return inRelay(func(r *relay.State) {
		r.InFlight, r.WaitingSince, r.OldestUnacked = 1234, now, ago(d)
		r.Stalled = sink.Stalled{Partitions: partitions, Messages: 1200, Topic: "outbox.event.order", Partition: 3,
			Leaderless: leaderless, Since: ago(d), Next: "kafka-topics.sh"}
	})
}

// throttled has a quota be why partitions wait.
func throttled(r *relay.State) { r.Stalled.Throttled, r.Stalled.Next = true, "kafka-configs.sh" }

func held(h monitor.Blocker) func(*Input) {
	return func(in *Input) { in.Observation.Blockers = append(in.Observation.Blockers, h) }
}

func transaction(age time.Duration) monitor.Blocker {
	return monitor.Blocker{
		Kind: monitor.BlockerTransaction, PID: 815, Application: "psql", User: "bob", Database: "shop",
		State: "idle in transaction",
		XID:   770, Since: ago(age), Restart: true,
	}
}

// loading is a transaction that runs a statement.
func loading(age time.Duration) monitor.Blocker {
	h := transaction(age)
	h.State = "active"
	return h
}

// unseen is a transaction of which a login without pg_read_all_stats sees no state.
func unseen(age time.Duration) monitor.Blocker {
	h := transaction(age)
	h.State = ""
	return h
}

func prepared(age time.Duration) monitor.Blocker {
	return monitor.Blocker{
		Kind: monitor.BlockerPrepared, GID: "pay_42", User: "bob", Database: "shop", XID: 769,
		Since: ago(age), Restart: true,
	}
}

// aged is a blocker whose transaction began so many transactions ago.
func aged(transactions int64, h monitor.Blocker) monitor.Blocker {
	h.Age = transactions
	return h
}

func xminAge(transactions int64) func(*Input) {
	return func(in *Input) { in.Observation.CatalogXminAge = &transactions }
}

func gated(slots ...monitor.StandbySlot) func(*Input) {
	return func(in *Input) { in.Observation.Standbys = slots }
}

var deadStandby = monitor.StandbySlot{
	Name: "standby1", Exists: true, InactiveSince: ago(5 * time.Minute), WALStatus: "reserved",
	Blocks: true,
}

var behindStandby = monitor.StandbySlot{
	Name: "standby1", Exists: true, Active: true, WALStatus: "extended", Blocks: true, Behind: 125,
	BehindBytes: new(int64(3 << 30)),
}

func other(name string, retained int64, change func(*slot.Status)) func(*Input) {
	s := slot.Status{Slot: slot.Slot{
		Name: name, Database: "crm", WALStatus: "extended", InactiveSince: ago(72 * time.Hour),
	}, RetainedBytes: &retained}
	if change != nil {
		change(&s)
	}
	return func(in *Input) { in.Observation.Others = append(in.Observation.Others, s) }
}

func lossIn(seconds, earliest, latest float64) func(*Input) {
	return func(in *Input) {
		in.Observation.Forecast.Loss = monitor.Estimate{
			Seconds: &seconds, Earliest: &earliest, Latest: &latest,
			Assumption: "writes go on at 2.0 MiB/s",
		}
	}
}

// lossByIdleness is a loss that no limit of WAL causes.
func lossByIdleness(seconds float64) func(*Input) {
	return func(in *Input) {
		in.Observation.Forecast.Loss = monitor.Estimate{Seconds: &seconds, Assumption: "no session reads from the slot",
			By: monitor.ByIdleness}
	}
}

func snapshotting(in *Input) {
	in.Relay.Phase, in.Relay.Snapshot = relay.Snapshotting, relay.Snapshot{
		Table: "public.outbox", Rows: 20, EstimatedRows: 100, RowsPerSecond: 5,
	}
}

func diskFullIn(seconds float64) func(*Input) {
	return func(in *Input) {
		in.Observation.Forecast.DiskFull = monitor.Estimate{
			Seconds: &seconds, Assumption: "nothing else grows",
		}
	}
}

// safeOf says how much of a limit of 10 GiB is left.
func safeOf(n int64) func(*Input) {
	return func(in *Input) {
		in.Observation.Limit.Effective, in.Observation.Slot.SafeWALSize = new(int64(10<<30)), &n
	}
}

// askForRoom is the advice where the volume is not known, and so much has to be free.
func askForRoom(free string) string {
	return "SHOW data_directory; -- then df -h THAT/pg_wal/.; only if it has " + free + " free: ALTER SYSTEM " +
		"SET max_slot_wal_keep_size = '20480MB'; SELECT pg_reload_conf(); -- set it back later"
}

// onVolume is one of volume bytes, of which pg_wal has used.
func onVolume(volume, used, maxWAL int64) func(*Input) {
	return func(in *Input) {
		l := &in.Observation.Limit
		l.VolumeSize, l.WALDirectory, l.MaxWALSize = volume, &used, maxWAL
	}
}

func grows(in *Input) { in.Observation.Forecast.Grows = true }

var conditions = []struct {
	name   string
	change []func(*Input)
	want   Condition
}{
	{"lost while the relay was paused", []func(*Input){paused(time.Hour, "move of the brokers"),
		inSlot(func(s *slot.Status) {
			s.Active, s.WALStatus, s.InvalidationReason, s.RetainedBytes, s.SafeWALSize = false, "lost",
				"wal_removed", nil, nil
		})}, Condition{
		Name: SlotLost, Severity: Critical, Cause: "paused relay",
		Reason: `slot "postrider" is lost: wal_removed; the relay has been paused for 1h0m, until it is resumed: move of the brokers`,
		WAL:    "none is kept for it any more; what was committed after 0/1F00 has not been published",
		Next:   `postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`,
	}},
	{"lost to the idle timeout",
		[]func(*Input){inSlot(func(s *slot.Status) { s.InvalidationReason = "idle_timeout" })},
		Condition{
			Name: SlotLost, Severity: Critical, Cause: "idle_replication_slot_timeout",
			Reason: `slot "postrider" is lost: idle_timeout`,
			WAL:    "none is kept for it any more; what was committed after 0/1F00 has not been published",
			Next:   `postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`,
		}},
	{"half of the limit used", []func(*Input){safeOf(4 << 30), retained(6<<30, 6<<30), grows},
		Condition{
			Name: SlotNearLoss, Severity: Warning, For: 5 * time.Minute, Cause: "backlog", Next: askForRoom("14.0 GiB"),
			Reason: "40 % of max_slot_wal_keep_size is left: 4.0 GiB until the slot can be lost: the " +
				"relay is catching up with a backlog of 6.0 GiB",
			WAL: `6.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again; 4.0 GiB until the slot can be lost`,
		}},
	{"most of the limit used", []func(*Input){safeOf(1 << 30), retained(9<<30, 9<<30),
		func(in *Input) {
			in.Observation.Rates = monitor.Rates{WAL5m: new(float64(30 << 20)), Drain5m: new(float64(10 << 20))}
		}}, Condition{
		Name: SlotNearLoss, Severity: Critical, Cause: "rate of writes", Next: askForRoom("11.0 GiB"),
		Reason: "10 % of max_slot_wal_keep_size is left: 1.0 GiB until the slot can be lost: the " +
			"server writes 30.0 MiB/s of WAL, and 10.0 MiB/s are confirmed",
		WAL: `9.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again; 1.0 GiB until the slot can be lost`,
	}},
	{"most of the limit used, on a volume with room",
		[]func(*Input){safeOf(1 << 30), retained(9<<30, 9<<30), onVolume(40<<30, 10<<30, 1<<30)}, Condition{
			Name: SlotNearLoss, Severity: Critical, Cause: "backlog",
			Next: "SHOW data_directory; -- then df -h THAT/pg_wal/.; only if it has 16.0 GiB free: ALTER SYSTEM " +
				"SET max_slot_wal_keep_size = '25600MB'; SELECT pg_reload_conf(); -- set it back later",
			Reason: "10 % of max_slot_wal_keep_size is left: 1.0 GiB until the slot can be lost: the " +
				"relay is catching up with a backlog of 9.0 GiB",
			WAL: `9.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again; 1.0 GiB until the slot can be lost`,
		}},
	{"most of the limit used, on a volume that max_wal_size fills",
		[]func(*Input){safeOf(1 << 30), retained(9<<30, 9<<30), onVolume(20<<30, 10<<30, 8<<30)}, Condition{
			Name: SlotNearLoss, Severity: Critical, Cause: "backlog",
			Next: "SHOW data_directory; -- then df -h THAT/pg_wal/.; only if it has 10.0 GiB free: ALTER SYSTEM " +
				"SET max_slot_wal_keep_size = '12288MB'; SELECT pg_reload_conf(); -- set it back later",
			Reason: "10 % of max_slot_wal_keep_size is left: 1.0 GiB until the slot can be lost: the " +
				"relay is catching up with a backlog of 9.0 GiB",
			WAL: `9.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again; 1.0 GiB until the slot can be lost`,
		}},
	{"most of the limit used, on a volume without room for max_wal_size",
		[]func(*Input){safeOf(1 << 30), retained(9<<30, 9<<30), onVolume(20<<30, 10<<30, 10<<30)}, Condition{
			Name: SlotNearLoss, Severity: Critical, Cause: "backlog",
			Next: "postrider slot list   # which slot keeps how much: the volume has no room for a " +
				"higher limit",
			Reason: "10 % of max_slot_wal_keep_size is left: 1.0 GiB until the slot can be lost: the " +
				"relay is catching up with a backlog of 9.0 GiB",
			WAL: `9.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again; 1.0 GiB until the slot can be lost`,
		}},
	{"most of the limit used, on a volume without room",
		[]func(*Input){safeOf(1 << 30), retained(9<<30, 9<<30), onVolume(11<<30, 10<<30, 0)}, Condition{
			Name: SlotNearLoss, Severity: Critical, Cause: "backlog",
			Next: "postrider slot list   # which slot keeps how much: the volume has no room for a " +
				"higher limit",
			Reason: "10 % of max_slot_wal_keep_size is left: 1.0 GiB until the slot can be lost: the " +
				"relay is catching up with a backlog of 9.0 GiB",
			WAL: `9.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again; 1.0 GiB until the slot can be lost`,
		}},
	{"lost in hours", []func(*Input){lossIn(3*3600+2, 2*3600+2, 4*3600+2), paused(time.Hour, "")},
		Condition{
			Name: TimeToLoss, Severity: Warning, For: 10 * time.Minute, Cause: "paused relay",
			Next:   "postrider resume",
			Reason: `slot "postrider" can be lost in about 3h0m (2h0m to 4h0m): the relay has been paused for 1h0m, until it is resumed; assumed: writes go on at 2.0 MiB/s`,
			WAL:    "what has not been delivered by then is lost with it; " + kib4,
		}},
	{"lost in minutes", []func(*Input){lossIn(602, 302, 902)}, Condition{
		Name: TimeToLoss, Severity: Critical, For: time.Minute, Cause: "not known",
		Next: findTransactions,
		Reason: `slot "postrider" can be lost in about 10m0s (5m0s to 15m0s): ` + quiet +
			"; assumed: writes go on at 2.0 MiB/s",
		WAL: "what has not been delivered by then is lost with it; " + kib4,
	}},
	{"lost to the idle timeout in minutes, by a long snapshot", []func(*Input){lossByIdleness(25*60 + 2), inactive(95 * time.Minute),
		safeOf(10 << 30), snapshotting}, Condition{
		Name: TimeToLoss, Severity: Critical, For: time.Minute, Cause: "snapshot", Next: keepIdle,
		Reason: `slot "postrider" can be lost in about 25m0s: the relay is publishing rows that were in the tables already: ` +
			"public.outbox, 20 of about 100 rows (20 %), 5 rows/s; assumed: no session reads from the slot",
		WAL: "what has not been delivered by then is lost with it; " + kib4 + "; 10.0 GiB until the slot can be lost",
	}},
	{"lost to the idle timeout in minutes, beside a transaction", []func(*Input){lossByIdleness(25*60 + 2), inactive(95 * time.Minute),
		held(transaction(20 * time.Minute)), retained(1<<20, 5<<30), snapshotting}, Condition{
		Name: TimeToLoss, Severity: Critical, For: time.Minute, Cause: "snapshot", Next: keepIdle,
		Reason: `slot "postrider" can be lost in about 25m0s: the relay is publishing rows that were in the tables already: ` +
			"public.outbox, 20 of about 100 rows (20 %), 5 rows/s; assumed: no session reads from the slot",
		WAL: `what has not been delivered by then is lost with it; 5.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
	}},
	{"lost to the idle timeout in minutes, while it is paused", []func(*Input){lossByIdleness(25*60 + 2), inactive(95 * time.Minute),
		paused(95*time.Minute, "")}, Condition{
		Name: TimeToLoss, Severity: Critical, For: time.Minute, Cause: "paused relay", Next: "postrider resume",
		Reason: `slot "postrider" can be lost in about 25m0s: the relay has been paused for 1h35m, until it is resumed; assumed: no session reads from the slot`,
		WAL:    "what has not been delivered by then is lost with it; " + kib4,
	}},
	{"disk full", []func(*Input){diskFullIn(1802), backingOff("broker_unreachable",
		"no broker answers")}, Condition{
		Name: TimeToDiskFull, Severity: Critical, For: time.Minute, Cause: "kafka at kafka-1:9092",
		Reason: "the volume with pg_wal is full in about 30m0s: kafka at kafka-1:9092: no broker " +
			"answers; assumed: nothing else grows",
		WAL: "PostgreSQL stops when pg_wal is full; " + kib4,
		Next: "postrider slot list   # which slot keeps how much; one that is not needed can be " +
			"dropped, else the volume has to grow",
	}},
	{"disk full, since the archiver archives nothing", []func(*Input){diskFullIn(1802), func(in *Input) {
		in.Observation.Forecast.DiskFullByArchiver = true
	}}, Condition{
		Name: TimeToDiskFull, Severity: Critical, For: time.Minute, Cause: "archiver",
		Reason: "the volume with pg_wal is full in about 30m0s: WAL is not archived, and no limit bounds " +
			"what waits for that; assumed: nothing else grows",
		WAL: "PostgreSQL stops when pg_wal is full; " + kib4,
		Next: "SELECT last_archived_wal, last_failed_wal, last_failed_time FROM pg_stat_archiver; -- repair " +
			"archive_command or archive_library; never delete files in pg_wal",
	}},
	{"halted", []func(*Input){inRelay(func(r *relay.State) {
		r.Phase, r.Since, r.Reason, r.Error = relay.Halted, ago(time.Minute), "null_key", "row 3: no key"
	})}, Condition{
		Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(time.Minute),
		Cause: "halted relay", Reason: "row 3: no key", WAL: kib4, Next: "postrider check",
	}},
	{"backing off, since the broker is dead", []func(*Input){backingOff("broker_unreachable",
		"no acknowledgement for 5m0s")}, Condition{
		Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(3 * time.Minute),
		Cause: "kafka at kafka-1:9092", WAL: kib4, Next: "postrider check",
		Reason: "kafka at kafka-1:9092: no acknowledgement for 5m0s; next attempt within 4s",
	}},
	{"backing off, and the error names the broker", []func(*Input){backingOff("broker_tls",
		"open Kafka producer at kafka-1:9092: certificate expired")}, Condition{
		Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(3 * time.Minute),
		Cause: "kafka at kafka-1:9092", WAL: kib4, Next: "postrider check",
		Reason: "open Kafka producer at kafka-1:9092: certificate expired; next attempt within 4s",
	}},
	{"backing off, and the error knows what to do", []func(*Input){backingOff("unknown_topic",
		"no topic orders"), inRelay(func(r *relay.State) {
		r.Next = "create the topic,\nor correct the route"
	})}, Condition{
		Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(3 * time.Minute),
		Cause: "missing topic", WAL: kib4,
		Reason: "no topic orders; next attempt within 4s",
		Next:   "create the topic,\nor correct the route",
	}},
	{"backing off, since the database is gone", []func(*Input){backingOff("postgres_unreachable",
		"connection refused")}, Condition{
		Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(3 * time.Minute),
		Cause: "PostgreSQL", WAL: kib4, Next: "postrider check",
		Reason: "connection refused; next attempt within 4s",
	}},
	{"no relay", []func(*Input){func(in *Input) { in.Relay = relay.State{} }, inactive(time.Minute)},
		Condition{
			Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(time.Minute), Cause: "no relay",
			Reason: "no relay is running", WAL: kib4, Next: "postrider run",
		}},
	{"a relay that does not answer", []func(*Input){func(in *Input) { in.Relay = relay.State{} }},
		Condition{
			Name: NotReady, Severity: Warning, For: time.Minute, Cause: "process 4711", WAL: keptElsewhere,
			Reason: `slot "postrider" is held by process 4711 of the database, and no relay answers at http.listen`,
			Next:   "postrider status --http-listen HOST:PORT   # where the relay runs",
		}},
	{"no relay, and none could stream", []func(*Input){func(in *Input) {
		in.Relay = relay.State{}
		in.StartError = StartError{Reason: `publication "postrider" does not exist`,
			WAL: "nothing is kept", Next: "postrider init"}
	}, inactive(time.Minute)}, Condition{
		Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(time.Minute), Cause: "no relay",
		WAL: "nothing is kept", Next: "postrider init",
		Reason: `no relay is running, and none could stream: publication "postrider" does not exist`,
	}},
	{"no relay, and the slot is lost", []func(*Input){func(in *Input) { in.Relay = relay.State{} },
		inactive(time.Minute), inSlot(func(s *slot.Status) { s.WALStatus = "lost" })}, Condition{
		Name: NotReady, Severity: Critical, For: time.Minute, Since: ago(time.Minute), Cause: "no relay",
		WAL:    `none is kept for slot "postrider" any more`,
		Reason: "no relay is running",
		Next:   `postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`,
	}},
	{"the sink is silent", []func(*Input){silentFor(10 * time.Second)}, Condition{
		Name: Stuck, Severity: Warning, For: time.Minute, Since: ago(10 * time.Second),
		Cause: "kafka at kafka-1:9092", WAL: kib4, Next: "postrider check",
		Reason: "kafka at kafka-1:9092 has acknowledged nothing for 10s, with 17 messages in flight",
	}},
	{"the sink is silent for long", []func(*Input){silentFor(2 * time.Minute)}, Condition{
		Name: Stuck, Severity: Critical, For: time.Minute, Since: ago(2 * time.Minute),
		Cause: "kafka at kafka-1:9092", WAL: kib4, Next: "postrider check",
		Reason: "kafka at kafka-1:9092 has acknowledged nothing for 2m0s, with 17 messages in flight",
	}},
	{"a sink whose name is not known is silent", []func(*Input){silentFor(10 * time.Second),
		func(in *Input) { in.Sink = "" }}, Condition{
		Name: Stuck, Severity: Warning, For: time.Minute, Since: ago(10 * time.Second),
		Cause: "the broker", WAL: kib4, Next: "postrider check",
		Reason: "the broker has acknowledged nothing for 10s, with 17 messages in flight",
	}},
	{"the loop hangs", []func(*Input){inRelay(func(r *relay.State) { r.LastProgress = ago(2 * time.Minute) })}, Condition{
		Name: Stuck, Severity: Critical, Since: ago(2 * time.Minute), Cause: "session loop", WAL: kib4,
		Reason: "the session loop has not run for 2m0s",
		Next: "systemctl restart postrider   # or however it was started; report it with the log of " +
			"the last minutes",
	}},
	{"a logical slot is listed as a standby", []func(*Input){gated(monitor.StandbySlot{
		Name: "copy", Exists: true, Active: true, WALStatus: "reserved", Logical: true, Blocks: true,
	})}, Condition{
		Name: StandbyGate, Severity: Critical, For: 5 * time.Minute, Cause: "standby slot copy", WAL: kib4,
		Reason: `slot "copy" of synchronized_standby_slots is a logical slot and never confirms, so PostgreSQL sends the relay nothing`,
		Next: "ALTER SYSTEM SET synchronized_standby_slots = ''; SELECT pg_reload_conf(); -- only slots of " +
			"physical standbys belong in the list",
	}},
	{"a standby is gone", []func(*Input){gated(monitor.StandbySlot{
		Name: "standby0", Exists: true, Active: true,
	}, deadStandby, monitor.StandbySlot{Name: "standby2", Blocks: true})}, Condition{
		Name: StandbyGate, Severity: Critical, For: 5 * time.Minute, Since: ago(5 * time.Minute),
		Cause: "standby slot standby1, standby2", WAL: kib4,
		Reason: `slot "standby1" of synchronized_standby_slots has been inactive for 5m0s, slot "standby2" of synchronized_standby_slots does not exist, so PostgreSQL sends the relay nothing`,
		Next: "ALTER SYSTEM SET synchronized_standby_slots = 'standby0'; SELECT pg_reload_conf(); -- " +
			"or bring the standby back; without it in the list consumers can be sent what a failover to " +
			"that standby loses",
	}},
	{"standbys are connected, and behind", []func(*Input){gated(behindStandby, monitor.StandbySlot{
		Name: "standby2", Exists: true, Active: true, Blocks: true, Behind: 31,
	})}, Condition{
		Name: StandbyGate, Severity: Critical, For: 5 * time.Minute, Cause: "standby slot standby1, standby2", WAL: kib4,
		Reason: `slot "standby1" of synchronized_standby_slots has not confirmed WAL that was written 2m5s ago (3.0 GiB behind), ` +
			`slot "standby2" of synchronized_standby_slots has not confirmed WAL that was written 31s ago, so PostgreSQL sends the relay nothing`,
		Next: "SELECT application_name, client_addr, state, sent_lsn, flush_lsn FROM pg_stat_replication; -- look at the " +
			"standby of this slot, its disk, and the network",
	}},
	{"one standby is behind, and another is gone", []func(*Input){gated(behindStandby, deadStandby)}, Condition{
		Name: StandbyGate, Severity: Critical, For: 5 * time.Minute, Since: ago(5 * time.Minute),
		Cause: "standby slot standby1, standby1", WAL: kib4,
		Reason: `slot "standby1" of synchronized_standby_slots has not confirmed WAL that was written 2m5s ago (3.0 GiB behind), ` +
			`slot "standby1" of synchronized_standby_slots has been inactive for 5m0s, so PostgreSQL sends the relay nothing`,
		Next: "SELECT slot_name, active, wal_status FROM pg_replication_slots WHERE slot_type = 'physical'; -- bring the standby " +
			"of this slot back",
	}},
	{"publication broken", []func(*Input){inSlot(func(s *slot.Status) {
		s.PublicationOK, s.PublicationProblem, s.PublicationFix = new(false),
			`publication "postrider" does not publish inserts`, "ALTER PUBLICATION ..."
	})}, Condition{
		Name: PublicationBroken, Severity: Critical, Cause: "publication", Next: "ALTER PUBLICATION ...",
		Reason: `publication "postrider" does not publish inserts`,
		WAL:    "rows inserted meanwhile are not in the stream, and do not come once it is repaired",
	}},
	{"a failover that lost something", []func(*Input){phantoms(relay.Phantoms{
		At: ago(time.Hour), ForkLSN: 0x1000, ReceivedLSN: 0x2000, Messages: 3, Timeline: 4,
		TimelineBefore: 3,
	})}, Condition{
		Name: PhantomEvents, Severity: Warning, Cause: "failover of the database", Since: ago(time.Hour),
		Reason: "the server that was promoted to timeline 4 has no WAL of timeline 3 behind 0/1000, " +
			"and it was read up to 0/2000: 3 messages that were published are of transactions that do " +
			"not exist any more",
		WAL: "nothing is skipped: the relay goes on from the position of the new primary's slot",
		Next: "postrider audit   # compares the topics with the table: what is published and has no " +
			"row there; tell its consumers",
	}},
	{"a failover that lost more than is known", []func(*Input){phantoms(relay.Phantoms{
		At: ago(time.Hour), ReceivedLSN: 0x2000, Messages: 16384, More: true, Timeline: 4,
		TimelineBefore: 3,
	})}, Condition{
		Name: PhantomEvents, Severity: Warning, Cause: "failover of the database", Since: ago(time.Hour),
		Reason: "the server that was promoted to timeline 4 has no WAL of timeline 3 behind an " +
			"unknown position, and it was read up to 0/2000: at least 16384 messages that were published " +
			"are of transactions that do not exist any more",
		WAL: "nothing is skipped: the relay goes on from the position of the new primary's slot",
		Next: "postrider audit   # compares the topics with the table: what is published and has no " +
			"row there; tell its consumers",
	}},
	{"paused", []func(*Input){paused(12*time.Minute, "deploy\x1b[31m of the brokers")}, Condition{
		Name: Paused, Severity: Warning, For: time.Minute, Since: ago(12 * time.Minute),
		Cause: "paused relay", WAL: kib4, Next: "postrider resume",
		Reason: "the relay has been paused for 12m0s, until it is resumed: deploy?[31m of the " +
			"brokers",
	}},
	{"a standby is paused", []func(*Input){paused(16*time.Minute, ""),
		inRelay(func(r *relay.State) { r.Paused.StoodBy = true })}, Condition{
		Name: Paused, Severity: Warning, For: time.Minute, Since: ago(16 * time.Minute),
		Cause: "paused relay", WAL: keptElsewhere, Next: "postrider resume",
		Reason: "the relay has been paused for 16m0s, until it is resumed",
	}},
	{"paused for too long", []func(*Input){paused(16*time.Minute, ""),
		inRelay(func(r *relay.State) { r.Paused.Until = now.Add(time.Minute) })}, Condition{
		Name: Paused, Severity: Critical, For: time.Minute, Since: ago(16 * time.Minute),
		Cause: "paused relay", WAL: kib4, Next: "postrider resume",
		Reason: "the relay has been paused for 16m0s, until 2026-05-06T07:09:09Z",
	}},
	{"nobody reads the slot", []func(*Input){func(in *Input) { in.Relay = relay.State{} },
		inactive(6 * time.Minute)}, Condition{
		Name: SlotInactive, Severity: Warning, Since: ago(6 * time.Minute), Cause: "no relay", WAL: kib4,
		Next:   "postrider run",
		Reason: `no process has read slot "postrider" for 6m0s: no relay is running`,
	}},
	{"nobody reads the slot for long", []func(*Input){backingOff("broker_unreachable",
		"no broker answers"), inactive(16 * time.Minute)}, Condition{
		Name: SlotInactive, Severity: Critical, Since: ago(16 * time.Minute),
		Cause: "kafka at kafka-1:9092", WAL: kib4, Next: "postrider check",
		Reason: `no process has read slot "postrider" for 16m0s: kafka at kafka-1:9092: no broker answers`,
	}},
	{"an old transaction", []func(*Input){held(transaction(20 * time.Minute))}, Condition{
		Name: HeldByTransaction, Severity: Warning, Since: ago(20 * time.Minute),
		Cause: "transaction of pid 815 (psql)",
		Reason: "the transaction of pid 815 (psql, user bob, database shop, idle in transaction) has " +
			"been open for 20m0s: restart_lsn cannot pass it",
		WAL:  `4.2 KiB is kept for slot "postrider", more with every write, until it ends`,
		Next: "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted; -- or wait for its end",
	}},
	{"a prepared transaction keeps much", []func(*Input){held(prepared(2 * time.Minute)),
		retained(3<<20, 6<<30), grows}, Condition{
		Name: HeldByTransaction, Severity: Warning, Since: ago(2 * time.Minute), For: 15 * time.Minute,
		Cause:  "prepared transaction pay_42",
		Reason: `prepared transaction "pay_42" (user bob, database shop) has waited for COMMIT PREPARED for 2m0s: restart_lsn cannot pass it, and 6.0 GiB is kept though all but 3.0 MiB is confirmed`,
		WAL:    `6.0 GiB is kept for slot "postrider", more with every write, until it ends`,
		Next:   "-- in database shop; its transaction manager knows which: COMMIT PREPARED 'pay_42', or ROLLBACK PREPARED",
	}},
	{"somebody who is not seen keeps much", []func(*Input){retained(3<<20, 6<<30), grows}, Condition{
		Name: HeldByTransaction, Severity: Warning, For: 15 * time.Minute, Cause: "not known",
		Next: findTransactions,
		Reason: "6.0 GiB is kept though all but 3.0 MiB is confirmed: a transaction holds restart_lsn " +
			"back that cannot be seen, or has just ended",
		WAL: `6.0 GiB is kept for slot "postrider", more with every write, until it ends`,
	}},
	{"somebody who is not seen keeps much, beside a load that is younger", []func(*Input){
		held(loading(20 * time.Second)), retained(3<<20, 6<<30), grows,
		func(in *Input) { in.Observation.Distance.RestartStill = 300 },
	}, Condition{
		Name: HeldByTransaction, Severity: Warning, For: 15 * time.Minute, Cause: "not known",
		Next: findTransactions,
		Reason: "6.0 GiB is kept though all but 3.0 MiB is confirmed: a transaction holds restart_lsn " +
			"back that cannot be seen, or has just ended",
		WAL: `6.0 GiB is kept for slot "postrider", more with every write, until it ends`,
	}},
	{"a transaction that has been at work for long",
		[]func(*Input){held(loading(20 * time.Minute)), retained(3<<20, 6<<30), grows}, Condition{
			Name: HeldByTransaction, Severity: Warning, Since: ago(20 * time.Minute),
			Cause: "transaction of pid 815 (psql)",
			Reason: "the transaction of pid 815 (psql, user bob, database shop, active) has been open for " +
				"20m0s: restart_lsn cannot pass it",
			WAL: `6.0 GiB is kept for slot "postrider", more with every write, until it ends`,
			Next: "SELECT xact_start, query FROM pg_stat_activity WHERE pid = 815; -- it is at work; this undoes all of it:\n" +
				"-- SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted;",
		}},
	{"a transaction whose state the login may not see",
		[]func(*Input){held(unseen(20 * time.Minute))}, Condition{
			Name: HeldByTransaction, Severity: Warning, Since: ago(20 * time.Minute),
			Cause: "transaction of pid 815 (psql)",
			Reason: "the transaction of pid 815 (psql, user bob, database shop) has been open for 20m0s: " +
				"restart_lsn cannot pass it",
			WAL: `4.2 KiB is kept for slot "postrider", more with every write, until it ends`,
			Next: "SELECT xact_start, query, state FROM pg_stat_activity WHERE pid = 815; -- it may be at work; this undoes all of it:\n" +
				"-- SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted;",
		}},
	{"a transaction of which only the number is known",
		[]func(*Input){held(monitor.Blocker{
			Kind: monitor.BlockerTransaction, XID: 770, Since: ago(time.Hour), Restart: true,
		})}, Condition{
			Name: HeldByTransaction, Severity: Warning, Since: ago(time.Hour), Cause: "transaction 770",
			Next:   findTransactions,
			Reason: "transaction 770 has been open for 1h0m: restart_lsn cannot pass it",
			WAL:    `4.2 KiB is kept for slot "postrider", more with every write, until it ends`,
		}},
	{"other slots", []func(*Input){
		other("crm", 2<<30, nil), other("reports", 5<<30, nil), other("small", 1<<20, nil),
		other("read", 9<<30, func(s *slot.Status) { s.Active = true }),
		other("copy", 9<<30, func(s *slot.Status) { s.Synced = true }),
		other("lost", 9<<30, func(s *slot.Status) { s.WALStatus = "lost" }),
	}, Condition{
		Name: OtherSlot, Severity: Warning, For: 5 * time.Minute, Since: ago(72 * time.Hour),
		Cause:  "slot reports, slot crm",
		Reason: `slot "reports" of database crm has been inactive for 3d0h and keeps 5.0 GiB; slot "crm", too, keeps 2.0 GiB`,
		WAL:    `5.0 GiB is kept for slot "reports", whatever the relay confirms, more with every write, until it is read or dropped`,
		Next: "postrider slot show reports   # ask its owner; it can be dropped if there is none, " +
			"and what it has not delivered is never delivered",
	}},
	{"far behind", []func(*Input){retained(5<<30, 5<<30),
		func(in *Input) { in.Observation.Forecast.CatchUp.Seconds = new(90.0) }}, Condition{
		Name: Backlog, Severity: Warning, For: 5 * time.Minute, Cause: "backlog",
		Reason: "5.0 GiB of WAL behind the server; caught up in about 1m30s",
		WAL:    `5.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
		Next:   "postrider status --watch   # does it shrink?",
	}},
	{"late", []func(*Input){inRelay(func(r *relay.State) { r.OldestUnacked = ago(40 * time.Second) })}, Condition{
		Name: LagHigh, Severity: Warning, For: time.Minute, WAL: kib4,
		Reason: "the oldest transaction in flight was committed 40s ago",
		Next:   "postrider check   # is the broker slow, or is a backlog being worked off?",
	}},
	{"late, since more is written than confirmed",
		[]func(*Input){inRelay(func(r *relay.State) { r.OldestUnacked = ago(40 * time.Second) }),
			retained(50<<20, 60<<20),
			func(in *Input) {
				in.Observation.Rates.WAL5m, in.Observation.Rates.Drain5m = new(4.0*(1<<20)), new(2.0*(1<<20))
			}}, Condition{
			Name: LagHigh, Severity: Warning, For: time.Minute, Cause: "rate of writes",
			WAL: `60.0 MiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
			Reason: "the oldest transaction in flight was committed 40s ago: the server writes 4.0 MiB/s " +
				"of WAL, and 2.0 MiB/s are confirmed",
			Next: "postrider check   # is the broker slow, or is a backlog being worked off?",
		}},
	{"late, since the sink is silent", []func(*Input){silentFor(6 * time.Minute)}, Condition{
		Name: LagHigh, Severity: Critical, For: time.Minute, WAL: kib4, Cause: "kafka at kafka-1:9092",
		Reason: "the oldest transaction in flight was committed 6m0s ago: kafka at kafka-1:9092 has " +
			"acknowledged nothing for 6m0s, with 17 messages in flight",
		Next: "postrider check   # is the broker slow, or is a backlog being worked off?",
	}},
	{"late by the server's clock",
		[]func(*Input){inRelay(func(r *relay.State) { r.OldestUnacked = ago(20 * time.Second) }),
			func(in *Input) {
				in.Observation.Clock = &monitor.Clock{Skew: 20}
			}}, Condition{
			Name: LagHigh, Severity: Warning, For: time.Minute, WAL: kib4,
			Reason: "the oldest transaction in flight was committed 40s ago",
			Next:   "postrider check   # is the broker slow, or is a backlog being worked off?",
		}},
	{"an old catalog_xmin", []func(*Input){xminAge(300_000_000), held(aged(299_000_000, transaction(26*time.Hour)))}, Condition{
		Name: CatalogXminAge, Severity: Warning, For: 10 * time.Minute, Cause: "transaction of pid 815 (psql)",
		Reason: `slot "postrider" keeps catalog rows that are 300000000 transactions old: the transaction of pid 815 (psql, user bob, database shop, idle in transaction) has been open for 1d2h`,
		WAL: "it is not WAL alone: catalogs bloat, and at about 2 billion transactions the server " +
			"accepts no writes; " + kib4,
		Next: "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted; -- or wait for its end",
	}},
	{"a catalog_xmin that is too old",
		[]func(*Input){xminAge(1_000_000_001),
			paused(time.Minute, "")}, Condition{
			Name: CatalogXminAge, Severity: Critical, For: 10 * time.Minute, Cause: "paused relay",
			Next:   "postrider resume",
			Reason: `slot "postrider" keeps catalog rows that are 1000000001 transactions old: the relay has been paused for 1m0s, until it is resumed`,
			WAL: "it is not WAL alone: catalogs bloat, and at about 2 billion transactions the server " +
				"accepts no writes; " + kib4,
		}},
	{"observation old", []func(*Input){inSlot(func(s *slot.Status) {
		s.ObservedAt,
			s.Error = ago(2*time.Minute), "read slot: connection lost"
	})}, Condition{
		Name: ObservationOld, Severity: Warning, For: time.Minute, Since: ago(2 * time.Minute),
		Cause: "PostgreSQL", WAL: "not known since then", Next: "postrider check",
		Reason: "the slot was last observed 2m0s ago: lag and retention are not known; read slot: " +
			"connection lost",
	}},
	{"never observed", []func(*Input){func(in *Input) {
		in.Started, in.Observation.Slot = ago(61*time.Second), slot.Status{Error: "log in to PostgreSQL: no end in time"}
	}}, Condition{
		Name: ObservationOld, Severity: Warning, For: time.Minute, Since: ago(61 * time.Second),
		Cause: "PostgreSQL", WAL: "not known since then", Next: "postrider check",
		Reason: "the slot has not been observed since the relay was started 1m1s ago: lag and retention are not known, " +
			"and a change of the publication is not noticed; log in to PostgreSQL: no end in time",
	}},
	{"clocks differ", []func(*Input){func(in *Input) {
		in.Observation.Clock = &monitor.Clock{
			Skew: -3.2, Error: 0.01,
		}
	}}, Condition{
		Name: ClockSkew, Severity: Warning, For: 5 * time.Minute, Cause: "clock",
		WAL:    "nothing: only times are wrong",
		Reason: "the database server's clock is 3s behind the relay's, within 10ms",
		Next:   "timedatectl   # on both machines: is the clock synchronised?",
	}},
	{"extended", []func(*Input){inSlot(extended), held(transaction(time.Minute))}, Condition{
		Name: SlotExtended, Severity: Info, Cause: "transaction of pid 815 (psql)", WAL: kib4,
		Next:   "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted; -- or wait for its end",
		Reason: `more WAL than max_wal_size is kept for slot "postrider": the transaction of pid 815 (psql, user bob, database shop, idle in transaction) has been open for 1m0s`,
	}},
	{"extended by a step", []func(*Input){inSlot(extended)}, Condition{
		Name: SlotExtended, Severity: Info, Cause: "not known", WAL: kib4,
		Next:   "postrider slot show postrider",
		Reason: `more WAL than max_wal_size is kept for slot "postrider": the relay keeps up, and restart_lsn follows in steps`,
	}},
}

func extended(s *slot.Status) { s.WALStatus = "extended" }

func phantoms(p relay.Phantoms) func(*Input) {
	return inRelay(func(r *relay.State) { r.Phantoms = p })
}

func find(v Verdict, name string) Condition {
	for _, c := range v.Conditions {
		if c.Name == name {
			return c
		}
	}
	return Condition{}
}

func TestJudge_FindsEachCondition(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range conditions {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, find(Judge(input(c.change...)), c.want.Name))
		})
		seen[c.want.Name] = true
	}
	for _, name := range Names() {
		require.True(t, seen[name], "no case for %s", name)
	}
	require.Empty(t, Judge(input()).Conditions, "a relay that is well has none")
}

func TestJudge_EachConditionSaysWhatItMeansAndWhatToType(t *testing.T) {
	for _, c := range conditions {
		v := Judge(input(c.change...))
		require.NotEmpty(t, v.Conditions)
		names := map[string]bool{}
		for i, got := range v.Conditions {
			require.Contains(t, Names(), got.Name)
			require.False(t, names[got.Name], "%s twice", got.Name)
			names[got.Name] = true
			require.NotEmpty(t, got.Reason, got.Name)
			require.NotEmpty(t, got.WAL, got.Name)
			require.NotEmpty(t, got.Next, got.Name)
			if i > 0 {
				require.GreaterOrEqual(t, severityOrder[v.Conditions[i-1].Severity], severityOrder[got.Severity],
					"the gravest come first")
			}
			if got.Name != LagHigh { // a backlog that is worked off has no other cause
				require.NotEmpty(t, got.Cause, got.Name)
			}
		}
		first := v.Conditions[0]
		if first.Severity == Info {
			require.Equal(t, Verdict{State: OK, Reason: "streaming for 1h12m", Conditions: v.Conditions}, v)
			continue
		}
		state := map[Severity]string{Warning: Degraded, Critical: Failing}[first.Severity]
		require.Equal(t, Verdict{
			State: state, Reason: first.Reason, WAL: first.WAL, Next: first.Next,
			Runbook: Runbook(first.Name), Conditions: v.Conditions,
		}, v)
	}
}

// Below what the configuration says nothing is a condition.
func TestJudge_HoldsToTheThresholds(t *testing.T) {
	for name, change := range map[string][]func(*Input){
		"half of the limit":         {safeOf(5 << 30), retained(1<<20, 1<<20)},
		"a step of restart_lsn":     {safeOf(3 << 30), retained(1<<20, 7<<30>>3)},
		"loss in half a day":        {lossIn(12*3600, 11*3600, 13*3600)},
		"a disk that is full later": {diskFullIn(12 * 3600)},
		"a sink that takes its time": {inRelay(func(r *relay.State) {
			r.InFlight, r.WaitingSince, r.OldestUnacked = 17, ago(2*time.Second), ago(29*time.Second)
		})},
		"a failover of the day before": {phantoms(relay.Phantoms{
			At: ago(25 * time.Hour), ForkLSN: 1, ReceivedLSN: 2, Messages: 1,
		})},
		"a partition that waits for its next leader": {partitionStalled(20*time.Second, 2, true)},
		"nothing in flight":                          {inRelay(func(r *relay.State) { r.WaitingSince = ago(time.Hour) })},
		"a standby that confirms": {gated(monitor.StandbySlot{
			Name: "standby1", Exists: true, Active: true,
		})},
		"inactive for a moment": {inactive(4 * time.Minute)},
		"inactive while tables are copied": {inactive(20 * time.Minute), inRelay(func(r *relay.State) {
			r.Phase, r.Snapshot.Table = relay.Snapshotting, "public.outbox"
		})},
		"inactive while another process copies tables": {inactive(20 * time.Minute), func(in *Input) {
			in.Relay.Phase = relay.Standby
			in.Observation.Others = []slot.Status{{Slot: slot.Slot{Name: slot.LockName("postrider"), Active: true}}}
		}},
		"inactive, since when?": {inSlot(func(s *slot.Status) { s.Active = false })},
		"a long transaction":    {held(transaction(14 * time.Minute))},
		"a standby whose feedback is old": {held(monitor.Blocker{
			Kind: monitor.BlockerStandby, Application: "replica1", Since: ago(26 * time.Hour),
		})},
		"inactive for a moment, by the server's clock": {inactive(6 * time.Minute), func(in *Input) {
			in.Observation.Clock = &monitor.Clock{Skew: -90, Error: 100}
		}},
		"some WAL kept":            {retained(1<<20, 1<<30)},
		"WAL kept for the lag":     {retained(20<<20, 2<<30), grows},
		"much kept for a step":     {retained(1<<20, 8<<30)},
		"a bulk load":              {held(loading(14 * time.Minute)), retained(1<<20, 8<<30), grows},
		"what may be a bulk load":  {held(unseen(14 * time.Minute)), retained(1<<20, 8<<30), grows},
		"another slot":             {other("crm", 1<<30, nil)},
		"a backlog":                {retained(1<<30, 1<<30)},
		"a catalog_xmin":           {xminAge(200_000_000)},
		"observed within a minute": {inSlot(func(s *slot.Status) { s.ObservedAt = ago(time.Minute) })},
		"started within a minute": {func(in *Input) {
			in.Started, in.Observation.Slot = ago(time.Minute), slot.Status{Error: "connection refused"}
		}},
		"observed since a start of long ago":     {func(in *Input) { in.Started = ago(24 * time.Hour) }},
		"never observed by whoever has no relay": {func(in *Input) { in.Observation.Slot = slot.Status{} }},
		"clocks that may be right": {func(in *Input) {
			in.Observation.Clock = &monitor.Clock{
				Skew: 1.4, Error: 0.5,
			}
		}},
	} {
		require.Empty(t, Judge(input(change...)).Conditions, name)
	}
}
