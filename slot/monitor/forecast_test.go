package monitor

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/slot"
)

const mib = 1 << 20

// paused is a server with default settings and a limit of 256 MiB, of which 200 MiB are left. A checkpoint began a minute ago, a MiB is
// written each second, few pages are changed, and no session reads from the slot.
func paused() Observation {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return Observation{
		Slot: slot.Status{
			Slot:          slot.Slot{Name: "postrider", RestartLSN: 0x4000_0000, ConfirmedFlushLSN: 0x4000_0000, WALStatus: "reserved", SafeWALSize: new(int64(200 * mib))},
			CurrentWALLSN: 0x4000_0000 + 72*mib, LagBytes: new(int64(72 * mib)), ObservedAt: at,
		},
		Server: Server{StartedAt: at.Add(-24 * time.Hour)},
		Limit: Limit{
			MaxSlotWALKeepSize: new(int64(256 * mib)), Effective: new(int64(256 * mib)), MaxWALSize: 1024 * mib, SegmentSize: 16 * mib,
			CheckpointTimeout: 300, CheckpointTarget: 0.9, SharedBuffers: 128 * mib,
			Checkpoint: &Checkpoint{StartedAt: at.Add(-time.Minute), RedoLSN: 0x4000_0000 + 12*mib, Took: 5},
		},
		Rates: Rates{
			WAL1m: new(1.0 * mib), WAL5m: new(1.0 * mib), WAL1h: new(1.0 * mib), Drain5m: new(0.0), Pages5m: new(0.2),
		},
		Distance: Distance{ConfirmedStill: 72, RestartStill: 72},
	}
}

// readingAt is the same with a relay that reads, at so many MiB a second.
func readingAt(rate float64) func(*Observation) {
	return func(o *Observation) {
		o.Slot.Active, o.Rates.Drain5m, o.Distance = true, new(rate*mib), Distance{}
		if rate < 1 {
			o.Distance = Distance{LagGrowth: (1 - rate) * mib, LagGrowing: 300}
		}
	}
}

func both(changes ...func(*Observation)) func(*Observation) {
	return func(o *Observation) {
		for _, change := range changes {
			change(o)
		}
	}
}

func passedBy(bytes int64) func(*Observation) {
	return func(o *Observation) { o.Slot.SafeWALSize, o.Slot.WALStatus = new(-bytes), "unreserved" }
}

// began moves the last checkpoint, and the slot with it: a MiB was written each second since.
func began(ago time.Duration) func(*Observation) {
	return func(o *Observation) {
		o.Limit.Checkpoint.StartedAt = o.Slot.ObservedAt.Add(-ago)
		o.Limit.Checkpoint.RedoLSN = o.Slot.CurrentWALLSN - pglogrepl.LSN(ago.Seconds()*mib)
		o.Slot.RestartLSN = o.Limit.Checkpoint.RedoLSN - 16*mib
	}
}

func away(ago time.Duration) func(*Observation) {
	return func(o *Observation) { o.Slot.Active, o.Slot.InactiveSince = false, o.Slot.ObservedAt.Add(-ago) }
}

func open(h Blocker, ago time.Duration) func(*Observation) {
	return func(o *Observation) {
		h.Restart, h.Since = true, o.Slot.ObservedAt.Add(-ago)
		o.Blockers = []Blocker{h}
	}
}

func manyPages(o *Observation) { o.Rates.Pages5m = new(50.0) }

var none = math.NaN()

type wanted struct {
	name    string
	change  func(*Observation)
	seconds float64 // none, or to the second
	text    string  // part of the assumption
}

func (w wanted) holds(t *testing.T, of func(Forecast) Estimate) {
	t.Helper()
	o := paused()
	if w.change != nil {
		w.change(&o)
	}
	f := forecast(o)
	e := of(f)
	t.Log(e.Assumption)
	require.Contains(t, e.Assumption, w.text)
	_, err := json.Marshal(f)
	require.NoError(t, err, "no infinity, no NaN")
	if math.IsNaN(w.seconds) {
		require.Nil(t, e.Seconds)
		require.Nil(t, e.Earliest)
		require.Nil(t, e.Latest)
		return
	}
	require.NotNil(t, e.Seconds)
	require.InDelta(t, w.seconds, *e.Seconds, 0.5)
	require.LessOrEqual(t, *e.Earliest, *e.Seconds)
	require.GreaterOrEqual(t, *e.Earliest, 0.0)
	if e.Latest != nil {
		require.GreaterOrEqual(t, *e.Latest, *e.Seconds)
	}
}

func TestForecast_Loss(t *testing.T) {
	for _, w := range []wanted{
		{"few pages: soon after the next checkpoint begins", nil, 240 + 6, "no session has read from the slot for 1m12s; at 1 MiB/s of WAL, the rate of the last 5 minutes, the limit of 256 MiB is passed in 3m20s; " +
			"the slot is lost when the checkpoint that follows ends, about 4m6s from now"},
		{"many pages: their writing is spread", manyPages, 240 + 270, "about 8m30s from now"},
		{"many pages that do not fit in shared_buffers", both(manyPages, func(o *Observation) { o.Limit.SharedBuffers = 8 * mib }), 240 + 102.4, ""},
		{"a checkpoint that ends before the limit is passed does not count", func(o *Observation) { o.Slot.SafeWALSize = new(int64(250 * mib)) }, 540 + 6, ""},
		{"a checkpoint that began before the limit was passed counts", both(manyPages, func(o *Observation) { o.Slot.SafeWALSize = new(int64(250 * mib)) }), 240 + 270, ""},
		{"pages counted since the checkpoint began", func(o *Observation) { o.Limit.Checkpoint.Pages = new(int64(252)) }, 240 + 0.1*(252+48), ""},
		{"pages not known: as long as the last took", func(o *Observation) { o.Rates.Pages5m = nil }, 240 + 5, ""},
		{"nothing known of pages: as long as it may take", func(o *Observation) { o.Rates.Pages5m, o.Limit.Checkpoint.Took = nil, 0 }, 240 + 270, ""},
		{"a disk that is slower than the schedule", both(manyPages, func(o *Observation) { o.Limit.Checkpoint.Took = 290 }), 240 + 290, ""},
		// 8 segments are filled at 0x40000000 + 128 MiB, which is in 56 s, and again each 128 s.
		{"WAL asks for the checkpoints", both(manyPages, func(o *Observation) { o.Limit.MaxWALSize = 256 * mib }), 56 + 128 + 0.9*128, ""},
		{"the server was started since: its clock began again", func(o *Observation) { o.Server.StartedAt = o.Slot.ObservedAt.Add(-10 * time.Second) }, 290 + 7, ""},
		{"checkpoints were left out on an idle server", func(o *Observation) {
			o.Limit.Checkpoint.StartedAt = o.Slot.ObservedAt.Add(-10 * time.Hour).Add(-100 * time.Second)
			o.Limit.Checkpoint.RedoLSN = 0x4000_0000 + 40*mib
		}, 200 + 0.1*0.2*(32+200), ""},
		{"a checkpoint was left out before the load began", func(o *Observation) {
			o.Limit.Checkpoint.StartedAt = o.Slot.ObservedAt.Add(-400 * time.Second)
			o.Slot.SafeWALSize = new(int64(100 * mib))
		}, 200 + 0.1*0.2*(60+200), ""},
		{"the clocks differ", func(o *Observation) {
			o.Clock = &Clock{Skew: -30}
			o.Limit.Checkpoint.StartedAt = o.Slot.ObservedAt.Add(-90 * time.Second)
		}, 240 + 6, ""},
		{"far ahead the phase of checkpoints means little", func(o *Observation) { o.Slot.SafeWALSize = new(int64(1 << 40)) }, 1<<20 + 300 - (1<<20-246)%300, "12d3h"},
		{"the load began a minute ago", func(o *Observation) { o.Rates.WAL5m = new(0.2 * mib) }, 240 + 30, "the rate of the last minute, the limit of 256 MiB is passed in 3m20s"},
		{"the load ended a minute ago", func(o *Observation) { o.Rates.WAL1m = new(0.0) }, none, "no WAL is written, by the rate of the last minute"},
		{"a reader at half the pace", readingAt(0.5), 546, "the reader has fallen behind by 512 KiB/s for 5m0s; at 1 MiB/s of WAL, the rate of the last 5 minutes, the limit of 256 MiB is passed in 6m40s"},
		{"a reader who fell behind a moment ago may catch up", both(readingAt(0.5), func(o *Observation) { o.Distance.LagGrowing = 40 }), none, "no loss in sight: the reader keeps up"},
		{"the broker took nothing for a minute", both(readingAt(1), func(o *Observation) { o.Distance.ConfirmedStill = 60 }), 246, "nothing has been confirmed for 1m0s"},
		{"the broker took nothing for ten seconds", both(readingAt(1), func(o *Observation) { o.Distance.ConfirmedStill = 10 }), none, "the reader keeps up"},
		{"what has just begun is not taken for lasting", both(readingAt(1), func(o *Observation) { o.Distance.ConfirmedStill, o.Slot.SafeWALSize = 60, new(int64(600*mib)) }), none,
			"not known: nothing has been confirmed for 1m0s, and the limit is passed in 10m0s if that lasts"},
		{"the relay is gone since a minute", both(readingAt(1), away(time.Minute)), 246, "no session has read from the slot for 1m0s"},
		{"the relay is gone for a moment", both(readingAt(1), away(3*time.Second)), none, "not known yet: the slot has been inactive for less than 10 seconds"},
		{"a transaction that does nothing", both(readingAt(1), open(Blocker{Kind: BlockerTransaction, State: "idle in transaction"}, 40*time.Second)), 246, "a transaction has held restart_lsn back for 40s"},
		{"a prepared transaction", both(readingAt(1), open(Blocker{Kind: BlockerPrepared}, time.Hour)), 246, "a transaction has held"},
		{"a transaction that is at work, for as long as the limit is far", both(readingAt(1), open(Blocker{Kind: BlockerTransaction, State: "active"}, 32*time.Second)), 246, "held restart_lsn back for 32s"},
		{"a transaction that has just begun, beside a limit that is farther", both(readingAt(1), open(Blocker{Kind: BlockerTransaction, State: "active"}, 32*time.Second), func(o *Observation) {
			o.Slot.SafeWALSize = new(int64(300 * mib))
		}), none, "the limit is passed in 5m0s if that lasts"},
		{"a transaction whose state the login may not see", both(readingAt(1), open(Blocker{Kind: BlockerTransaction}, 40*time.Second), func(o *Observation) {
			o.Slot.SafeWALSize = new(int64(10_000 * mib))
		}), none, "not known: a transaction has held restart_lsn back for 40s, and the limit is passed in 2h46m if that lasts"},
		{"a short transaction", both(readingAt(1), open(Blocker{Kind: BlockerTransaction, State: "idle in transaction"}, 20*time.Second)), none, "the reader keeps up"},
		{"nobody is seen who holds restart_lsn back", both(readingAt(1), func(o *Observation) { o.Distance.RestartStill = 80 }), 246, "restart_lsn has not moved for 1m20s"},
		{"a step of restart_lsn", both(readingAt(1), func(o *Observation) { o.Distance.RestartStill = 40 }), none, "the reader keeps up"},
		{"a reader who keeps up", readingAt(1), none, "no loss in sight: the reader keeps up, and nothing holds restart_lsn back"},
		{"nothing is written", func(o *Observation) { o.Rates.WAL1m, o.Rates.WAL5m = new(0.0), new(0.0) }, none, "no WAL is written"},
		{"not watched for long", func(o *Observation) { o.Rates = Rates{} }, none, "not known yet"},
		{"no limit", func(o *Observation) {
			o.Limit.Effective, o.Limit.MaxSlotWALKeepSize, o.Slot.SafeWALSize = nil, nil, nil
		}, none, "until it is read or the disk is full"},
		{"a limit, and no word of what is left", func(o *Observation) { o.Slot.SafeWALSize = nil }, none, "not known"},
		{"passed: the next checkpoint decides", passedBy(mib), 246, "the limit of 256 MiB is passed; the slot is lost when the checkpoint that begins in 4m0s ends, about 4m6s from now"},
		{"passed, and nothing known of rates", both(passedBy(mib), func(o *Observation) { o.Rates = Rates{} }), 245, "begins in 4m0s"},
		{"passed, and nothing is written", both(passedBy(mib), func(o *Observation) { o.Rates.WAL1m, o.Rates.WAL5m = new(0.0), new(0.0) }), 245,
			"if anything is written until then"},
		{"passed in a checkpoint", both(passedBy(mib), manyPages, began(400*time.Second)), 170, "the checkpoint that is running ends, about 2m50s from now"},
		{"a checkpoint that should have ended a moment ago", both(passedBy(mib), began(310*time.Second)), 0, "is running ends, about 0s from now"},
		{"a checkpoint that lasts longer than its pages take", both(passedBy(mib), began(330*time.Second)), 240, "is running ends, about 4m0s from now"},
		{"a checkpoint that lasts longer than it should", both(passedBy(mib), manyPages, began(700*time.Second)), 40, "is running"},
		{"passed, and the relay keeps up", both(passedBy(10*mib), readingAt(1)), none, "the limit is passed, but the reader keeps up, so restart_lsn moves before a checkpoint ends"},
		{"passed, and the relay keeps up, and a checkpoint ends", both(passedBy(10*mib), readingAt(1), began(290*time.Second)), 16, "the limit of 256 MiB is passed; the slot is lost when"},
		{"passed, and the relay is too slow", both(passedBy(600*mib), readingAt(0.5)), 246, "the limit of 256 MiB is passed; the slot is lost when"},
		{"the WAL that is needed is newer than the checkpoint that runs", both(passedBy(mib), manyPages, began(400*time.Second), func(o *Observation) {
			o.Slot.RestartLSN = 0x4000_0000 + 60*mib
		}), 200 + 270, ""},
		{"nothing known of checkpoints", func(o *Observation) { o.Limit.Checkpoint = nil }, 200 + 150, "when the last one began is not known"},
		{"a standby", func(o *Observation) { o.Server.Standby = true }, 200 + 150, "restartpoint"},
		{"lost", func(o *Observation) { o.Slot.WALStatus, o.Slot.InvalidationReason = "lost", "wal_removed" }, 0, "lost already: wal_removed"},
		{"lost, before 17", func(o *Observation) { o.Slot.WALStatus, o.Slot.SafeWALSize = "lost", nil }, 0, "the slot is lost already"},
		{"a slot that keeps nothing", func(o *Observation) { o.Slot.RestartLSN = 0 }, none, "keeps no WAL"},
	} {
		t.Run(w.name, func(t *testing.T) { w.holds(t, func(f Forecast) Estimate { return f.Loss }) })
	}
}

// Whether the limit is passed just before a checkpoint ends or just after, nobody can tell, and it makes a whole checkpoint's difference.
func TestForecast_LatestKnowsTheEdge(t *testing.T) {
	o := paused()
	o.Slot.SafeWALSize = new(int64(240 * mib))
	e := forecast(o).Loss
	require.InDelta(t, 246, *e.Seconds, 0.5)
	require.Greater(t, *e.Latest, 546.0)
	require.InDelta(t, 240, *e.Earliest, 0.5)

	o.Rates.WAL1m = new(1.2 * mib)
	require.InDelta(t, 200, *forecast(o).Loss.Earliest, 0.5, "as fast as in the last minute, if that is faster")
	o.Rates.WAL1m, o.Rates.WAL1h = new(0.01*mib), new(3.0*mib)
	e = forecast(o).Loss
	require.InDelta(t, 80, *e.Earliest, 0.5, "as fast as in the last hour")
	require.Greater(t, *e.Seconds, 20_000.0)
	require.Greater(t, *e.Latest, *e.Seconds)
}

func TestForecast_LossByIdleness(t *testing.T) {
	noLimit := func(o *Observation) { o.Limit.Effective, o.Slot.SafeWALSize = nil, nil }
	idle := func(since, timeout time.Duration) func(*Observation) {
		return func(o *Observation) {
			o.Limit.IdleTimeout, o.Slot.InactiveSince = Seconds(timeout.Seconds()), o.Slot.ObservedAt.Add(-since)
		}
	}
	for _, w := range []wanted{
		{"sooner than the limit", both(idle(58*time.Minute, time.Hour), func(o *Observation) { o.Slot.SafeWALSize = new(int64(250 * mib)) }), 246, "no session reads from the slot and idle_replication_slot_timeout is over in 2m0s; " +
			"it is lost when the checkpoint that follows ends, about 4m6s from now"},
		{"over", both(idle(2*time.Hour, time.Hour), noLimit), 246, "idle_replication_slot_timeout is over; it is lost when the checkpoint that begins in 4m0s ends"},
		{"not sooner than the limit", idle(58*time.Minute, time.Hour), 246, "the limit of 256 MiB is passed in"},
		{"without a limit", both(idle(time.Minute, 6*time.Minute), noLimit), 540 + 6, "over in 5m0s"},
		{"off", both(idle(time.Hour, 0), noLimit), none, "max_slot_wal_keep_size is not set"},
		{"a slot that is read from has time", both(idle(time.Hour, time.Minute), readingAt(1)), none, "the reader keeps up"},
		{"a copied slot on a standby is never read from", both(idle(time.Hour, time.Minute), func(o *Observation) { o.Server.Standby, o.Slot.Synced = true, true }), 350, "the limit of"},
	} {
		t.Run(w.name, func(t *testing.T) {
			w.holds(t, func(f Forecast) Estimate {
				require.Equal(t, strings.Contains(w.text, "over"), f.Loss.By == ByIdleness)
				return f.Loss
			})
		})
	}
}

func TestForecast_DiskFull(t *testing.T) {
	noLimit := func(o *Observation) { o.Limit.Effective, o.Slot.SafeWALSize = nil, nil }
	volume := func(size, used int64) func(*Observation) {
		return func(o *Observation) { o.Limit.VolumeSize, o.Limit.WALDirectory = size*mib, new(used*mib) }
	}
	other := func(s slot.Slot, gone time.Duration, still Seconds) func(*Observation) {
		return func(o *Observation) {
			if s.RestartLSN = cmp.Or(s.RestartLSN, 0x1000_0000); !s.Active {
				s.InactiveSince = o.Slot.ObservedAt.Add(-gone)
			}
			o.Others = append(o.Others, slot.Status{Slot: s})
			o.Distance.Others = map[string]Seconds{s.Name: still}
		}
	}
	forgotten := other(slot.Slot{Name: "forgotten"}, time.Hour, 0)
	archive := func(still Seconds) func(*Observation) {
		return func(o *Observation) { o.Archive = &Archive{Waiting: 12, Still: still} }
	}
	lost := func(o *Observation) { // PostgreSQL 18 leaves restart_lsn with a slot that was idle for too long
		away(2 * time.Hour)(o)
		o.Slot.WALStatus, o.Slot.RestartLSN, o.Slot.InvalidationReason = "lost", 0, "wal_removed"
	}
	lostByIdleness := both(lost, func(o *Observation) { o.Slot.RestartLSN, o.Slot.InvalidationReason = 0x0800_0000, "idle_timeout" })
	stuck := slot.Slot{Name: "stuck", Active: true}
	idle := both(away(58*time.Minute), func(o *Observation) { o.Limit.IdleTimeout = 3600 })
	for _, w := range []wanted{
		{"at the rate of WAL", both(noLimit, volume(4096, 1096)), 3000, "no session has read from the slot for 1m12s: pg_wal has 1.1 GiB of the volume's 4 GiB, grows by 1 MiB/s, the rate of the last 5 minutes, and nothing else grows on it"},
		{"a reader at half the pace", both(noLimit, volume(2296, 1096), readingAt(0.5)), 2400, "grows by 512 KiB/s"},
		{"a reader at half the pace, and a volume that lasts", both(noLimit, volume(4096, 1096), readingAt(0.5)), none, "not known: the reader has fallen behind by 512 KiB/s for 5m0s, and the volume is full in 1h40m"},
		{"a reader who keeps up", both(noLimit, volume(4096, 1096), readingAt(1)), none, "the reader keeps up"},
		{"nothing is written", both(noLimit, volume(4096, 1096), func(o *Observation) { o.Rates.WAL1m, o.Rates.WAL5m = new(0.0), new(0.0) }), none, "no WAL is written"},
		{"another slot keeps more", both(noLimit, volume(4096, 1096), readingAt(1), forgotten), 3000, `slot "forgotten" keeps older WAL than this one: pg_wal has`},
		{"another slot whose reader has gone for a moment", both(noLimit, volume(4096, 1096), readingAt(1), other(slot.Slot{Name: "standby"}, time.Second, 0)), none, "the reader keeps up"},
		{"another slot whose reader confirms nothing", both(noLimit, volume(1696, 1096), readingAt(1), other(stuck, 0, 80)), 600,
			`slot "stuck" keeps older WAL than this one, and its restart_lsn has not moved for 1m20s: pg_wal has`},
		{"another slot whose reader confirms nothing, and a volume that lasts", both(noLimit, volume(4096, 1096), readingAt(1), other(stuck, 0, 80)), none,
			`not known: slot "stuck" keeps older WAL than this one, and its restart_lsn has not moved for 1m20s, and the volume is full in 50m0s if that lasts`},
		{"another slot in a step of restart_lsn", both(noLimit, volume(1696, 1096), readingAt(1), other(stuck, 0, 70)), none, "the reader keeps up"},
		{"one that confirms nothing for a moment beside this slot, which no session reads", both(noLimit, volume(4096, 1096), other(stuck, 0, 80)), 3000, "no session has read from the slot"},
		{"the copy of a slot on a standby", both(noLimit, volume(4096, 1096), readingAt(1), other(slot.Slot{Name: "copy", Synced: true}, time.Hour, 3600)), none, "the reader keeps up"},
		{"another slot that is lost", both(noLimit, volume(4096, 1096), readingAt(1), other(slot.Slot{Name: "gone", WALStatus: "lost"}, time.Hour, 3600)), none, "the reader keeps up"},
		{"another slot that keeps less", both(noLimit, volume(4096, 1096), readingAt(1), other(slot.Slot{Name: "younger", RestartLSN: 0x4000_0001}, time.Hour, 3600)), none, "the reader keeps up"},
		{"of two that are forgotten it names the one that keeps more", both(noLimit, volume(4096, 1096), readingAt(1), other(slot.Slot{Name: "younger", RestartLSN: 0x2000_0000}, 2*time.Hour, 0), forgotten), 3000,
			`slot "forgotten" keeps older WAL`},
		{"full", both(noLimit, volume(4096, 5000)), 0, ""},
		{"the limit keeps it in bounds", volume(4096, 1096), none, "max_slot_wal_keep_size and max_wal_size keep pg_wal at about 1.2 GiB, and the volume has 4 GiB"},
		{"the slot is lost before", volume(1200, 900), none, "the slot is lost before, in about 4m6s"},
		{"the slot is lost before by idleness", both(noLimit, volume(4096, 1096), idle), none, "the slot is lost before, in about 4m6s"},
		{"the slot is lost before by idleness, and another keeps more", both(noLimit, volume(4096, 1096), idle, forgotten), 3000,
			`slot "forgotten" keeps older WAL than this one: pg_wal has`},
		{"the limit ends one that keeps more, too", both(volume(1200, 900), idle, forgotten), none, "the slot is lost before, in about 4m6s"},
		{"lost, beside one that is forgotten", both(noLimit, volume(4096, 1096), lost, forgotten), 3000, `slot "forgotten" keeps WAL: pg_wal has`},
		{"lost by idleness, beside one that is forgotten", both(noLimit, volume(4096, 1096), lostByIdleness, forgotten), 3000, `slot "forgotten" keeps WAL: pg_wal has`},
		{"lost, beside one whose reader confirms nothing", both(noLimit, volume(1696, 1096), lost, other(stuck, 0, 80)), 600, `slot "stuck" keeps WAL, and its restart_lsn has not moved for 1m20s`},
		{"lost, beside one that is forgotten and that the limit ends", both(volume(4096, 1096), lost, forgotten), none, "max_slot_wal_keep_size and max_wal_size keep pg_wal at"},
		{"lost, and no other slot", both(noLimit, volume(4096, 1096), lost), none, "no full disk in sight: no slot is seen to keep more and more WAL"},
		{"lost by idleness, and no other slot", both(noLimit, volume(4096, 1096), lostByIdleness), none, "no full disk in sight: no slot is seen to keep more and more WAL"},
		{"lost, beside one that is read", both(noLimit, volume(4096, 1096), lost, other(stuck, 0, 5)), none, "no full disk in sight: no slot is seen to keep more and more WAL"},
		{"lost, and the volume is full", both(noLimit, volume(4096, 5000), lost), 0, "it is full: pg_wal has"},
		{"no WAL kept yet, beside one that is forgotten", both(noLimit, volume(4096, 1096), func(o *Observation) { o.Slot.RestartLSN = 0 }, forgotten), 3000, "keeps WAL"},
		{"the archiver archives nothing, beside a limit", both(volume(2296, 1096), readingAt(1), archive(180)), 1200, "12 segments wait for archive_command, the oldest for 3m0s: pg_wal has 1.1 GiB of the volume's 2.2 GiB, grows by 1 MiB/s"},
		{"the archiver may need that long between two tries", both(volume(2296, 1096), readingAt(1), archive(100)), none, "max_slot_wal_keep_size and max_wal_size keep pg_wal at"},
		{"the archiver archives nothing, beside a volume that lasts", both(volume(4096, 1096), readingAt(1), archive(180)), none,
			"not known: 12 segments wait for archive_command, the oldest for 3m0s, and the volume is full in 50m0s if that lasts"},
		{"the archiver archives nothing, and the slot is lost before", both(volume(1200, 900), archive(600)), 300, "12 segments wait for archive_command, the oldest for 10m0s"},
		{"the archiver archives nothing, and the slot is lost", both(noLimit, volume(2296, 1096), lost, archive(600)), 1200, "12 segments wait for archive_command"},
		{"the archiver has just begun to fail, and no session reads from the slot", both(noLimit, volume(4096, 1096), archive(180)), 3000, "no session has read from the slot"},
		{"the archiver archives", both(noLimit, volume(4096, 1096), readingAt(1), archive(0)), none, "the reader keeps up"},
		{"the archiver archives nothing, and nothing is written", both(noLimit, volume(4096, 1096), archive(600), func(o *Observation) { o.Rates.WAL1m, o.Rates.WAL5m = new(0.0), new(0.0) }), none, "no WAL is written"},
		{"more than the limits would keep", volume(4096, 2000), none, "not known: pg_wal has 2 GiB, more than max_slot_wal_keep_size and max_wal_size would keep"},
		{"the limit is larger than the volume", volume(1200, 1100), 100, "pg_wal has 1.1 GiB"},
		{"no size configured", volume(0, 1096), none, "monitor.volume_size is not set"},
		{"pg_wal may not be read", func(o *Observation) { o.Limit.VolumeSize = 4096 * mib }, none, "may not be read"},
		{"not watched for long", both(volume(4096, 1096), func(o *Observation) { o.Rates = Rates{} }), none, "not known yet"},
	} {
		t.Run(w.name, func(t *testing.T) { w.holds(t, func(f Forecast) Estimate { return f.DiskFull }) })
	}
}

func TestForecast_NamesTheArchiver(t *testing.T) {
	o := paused()
	o.Limit.VolumeSize, o.Limit.WALDirectory = 1200*mib, new(int64(900*mib))
	require.False(t, forecast(o).DiskFullByArchiver)
	o.Archive = &Archive{Waiting: 1, Still: 600}
	require.True(t, forecast(o).DiskFullByArchiver)
	require.Contains(t, forecast(o).DiskFull.Assumption, "1 segment waits for archive_command, the oldest for 10m0s")
	o.Limit.VolumeSize = 40 * gib
	require.False(t, forecast(o).DiskFullByArchiver, "no time is known")
}

func TestForecast_CatchUp(t *testing.T) {
	for _, w := range []wanted{
		{"faster than is written", readingAt(3), 36, "72 MiB wait, 3 MiB/s are confirmed and 1 MiB/s written"},
		{"as fast as is written", readingAt(1), none, "not catching up: 1 MiB/s are confirmed and 1 MiB/s written"},
		{"slower", readingAt(0.5), none, "not catching up"},
		{"as fast as is written, and close", both(readingAt(1), func(o *Observation) { o.Slot.LagBytes = new(int64(3 * mib)) }), 0, "written within the last 10 seconds"},
		{"there", both(readingAt(1), func(o *Observation) { o.Slot.LagBytes = new(int64(0)) }), 0, "caught up"},
		{"no session reads", nil, none, "no session reads from the slot"},
		{"lost", func(o *Observation) { o.Slot.WALStatus = "lost" }, none, "lost"},
		{"not watched for long", both(readingAt(1), func(o *Observation) { o.Rates = Rates{} }), none, "not known yet"},
		{"a slot that is being made", both(readingAt(1), func(o *Observation) { o.Slot.LagBytes = nil }), none, "no confirmed position"},
	} {
		t.Run(w.name, func(t *testing.T) { w.holds(t, func(f Forecast) Estimate { return f.CatchUp }) })
	}
}

// Whatever a server says, there is an answer that can be written as JSON and is in order.
func TestForecast_OfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := paused()
		bytes := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-1<<40, 1<<50))
		rate := rapid.Ptr(rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1e10)), true)
		seconds := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1e7))
		at := rapid.Custom(func(t *rapid.T) time.Time {
			return rapid.OneOf(rapid.Just(time.Time{}), rapid.Just(o.Slot.ObservedAt.Add(time.Duration(rapid.Int64().Draw(t, "ago"))))).Draw(t, "at")
		})
		o.Slot.RestartLSN = pglogrepl.LSN(rapid.Uint64().Draw(t, "restart_lsn"))
		o.Slot.CurrentWALLSN = pglogrepl.LSN(rapid.Uint64().Draw(t, "current"))
		o.Slot.SafeWALSize = rapid.Ptr(bytes, true).Draw(t, "safe_wal_size")
		o.Slot.LagBytes = rapid.Ptr(bytes, true).Draw(t, "lag")
		o.Slot.Active = rapid.Bool().Draw(t, "active")
		o.Slot.InactiveSince = at.Draw(t, "inactive_since")
		o.Server = Server{Standby: rapid.Bool().Draw(t, "standby"), StartedAt: at.Draw(t, "started_at")}
		o.Limit = Limit{
			Effective: rapid.Ptr(bytes, true).Draw(t, "limit"), MaxWALSize: bytes.Draw(t, "max_wal_size"), SegmentSize: rapid.SampledFrom([]int64{0, mib, 1024 * mib}).Draw(t, "segment"),
			CheckpointTimeout: Seconds(seconds.Draw(t, "checkpoint_timeout")), CheckpointTarget: rapid.Float64Range(0, 1).Draw(t, "target"),
			SharedBuffers: bytes.Draw(t, "shared_buffers"), IdleTimeout: Seconds(seconds.Draw(t, "idle_timeout")),
			VolumeSize: bytes.Draw(t, "volume"), WALDirectory: rapid.Ptr(bytes, true).Draw(t, "pg_wal"),
		}
		if rapid.Bool().Draw(t, "checkpoint known") {
			o.Limit.Checkpoint = &Checkpoint{
				StartedAt: at.Draw(t, "checkpoint"), RedoLSN: pglogrepl.LSN(rapid.Uint64().Draw(t, "redo")), Took: Seconds(seconds.Draw(t, "took")),
				Pages: rapid.Ptr(bytes, true).Draw(t, "pages"),
			}
		}
		o.Rates = Rates{
			WAL1m: rate.Draw(t, "wal_1m"), WAL5m: rate.Draw(t, "wal_5m"), WAL1h: rate.Draw(t, "wal_1h"),
			Drain5m: rate.Draw(t, "drain_5m"), Pages5m: rate.Draw(t, "pages_5m"),
		}
		o.Distance = Distance{
			ConfirmedStill: Seconds(seconds.Draw(t, "confirmed_still")), RestartStill: Seconds(seconds.Draw(t, "restart_still")),
			LagGrowth: float64(bytes.Draw(t, "lag_growth")), LagGrowing: Seconds(seconds.Draw(t, "lag_growing")),
		}
		f := forecast(o)
		_, err := json.Marshal(f)
		require.NoError(t, err)
		for _, e := range []Estimate{f.Loss, f.DiskFull, f.CatchUp} {
			require.NotEmpty(t, e.Assumption)
			if e.Seconds == nil {
				continue
			}
			require.LessOrEqual(t, 0.0, *e.Earliest, e.Assumption)
			require.LessOrEqual(t, *e.Earliest, *e.Seconds, e.Assumption)
			if e.Latest != nil {
				require.LessOrEqual(t, *e.Seconds, *e.Latest, e.Assumption)
			}
		}
	})
}

func TestForecast_OfNothing(t *testing.T) {
	f := forecast(Observation{})
	require.Nil(t, f.Loss.Seconds)
	require.Nil(t, f.DiskFull.Seconds)
	require.Nil(t, f.CatchUp.Seconds)
}

func TestForecast_TextForPeople(t *testing.T) {
	for bytes, text := range map[float64]string{0: "0 B", 1000: "1000 B", 1.2 * mib: "1.2 MiB", 256 * mib: "256 MiB", 1023.96 * 1024: "1 MiB", 3 << 40: "3 TiB", 5e18: "4440.9 PiB"} {
		require.Equal(t, text, slot.Size(bytes))
	}
	for seconds, text := range map[float64]string{-1: "0s", 0: "0s", 59.6: "1m0s", 200: "3m20s", 3599.4: "59m59s", 4000: "1h6m", 400_000: "4d15h"} {
		require.Equal(t, text, span(seconds))
	}
}
