package monitor

import (
	"cmp"
	"fmt"
	"math"

	"github.com/postrider/postrider/slot"
)

// forecastDiskFull estimates when pg_wal fills its volume, if nothing else grows there: the
// soonest of what this slot, the others and the archiver keep. byArchiver: it is the archiver's.
func forecastDiskFull(o Observation, loss Estimate) (e Estimate, byArchiver bool) {
	wal, known := walRate(o.Rates)
	switch {
	case o.Limit.VolumeSize <= 0:
		return never("not known: monitor.volume_size is not set, and PostgreSQL does not report it"),
			false
	case o.Limit.WALDirectory == nil:
		return never("not known: the size of pg_wal may not be read"), false
	case !known:
		return never(unwatched), false
	}
	e = diskFullByOwn(o, wal, loss)
	if p, found := olderSlot(o, wal.best); found {
		ends := never("")
		if o.keepsWAL() { // the limit invalidates both; idleness may invalidate only ours
			ends = lossByLimit(o)
		}
		e = sooner(e, diskFullBySlot(o, wal, p, true, ends))
	}
	if p, found := unarchived(o, wal.best); found {
		full := diskFullBy(o, wal, p, true)
		e = sooner(e, full)
		byArchiver = full.Seconds != nil && e.Assumption == full.Assumption
	}
	return e, byArchiver
}

// diskFullByOwn estimates when the WAL that our slot keeps fills the volume.
func diskFullByOwn(o Observation, wal written, loss Estimate) Estimate {
	if o.keepsWAL() {
		p, pressed := findPressure(o, wal.best)
		return diskFullBySlot(o, wal, p, pressed, loss)
	}
	if *o.Limit.WALDirectory >= o.Limit.VolumeSize {
		return diskFullBy(o, wal, pressure{rate: wal.best}, true)
	}
	return never("no full disk in sight: no slot is seen to keep more and more WAL")
}

// keepsWAL reports whether our slot keeps WAL. PostgreSQL 18 leaves restart_lsn with a slot that
// was lost because it was idle for too long.
func (o Observation) keepsWAL() bool { return !o.Slot.Lost() && o.Slot.RestartLSN != 0 }

// sooner returns the sooner of two estimates; the second if neither has a time, or the same.
func sooner(a, b Estimate) Estimate {
	if a.Seconds != nil && (b.Seconds == nil || *a.Seconds < *b.Seconds) {
		return a
	}
	return b
}

// diskFullBySlot estimates when the WAL that a slot keeps fills the volume. loss is when that slot
// is lost.
func diskFullBySlot(o Observation, wal written, p pressure, pressed bool, loss Estimate) Estimate {
	volume, used := float64(o.Limit.VolumeSize), float64(*o.Limit.WALDirectory)
	if o.Limit.Effective != nil {
		most := float64(*o.Limit.Effective + o.Limit.MaxWALSize)
		switch {
		case most >= volume || used >= volume:
		case used > most:
			return never("not known: pg_wal has %s, more than max_slot_wal_keep_size and max_wal_size "+
				"would keep", slot.Size(used))
		default:
			return never("no full disk in sight: max_slot_wal_keep_size and max_wal_size keep pg_wal at "+
				"about %s, and the volume has %s", slot.Size(most), slot.Size(volume))
		}
	}
	e := diskFullBy(o, wal, p, pressed)
	if e.Seconds != nil && loss.Seconds != nil && *loss.Seconds < *e.Seconds {
		return never("no full disk in sight: the slot is lost before, in about %s, and its WAL with it",
			span(*loss.Seconds))
	}
	return e
}

// diskFullBy estimates when the WAL that is kept for the reason p fills the volume.
func diskFullBy(o Observation, wal written, p pressure, pressed bool) Estimate {
	volume, used := float64(o.Limit.VolumeSize), float64(*o.Limit.WALDirectory)
	free := max(0, volume-used)
	seconds := passes(free, p.rate)
	if free > 0 {
		if why := o.noForecast(p, pressed, wal, seconds, "full disk", "the volume is full"); why != "" {
			return never("%s", why)
		}
	}
	faster, slower := wal.spread()
	return estimate(seconds, min(seconds, passes(free, p.rate*faster)), passes(free, p.rate*slower),
		"%s: pg_wal has %s of the volume's %s, grows by %s/s, %s, and nothing else grows on it",
		cmp.Or(p.text, "it is full"), slot.Size(used), slot.Size(volume), slot.Size(p.rate), wal.window)
}

// olderSlot returns the pressure of another slot that keeps older WAL than ours, or any if ours
// keeps none: of the one with the oldest that no session reads, else of the one whose reader has
// confirmed nothing for the longest time. A standby that reconnects, and a slot in a step of
// restart_lsn, are none.
func olderSlot(o Observation, wal float64) (worst pressure, found bool) {
	ours, keeps := o.Slot.RestartLSN, "slot %q keeps older WAL than this one"
	if !o.keepsWAL() {
		ours, keeps = math.MaxUint64, "slot %q keeps WAL"
	}
	oldest := ours // of those that no session reads
	for _, s := range o.Others {
		if s.Lost() || s.Synced || s.RestartLSN == 0 || s.RestartLSN >= ours {
			continue
		}
		text := fmt.Sprintf(keeps, s.Name)
		still := float64(o.Distance.Others[s.Name])
		away := still
		if !s.InactiveSince.IsZero() {
			away = max(away, serverNow(o).Sub(s.InactiveSince).Seconds())
		}
		switch {
		case !s.Active && away >= awayFor && s.RestartLSN < oldest:
			oldest, found = s.RestartLSN, true
			worst = pressure{wal, away, true, text}
		case s.Active && still >= RestartStep && !worst.lasting && still > worst.lasted:
			text += ", and its restart_lsn has not moved for " + span(still)
			worst, found = pressure{wal, still, false, text}, true
		}
	}
	return worst, found
}
