package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
)

func unreserved(s *slot.Status) {
	s.WALStatus, s.SafeWALSize = "unreserved", new(int64(-1))
}

// read is another slot that process 99 reads, and which is so much behind the server.
func read(lag int64) func(*slot.Status) {
	return func(s *slot.Status) { s.Active, s.ActivePID, s.LagBytes = true, 99, &lag }
}

// Of several things that are not well, the verdict names the root and not the symptom, and so does
// every condition about WAL that is kept.
func TestJudge_NamesTheCulpritOfACombination(t *testing.T) {
	const transactionText = "the transaction of pid 815 (psql, user bob, database shop, idle in " +
		"transaction) has been open for 20m0s"
	for _, c := range []struct {
		name   string
		change []func(*Input)
		first  string // condition that is the verdict
		cause  string
		says   string // in the reason
		next   string
		all    []string // names, the gravest first
	}{
		{
			"far behind because it is paused",
			[]func(*Input){paused(10*time.Minute, "deploy"), inactive(10 * time.Minute),
				retained(5<<30, 5<<30)},
			Paused, "paused relay", "paused for 10m0s, until it is resumed: deploy",
			"postrider resume",
			[]string{Paused, SlotInactive, Backlog},
		},
		{
			"forgotten pause",
			[]func(*Input){paused(time.Hour, "deploy"), inactive(time.Hour), retained(5<<30, 5<<30)},
			Paused, "paused relay", "paused for 1h0m", "postrider resume",
			[]string{Paused, SlotInactive, Backlog},
		},
		{
			"near loss because it is paused",
			[]func(*Input){paused(10*time.Minute, "deploy"), inSlot(unreserved), retained(5<<30, 5<<30),
				lossIn(62, 2, 302)},
			SlotNearLoss, "paused relay", "can be lost at the next checkpoint: the relay has been paused " +
				"for 10m0s", "postrider resume",
			[]string{SlotNearLoss, TimeToLoss, Paused, Backlog},
		},
		{
			"near loss because the broker is dead",
			[]func(*Input){backingOff("broker_unreachable", "no broker answers"), inSlot(unreserved),
				retained(5<<30, 5<<30)},
			SlotNearLoss, "kafka at kafka-1:9092", "at the next checkpoint: kafka at kafka-1:9092: no " +
				"broker answers", "postrider slot show postrider",
			[]string{SlotNearLoss, NotReady, Backlog},
		},
		{
			"near loss because the broker is silent",
			[]func(*Input){silentFor(6 * time.Minute), inSlot(unreserved), retained(5<<30, 5<<30)},
			SlotNearLoss, "kafka at kafka-1:9092", "kafka at kafka-1:9092 has acknowledged nothing for " +
				"6m0s, with 17 messages in flight", "postrider slot show postrider",
			[]string{SlotNearLoss, Stuck, LagHigh, Backlog},
		},
		{
			"late because the broker is silent",
			[]func(*Input){silentFor(6 * time.Minute)},
			Stuck, "kafka at kafka-1:9092", "has acknowledged nothing for 6m0s", "postrider check",
			[]string{Stuck, LagHigh},
		},
		{
			"late because partitions have no leader",
			[]func(*Input){partitionStalled(40*time.Second, 4, true)},
			LagHigh, `partition 3 of topic "outbox.event.order"`,
			`the oldest transaction in flight was committed 40s ago: partition 3 of topic "outbox.event.order" has no leader, ` +
				"and has acknowledged nothing for 40s, as the first of 4 partitions; 1200 messages wait, " +
				"and no position behind them is confirmed",
			"kafka-topics.sh", []string{LagHigh},
		},
		{
			"near loss because one partition waits",
			[]func(*Input){partitionStalled(6*time.Minute, 1, false), inSlot(unreserved), retained(5<<30, 5<<30)},
			SlotNearLoss, `partition 3 of topic "outbox.event.order"`,
			`partition 3 of topic "outbox.event.order" has acknowledged nothing for 6m0s; 1200 messages wait`,
			"kafka-topics.sh", []string{SlotNearLoss, LagHigh, Backlog},
		},
		{
			"late because a broker cannot be reached",
			[]func(*Input){partitionStalled(40*time.Second, 1, false), inRelay(func(r *relay.State) {
				r.Stalled.Error, r.Stalled.Next = "kafka-1:9093: TLS handshake: expired", "give the broker a new certificate"
			})},
			LagHigh, `partition 3 of topic "outbox.event.order"`,
			"no position behind them is confirmed; brokers cannot be reached: kafka-1:9093: TLS handshake: expired",
			"give the broker a new certificate", []string{LagHigh},
		},
		{
			"late because of a quota",
			[]func(*Input){partitionStalled(40*time.Second, 1, false), inRelay(throttled)},
			LagHigh, `partition 3 of topic "outbox.event.order"`,
			"no position behind them is confirmed; the broker throttles the relay: a quota is exceeded",
			"kafka-configs.sh", []string{LagHigh},
		},
		{
			"everything waits because of a quota",
			[]func(*Input){partitionStalled(6*time.Minute, 1, false), inRelay(throttled), inRelay(func(r *relay.State) {
				r.WaitingSince = ago(5 * time.Minute)
			})},
			Stuck, "kafka at kafka-1:9092", "the broker throttles the relay: a quota is exceeded",
			"kafka-configs.sh", []string{Stuck, LagHigh},
		},
		{
			"everything waits for a broker that cannot be reached",
			[]func(*Input){partitionStalled(6*time.Minute, 1, false), inRelay(func(r *relay.State) {
				r.WaitingSince = ago(5 * time.Minute)
				r.Stalled.Error, r.Stalled.Next = "kafka-1:9093: TLS handshake: expired", "give the broker a new certificate"
			})},
			Stuck, "kafka at kafka-1:9092", "brokers cannot be reached: kafka-1:9093: TLS handshake: expired",
			"give the broker a new certificate", []string{Stuck, LagHigh},
		},
		{
			"everything waits for partitions without a leader",
			[]func(*Input){partitionStalled(6*time.Minute, 2, true), inRelay(func(r *relay.State) { r.WaitingSince = ago(5 * time.Minute) })},
			Stuck, "kafka at kafka-1:9092",
			`has acknowledged nothing for 5m0s, with 1234 messages in flight; partition 3 of topic "outbox.event.order" has no leader`,
			"postrider check", []string{Stuck, LagHigh},
		},
		{
			"much kept because of a prepared transaction",
			[]func(*Input){held(prepared(2 * time.Hour)), held(transaction(time.Minute)),
				retained(1<<20, 5<<30), grows},
			HeldByTransaction, "prepared transaction pay_42", `prepared transaction "pay_42"`,
			"-- in database shop; its transaction manager knows which: COMMIT PREPARED 'pay_42', or ROLLBACK PREPARED",
			[]string{HeldByTransaction},
		},
		{
			"near loss because of a transaction",
			[]func(*Input){held(transaction(20 * time.Minute)), inSlot(unreserved), retained(1<<20, 5<<30)},
			SlotNearLoss, "transaction of pid 815 (psql)", transactionText,
			"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted; -- or wait for its end",
			[]string{SlotNearLoss, HeldByTransaction},
		},
		{
			"near loss because of a transaction, and paused besides",
			[]func(*Input){held(transaction(20 * time.Minute)), paused(time.Minute, ""), inSlot(unreserved),
				retained(1<<30, 5<<30)},
			SlotNearLoss, "transaction of pid 815 (psql)", transactionText +
				", and the relay has been paused for 1m0s", "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted; -- or wait " +
				"for its end",
			[]string{SlotNearLoss, Paused, HeldByTransaction},
		},
		{
			"near loss because of a transaction, with a snapshot besides",
			[]func(*Input){held(transaction(20 * time.Minute)),
				inRelay(func(r *relay.State) { r.Phase = relay.Snapshotting }), inSlot(unreserved),
				retained(1<<20, 5<<30)},
			SlotNearLoss, "transaction of pid 815 (psql)", transactionText +
				", and the relay is publishing rows", "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted; -- or wait for its " +
				"end",
			[]string{SlotNearLoss, HeldByTransaction},
		},
		{
			"near loss because it is paused, and a transaction besides",
			[]func(*Input){held(transaction(20 * time.Minute)), paused(time.Hour, ""), inSlot(unreserved),
				retained(4<<30, 5<<30)},
			SlotNearLoss, "paused relay", "the relay has been paused for 1h0m", "postrider resume",
			[]string{SlotNearLoss, Paused, HeldByTransaction, Backlog},
		},
		{
			"transactions that are young hold nothing",
			[]func(*Input){held(transaction(time.Second)), paused(time.Hour, ""), inSlot(unreserved),
				retained(1<<20, 5<<30)},
			SlotNearLoss, "paused relay", "the relay has been paused for 1h0m", "postrider resume",
			[]string{SlotNearLoss, Paused},
		},
		{
			"nothing comes because of the standby",
			[]func(*Input){gated(deadStandby), retained(5<<30, 5<<30)},
			StandbyGate, "standby slot standby1",
			`slot "standby1" of synchronized_standby_slots has been inactive for 5m0s, so PostgreSQL sends the relay nothing`,
			"SELECT slot_name, active, wal_status FROM pg_replication_slots WHERE slot_type = " +
				"'physical'; -- bring the standby of this slot back",
			[]string{StandbyGate, Backlog},
		},
		{
			"the slot is nearly lost because of the standby",
			[]func(*Input){gated(deadStandby), retained(5<<30, 5<<30), safeOf(1 << 30)},
			SlotNearLoss, "standby slot standby1",
			`slot "standby1" of synchronized_standby_slots has been inactive for 5m0s, so PostgreSQL sends the relay nothing`,
			"ALTER SYSTEM SET synchronized_standby_slots = ''; SELECT pg_reload_conf(); -- or bring the " +
				"standby back; without it in the list consumers can be sent what a failover to that standby " +
				"loses",
			[]string{SlotNearLoss, StandbyGate, Backlog},
		},
		{
			"the disk is full because of another slot",
			[]func(*Input){diskFullIn(602), other("crm", 50<<30, nil), retained(1<<20, 2<<20)},
			TimeToDiskFull, "slot crm", `slot "crm" of database crm has been inactive for 3d0h and keeps 50.0 GiB`,
			"postrider slot show crm   # ask its owner; it can be dropped if there is none, and what it " +
				"has not delivered is never delivered",
			[]string{TimeToDiskFull, OtherSlot},
		},
		{
			"the disk is full because of another slot that somebody reads",
			[]func(*Input){diskFullIn(602), retained(1<<20, 2<<20),
				other("crm", 50<<30, func(s *slot.Status) { s.Active, s.ActivePID = true, 99 })},
			TimeToDiskFull, "slot crm", `slot "crm" of database crm keeps 50.0 GiB, and process 99, which reads it, does not keep up`, "postrider slot show crm",
			[]string{TimeToDiskFull},
		},
		{
			"the disk is full because of a transaction, which blocks another slot too",
			[]func(*Input){diskFullIn(602), held(transaction(20 * time.Minute)), retained(1<<20, 50<<30),
				other("crm", 50<<30+16<<20, read(1<<20))},
			TimeToDiskFull, "transaction of pid 815 (psql)", transactionText,
			"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = 815 AND transactionid = '770' AND granted; -- or wait for its end",
			[]string{TimeToDiskFull, HeldByTransaction},
		},
		{
			"the disk is full because of another slot that lags, beside a transaction",
			[]func(*Input){diskFullIn(602), held(transaction(20 * time.Minute)), retained(1<<20, 2<<20),
				other("crm", 50<<30, read(40<<30))},
			TimeToDiskFull, "slot crm", "process 99, which reads it, does not keep up", "postrider slot show crm",
			[]string{TimeToDiskFull, HeldByTransaction},
		},
		{
			"the disk is full because of a standby, beside a transaction",
			[]func(*Input){diskFullIn(602), held(transaction(20 * time.Minute)), retained(1<<20, 2<<20),
				other("standby2", 50<<30, func(s *slot.Status) { s.Active, s.ActivePID, s.Database = true, 99, "" })},
			TimeToDiskFull, "slot standby2", "process 99, which reads it, does not keep up", "postrider slot show standby2",
			[]string{TimeToDiskFull, HeldByTransaction},
		},
		{
			"the disk is full because of ours, though another is dead too",
			[]func(*Input){diskFullIn(602), other("crm", 2<<30, nil), paused(time.Hour, ""),
				retained(50<<30, 50<<30)},
			TimeToDiskFull, "paused relay", "the relay has been paused for 1h0m", "postrider resume",
			[]string{TimeToDiskFull, Paused, OtherSlot, Backlog},
		},
		{
			"behind because of a snapshot",
			[]func(*Input){inRelay(func(r *relay.State) {
				r.Phase, r.Snapshot = relay.Snapshotting, relay.Snapshot{
					Table: "public.outbox", Rows: 20, EstimatedRows: 100, RowsPerSecond: 5,
				}
			}), retained(5<<30, 5<<30)},
			Backlog, "snapshot", "publishing rows that were in the tables already: public.outbox, 20 of " +
				"about 100 rows (20 %), 5 rows/s",
			"postrider status --watch   # does it shrink?",
			[]string{Backlog},
		},
		{
			"near loss with no relay at all",
			[]func(*Input){func(in *Input) { in.Relay = relay.State{} }, inactive(time.Hour),
				inSlot(unreserved), retained(5<<30, 5<<30)},
			SlotNearLoss, "no relay", "no relay is running", "postrider run",
			[]string{SlotNearLoss, NotReady, SlotInactive, Backlog},
		},
		{
			"near loss, and the database does not say since when",
			[]func(*Input){backingOff("postgres_unreachable", "connection refused"),
				inSlot(func(s *slot.Status) {
					unreserved(s)
					s.ObservedAt, s.Error = ago(3*time.Minute), "connection refused"
				}), retained(5<<30, 5<<30)},
			SlotNearLoss, "PostgreSQL", "connection refused", "postrider slot show postrider",
			[]string{SlotNearLoss, NotReady, Backlog, ObservationOld},
		},
		{
			"a loop that hangs, and a transaction besides",
			[]func(*Input){inRelay(func(r *relay.State) { r.LastProgress = ago(2 * time.Minute) }),
				held(transaction(20 * time.Minute)), retained(1<<20, 5<<30)},
			Stuck, "session loop", "the session loop has not run for 2m0s",
			"systemctl restart postrider   # or however it was started; report it with the log of the " +
				"last minutes",
			[]string{Stuck, HeldByTransaction},
		},
		{
			"lost: nothing else about the slot is of interest",
			[]func(*Input){paused(time.Hour, ""), inactive(time.Hour), held(transaction(20 * time.Minute)),
				retained(5<<30, 5<<30), lossIn(1, 1, 1), inSlot(func(s *slot.Status) {
					s.WALStatus = "lost"
				})},
			SlotLost, "paused relay", "PostgreSQL removed WAL that had not been delivered; the relay has " +
				"been paused for 1h0m",
			`postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`,
			[]string{SlotLost, Paused},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(input(c.change...))
			var all []string
			for _, found := range v.Conditions {
				all = append(all, found.Name)
			}
			require.Equal(t, c.all, all)
			require.Equal(t, c.first, all[0])
			require.Equal(t, c.cause, v.Conditions[0].Cause)
			require.Contains(t, v.Reason, c.says)
			require.Equal(t, c.next, v.Next)
			require.Equal(t, Runbook(c.first), v.Runbook)
		})
	}
}

// Another process streams; what is wrong with the slot is worth a word all the same, and only what
// loses rows makes this one fail.
func TestJudge_ARelayThatStandsByIsAStateOfItsOwn(t *testing.T) {
	standby := inRelay(func(r *relay.State) {
		r.Phase, r.Error, r.Reason = relay.Standby, "slot in use", "slot_in_use"
	})
	v := Judge(input(standby, retained(5<<30, 5<<30)))
	require.Equal(t, Standby, v.State)
	require.Equal(t, "process 4711 of the database streams from the slot; this relay takes over "+
		"when it disconnects", v.Reason)
	require.Empty(t, v.Runbook)
	require.Equal(t, "process 4711", find(v, Backlog).Cause)

	v = Judge(input(standby, held(transaction(20*time.Minute)), retained(1<<20, 5<<30),
		inSlot(func(s *slot.Status) {
			s.WALStatus = "extended"
		})))
	require.Regexp(t, "has been open for 20m0s$", find(v, SlotExtended).Reason,
		"the session of the other process is none of ours")

	v = Judge(input(standby, inSlot(unreserved)))
	require.Equal(t, Failing, v.State)
	require.Equal(t, Runbook(SlotNearLoss), v.Runbook)

	require.Equal(t, Verdict{State: OK, Reason: "streaming for 1h12m"}, func() Verdict {
		v := Judge(input(inSlot(func(s *slot.Status) { s.WALStatus = "extended" })))
		require.Equal(t, []string{SlotExtended}, []string{v.Conditions[0].Name})
		v.Conditions = nil
		return v
	}(), "what is only worth a word leaves the state")
}

// Names and gids are chosen by whoever is allowed to connect. They end up on terminals, and in SQL
// that somebody types.
func TestHolding_ShowsWhatOthersHaveChosenWithoutHarm(t *testing.T) {
	evil := prepared(time.Hour)
	evil.GID = "a'; DROP TABLE x;\n\x1b[2J--\\"
	c := find(Judge(input(held(evil))), HeldByTransaction)
	require.Equal(t, "prepared transaction a'; DROP TABLE x;??[2J--\\", c.Cause)
	require.Equal(t, `-- in database shop; its transaction manager knows which: COMMIT PREPARED E'a''; DROP TABLE x;\U0000000A\U0000001B[2J--\\', or ROLLBACK PREPARED`, c.Next)
	require.NotContains(t, c.Reason, "\x1b")
	require.Equal(t, `'it''s'`, slot.PrintableLiteral("it's"))
}

// A small limit on a volume that is not known is raised like others.
func TestJudge_RaisesASmallLimit(t *testing.T) {
	v := Judge(input(retained(60<<20, 60<<20), inSlot(unreserved), func(in *Input) { in.Observation.Limit.Effective = new(int64(64 << 20)) }))
	require.Equal(t, "SHOW data_directory; -- then df -h THAT/pg_wal/.; only if it has 68.0 MiB free: "+
		"ALTER SYSTEM SET max_slot_wal_keep_size = '128MB'; SELECT pg_reload_conf(); -- set it back later", v.Next)
}
