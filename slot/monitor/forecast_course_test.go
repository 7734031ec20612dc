package monitor

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

const gib = 1 << 30

// course is a server, a slot and a reader over time, looked at each 5 s as the monitor does. Positions are in bytes, times in seconds.
type course struct {
	rate   func(t float64) float64            // of WAL
	pace   func(t, rate float64) float64      // that the reader can confirm
	reads  func(t float64) bool               // somebody reads; nil: always
	holder func(t float64) (Blocker, float64) // the oldest open transaction and when it began; nil: none
	limit  float64                            // max_slot_wal_keep_size; zero: none
}

type watched struct {
	course
	now, wal, confirmed, restart float64
	begins                       map[int]float64 // where the WAL ended, by second
	logged                       [][2]float64    // where running transactions were logged, and where restart_lsn goes when that is confirmed
	readings                     readings
}

// follow runs it for so many seconds and calls see with each forecast.
func (c course) follow(seconds int, see func(t float64, o Observation)) {
	const start = 1 << 34
	r := &watched{course: c, wal: start, confirmed: start, restart: start, begins: map[int]float64{}}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for t := range seconds {
		r.now = float64(t)
		r.begins[t] = r.wal
		rate := c.rate(r.now)
		r.wal += rate
		active := c.reads == nil || c.reads(r.now)
		if active {
			r.confirmed = min(r.wal, r.confirmed+c.pace(r.now, rate))
		}
		if t%15 == 0 { // LOG_SNAPSHOT_INTERVAL_MS
			r.logged = append(r.logged, [2]float64{r.wal, r.oldest()})
		}
		for ; len(r.logged) > 0 && r.confirmed >= r.logged[0][0]; r.logged = r.logged[1:] {
			r.restart = max(r.restart, r.logged[0][1])
		}
		if t%5 == 0 {
			moment := at.Add(time.Duration(t) * time.Second)
			lsn := func(f float64) pglogrepl.LSN { return pglogrepl.LSN(f) }
			r.readings = r.readings.add(reading{at: moment, wal: lsn(r.wal), confirmed: lsn(r.confirmed), restart: lsn(r.restart), pages: new(int64(0))})
			see(r.now, r.observe(moment, active))
		}
	}
}

func (r *watched) oldest() float64 {
	if r.holder != nil {
		if _, began := r.holder(r.now); began >= 0 {
			return r.begins[int(began)]
		}
	}
	return r.wal
}

func (r *watched) observe(at time.Time, active bool) Observation {
	o := Observation{
		Slot: slot.Status{
			Slot:          slot.Slot{RestartLSN: pglogrepl.LSN(r.restart), ConfirmedFlushLSN: pglogrepl.LSN(r.confirmed), WALStatus: "reserved", Active: active},
			CurrentWALLSN: pglogrepl.LSN(r.wal), LagBytes: new(int64(r.wal - r.confirmed)), ObservedAt: at,
		},
		Limit: Limit{
			MaxWALSize: gib, SegmentSize: 16 * mib, CheckpointTimeout: 300, CheckpointTarget: 0.9, SharedBuffers: 128 * mib,
			Checkpoint: &Checkpoint{StartedAt: at.Add(-time.Minute), RedoLSN: pglogrepl.LSN(r.wal), Took: 5},
		},
		Rates: r.readings.rates(), Distance: r.readings.distance(),
	}
	if r.limit > 0 {
		o.Limit.Effective, o.Slot.SafeWALSize = new(int64(r.limit)), new(int64(r.limit-(r.wal-r.restart)))
	}
	if r.holder != nil {
		if h, began := r.holder(r.now); began >= 0 {
			h.Restart, h.Since = true, at.Add(-time.Duration((r.now-began)*float64(time.Second)))
			o.Blockers = []Blocker{h}
		}
	}
	o.Forecast = forecast(o)
	return o
}

func steadily(mibPerSecond float64) func(float64) float64 {
	return func(float64) float64 { return mibPerSecond * mib }
}

func keepingUp(_, rate float64) float64 { return rate + 20*mib }

// A reader who keeps up is in no danger, however much is written and however it comes and goes.
func TestForecast_IsSilentWhileTheReaderKeepsUp(t *testing.T) {
	// One transaction of 20 s after the other, each in the middle of the one before.
	short := func(now float64) (Blocker, float64) {
		return Blocker{Kind: BlockerTransaction, State: "idle in transaction"}, max(0, math.Floor(now/10)*10-10)
	}
	copying := func(now float64) (Blocker, float64) {
		if now < 600 || now >= 683 {
			return Blocker{}, -1
		}
		return Blocker{Kind: BlockerTransaction, State: "active"}, 600
	}
	for name, c := range map[string]course{
		"steady, a little":     {rate: steadily(0.7)},
		"steady":               {rate: steadily(4)},
		"steady, much":         {rate: steadily(20)},
		"ramp":                 {rate: func(t float64) float64 { return t / 1800 * 10 * mib }},
		"steps":                {rate: func(t float64) float64 { return float64(1+int(t/200)%4*3) * mib }},
		"bursts":               {rate: burst, pace: func(_, _ float64) float64 { return 6 * mib }},
		"nothing":              {rate: steadily(0)},
		"begins and ends":      {rate: func(t float64) float64 { return 4 * mib * float64(int(t/300)%2) }},
		"transactions of 20 s": {rate: steadily(4), holder: short},
		"COPY of 5 GB":         {rate: whileCopying(60), holder: copying},
		"COPY of 5 GB, decoded late": {rate: whileCopying(60), holder: copying, pace: func(t, rate float64) float64 {
			if t > 600 && t < 740 {
				return 30 * mib
			}
			return keepingUp(t, rate)
		}},
		"stalls of 25 s": {rate: steadily(4), pace: func(t, rate float64) float64 {
			if int(t)%300 < 25 {
				return 0
			}
			return keepingUp(t, rate)
		}},
		"the reader is away for 5 s": {rate: steadily(4), reads: func(t float64) bool { return int(t)%300 >= 5 }},
	} {
		for _, limit := range []float64{512 * mib, 4 * gib, 50 * gib, 0} {
			if c.pace == nil {
				c.pace = keepingUp
			}
			c.limit = limit
			t.Run(fmt.Sprintf("%s, %s", name, slot.Size(limit)), func(t *testing.T) {
				inDanger := false // a step of restart_lsn, or the transaction, is longer than the limit
				c.follow(1800, func(_ float64, o Observation) {
					inDanger = inDanger || o.Slot.SafeWALSize != nil && *o.Slot.SafeWALSize <= 0
				})
				c.follow(1800, func(at float64, o Observation) {
					if inDanger {
						return
					}
					require.Nil(t, o.Forecast.Loss.Seconds, "after %.0f s: %s", at, o.Forecast.Loss.Assumption)
				})
			})
		}
	}
}

func burst(t float64) float64 {
	if int(t)%60 < 10 {
		return 20 * mib
	}
	return 0.1 * mib
}

func whileCopying(mibPerSecond float64) func(float64) float64 {
	return func(t float64) float64 {
		if t >= 600 && t < 683 {
			return mibPerSecond * mib
		}
		return 0.5 * mib
	}
}

// A danger is announced in time, with a forecast that comes true.
func TestForecast_AnnouncesADanger(t *testing.T) {
	const begins = 600.0
	for name, c := range map[string]struct {
		course
		within float64
	}{
		"no session reads": {course{reads: func(t float64) bool { return t < begins }}, 60},
		"the broker takes nothing": {course{pace: func(t, rate float64) float64 {
			if t >= begins {
				return 0
			}
			return keepingUp(t, rate)
		}}, 60},
		"a transaction":          {course{holder: since(begins, Blocker{Kind: BlockerTransaction, State: "idle in transaction"})}, 60},
		"a prepared transaction": {course{holder: since(begins, Blocker{Kind: BlockerPrepared})}, 60},
		"a transaction at work":  {course{holder: since(begins, Blocker{Kind: BlockerTransaction, State: "active"})}, 60},
		"a reader at half the pace": {course{pace: func(t, rate float64) float64 {
			if t >= begins {
				return rate / 2
			}
			return keepingUp(t, rate)
		}}, 120},
	} {
		for _, rate := range []float64{0.7, 4, 20} {
			t.Run(fmt.Sprintf("%s, %.1f MiB/s", name, rate), func(t *testing.T) {
				c := c
				c.rate, c.limit = steadily(rate), 256*mib+60*rate*mib // so that the steps of restart_lsn are within it
				if c.pace == nil {
					c.pace = keepingUp
				}
				announced, passed := 0.0, 0.0
				type sample struct{ at, in float64 }
				var samples []sample
				c.follow(3600, func(at float64, o Observation) {
					if *o.Slot.SafeWALSize <= 0 && passed == 0 {
						passed = at
					}
					if passed != 0 || at < begins {
						return
					}
					if e := o.Forecast.Loss; e.Seconds != nil {
						if announced == 0 {
							announced = at
						}
						samples = append(samples, sample{at, *e.Earliest})
					}
				})
				require.NotZero(t, passed)
				require.NotZero(t, announced)
				require.LessOrEqual(t, announced, begins+c.within)
				for _, s := range samples {
					left := passed - s.at
					// A step of restart_lsn, 15 s of WAL, is 30 s of a lag that grows at half of that.
					require.InDelta(t, left, s.in, 0.2*left+30, "%.0f s after it began", s.at-begins)
				}
			})
		}
	}
}

func since(begins float64, h Blocker) func(float64) (Blocker, float64) {
	return func(t float64) (Blocker, float64) {
		if t < begins {
			return h, -1
		}
		return h, begins
	}
}
