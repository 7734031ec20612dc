package monitor

import (
	"math"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/slot"
)

// simulated is a server that writes WAL and makes checkpoints as PostgreSQL's source says, in steps of a tenth of a second: the nap of its
// checkpointer. It is written down apart from the forecast, page by page, so that each checks the other.
type simulated struct {
	segment, keep, checkpointSegments uint64
	timeout, target                   float64
	rate, pagesPerByte                float64

	now             float64 // seconds since the server started
	wal             float64
	dirty, changed  float64 // pages: to be written by the next checkpoint; since the server started
	restart         uint64
	lastBegan       float64 // of the checkpointer's clock: the last that began, or was left out
	requested       bool
	running         bool
	began           float64
	redo            uint64
	pages, written  float64
	control         Checkpoint // as in pg_control, with StartedAt as seconds
	controlAt       float64
	changedAtBegin  float64
	changedAtLast   float64
	afterCheckpoint float64 // where the WAL stood when the last one ended
	ends            []float64
	redos           []uint64
	lost            bool
}

const tick = 0.1

func (s *simulated) seg(lsn uint64) uint64 { return lsn / s.segment }

func (s *simulated) step() {
	s.now += tick
	before := s.seg(uint64(s.wal))
	s.wal += s.rate * tick
	s.dirty += s.rate * tick * s.pagesPerByte
	s.changed += s.rate * tick * s.pagesPerByte
	if filled := s.seg(uint64(s.wal)); filled > before && filled-1 >= s.seg(s.redo)+s.checkpointSegments-1 { // XLogCheckpointNeeded
		s.requested = true
	}
	if !s.running && (s.requested || math.Floor(s.now)-s.lastBegan >= s.timeout) {
		s.requested, s.lastBegan = false, math.Floor(s.now)
		if s.wal == s.afterCheckpoint {
			return // left out: nothing was written
		}
		s.running, s.began, s.redo = true, s.now, uint64(s.wal)
		s.pages, s.written, s.dirty = math.Floor(s.dirty), 0, s.dirty-math.Floor(s.dirty)
		s.changedAtBegin = s.changed
		s.redos = append(s.redos, s.redo)
	}
	if !s.running {
		return
	}
	for s.written < s.pages {
		s.written++
		progress := s.written / s.pages * s.target
		wal := (s.wal - float64(s.redo)) / float64(s.segment) / float64(s.checkpointSegments)
		if progress >= wal && progress >= (s.now-s.lastBegan)/s.timeout { // IsCheckpointOnSchedule
			return // and takes a nap
		}
	}
	s.running = false
	s.control = Checkpoint{RedoLSN: pglogrepl.LSN(s.redo), Took: Seconds(s.now - s.began)}
	s.controlAt, s.changedAtLast = math.Floor(s.began), s.changedAtBegin
	s.afterCheckpoint = s.wal
	s.ends = append(s.ends, s.now)
	// KeepLogSeg, InvalidateObsoleteReplicationSlots
	s.lost = s.seg(uint64(s.wal))-s.seg(s.restart) > s.keep && s.seg(s.restart) < s.seg(s.redo)
}

var serverStarted = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (s *simulated) at(seconds float64) time.Time {
	return serverStarted.Add(time.Duration(seconds * float64(time.Second)))
}

// observe is what a monitor knows that watches since the load is steady.
func (s *simulated) observe() Observation {
	current := uint64(s.wal)
	safe := int64((s.seg(s.restart)+s.keep+1)*s.segment) - int64(current)
	c := s.control
	c.StartedAt = s.at(s.controlAt)
	pages := int64(s.changed - s.changedAtLast)
	c.Pages = &pages
	keep := int64(s.keep * s.segment)
	return Observation{
		Slot: slot.Status{
			Slot:          slot.Slot{RestartLSN: pglogrepl.LSN(s.restart), SafeWALSize: &safe, WALStatus: "reserved"},
			CurrentWALLSN: pglogrepl.LSN(current), ObservedAt: s.at(s.now),
		},
		Server: Server{StartedAt: serverStarted},
		Limit: Limit{
			Effective: &keep, MaxWALSize: s.maxWALSize(), SegmentSize: int64(s.segment),
			CheckpointTimeout: Seconds(s.timeout), CheckpointTarget: s.target, Checkpoint: &c,
		},
		Rates:    Rates{WAL1m: &s.rate, WAL5m: &s.rate, Pages5m: new(s.rate * s.pagesPerByte)},
		Distance: Distance{ConfirmedStill: 3600, RestartStill: 3600},
	}
}

// maxWALSize is one that gives the number of segments between checkpoints.
func (s *simulated) maxWALSize() int64 {
	return int64(math.Ceil(float64(s.checkpointSegments)*(1+s.target))) * int64(s.segment)
}

// The forecast agrees with a server that is simulated by the rules of the source, whatever it is set to.
func TestForecast_AgreesWithTheServersRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &simulated{
			segment: rapid.SampledFrom([]uint64{1 * mib, 16 * mib}).Draw(t, "segment"),
			timeout: float64(rapid.IntRange(30, 900).Draw(t, "checkpoint_timeout")),
			target:  rapid.SampledFrom([]float64{0.5, 0.9, 1}).Draw(t, "checkpoint_completion_target"),
			wal:     float64(rapid.Uint64Range(1<<30, 1<<40).Draw(t, "lsn")),
			rate:    math.Exp(rapid.Float64Range(math.Log(300e3), math.Log(50e6)).Draw(t, "rate")),
		}
		s.keep = rapid.Uint64Range(1, 64).Draw(t, "limit")
		s.checkpointSegments = rapid.Uint64Range(1, 200).Draw(t, "segments between checkpoints")
		s.pagesPerByte = rapid.SampledFrom([]float64{0, 1e-7, 1e-6, 1e-5, 1e-4}).Draw(t, "pages per byte")
		s.redo, s.afterCheckpoint = uint64(s.wal), s.wal
		s.control.RedoLSN = pglogrepl.LSN(s.redo) // of the start of the server

		// Nothing is written for a while; then the load runs for a while with a relay that keeps up, which stops.
		load := s.rate
		s.rate = 0
		for range rapid.IntRange(0, 10_000).Draw(t, "steps without load") {
			s.step()
		}
		s.rate = load
		for range rapid.IntRange(300, 10_000).Draw(t, "steps before the relay stops") {
			s.step()
		}
		s.restart, s.lost = uint64(s.wal), false

		type sample struct {
			at float64
			o  Observation
		}
		var samples []sample
		stopped, passed := s.now, 0.0
		for !s.lost {
			if len(samples) == 0 || s.now >= samples[len(samples)-1].at+5 {
				samples = append(samples, sample{s.now, s.observe()})
			}
			s.step()
			if passed == 0 && s.seg(uint64(s.wal))-s.seg(s.restart) > s.keep {
				passed = s.now
			}
		}
		// On the edge nobody can tell: where the limit is passed as a checkpoint ends, or one begins as the segment is filled that the slot needs.
		edge := math.Inf(1)
		for _, end := range s.ends {
			edge = min(edge, math.Abs(end-passed))
		}
		for _, redo := range s.redos {
			edge = min(edge, math.Abs(float64(redo)-float64((s.seg(s.restart)+1)*s.segment))/s.rate)
		}
		for _, p := range samples {
			left := s.now - p.at
			e := forecast(p.o).Loss
			require.NotNil(t, e.Seconds, e.Assumption)
			require.LessOrEqual(t, *e.Earliest, left+1, "%.0f s before the loss: %s", left, e.Assumption)
			require.GreaterOrEqual(t, *e.Latest, left-1, "%.0f s before the loss: %s", left, e.Assumption)
			if edge > 5 && left >= 0.3*(s.now-stopped) {
				require.InDelta(t, left, *e.Seconds, 0.2*left+1, "%.0f s before the loss of %.0f: %s", left, s.now-stopped, e.Assumption)
			}
		}
	})
}
