package slot

import (
	"slices"
	"strconv"
	"time"
)

const (
	// A transaction that is younger holds nobody up.
	youngestHolder = time.Second
	// Feedback moves with each query of a standby. One that has not moved for this long, while this many transactions began, is stuck.
	stuckFeedback    = time.Minute
	stuckFeedbackAge = 1000 // transactions
)

// firstSeen remembers since when something is there, for what the server does not date or does not show. Keys name it; what is not
// looked for in a round is forgotten.
type firstSeen struct {
	before, now map[string]time.Time
}

func (f *firstSeen) round() { f.before, f.now = f.now, map[string]time.Time{} }

func (f *firstSeen) since(key string, now time.Time) time.Time {
	if f.now == nil {
		f.now = map[string]time.Time{}
	}
	at, known := f.before[key]
	if !known {
		at = now
	}
	f.now[key] = at
	return at
}

// holders are those who keep restart_lsn or catalog_xmin back, the oldest first. restart_lsn cannot pass the beginning of the oldest transaction
// that runs, in whichever database.
func (a asked) holders(seen *firstSeen) []Holder {
	type aged struct {
		Holder
		age int64
	}
	var found []aged
	oldest := int64(-1)
	add := func(kind string, h heldAnswer) {
		since := seen.since(kind+" "+h.XID, a.after)
		if h.Since != nil {
			since = *h.Since
		}
		oldest = max(oldest, h.Age)
		xid, _ := strconv.ParseUint(h.XID, 10, 64) // the server wrote it
		found = append(found, aged{Holder{
			Kind: kind, PID: h.PID, Application: h.Application, User: h.User, Database: h.Database, State: h.State, GID: h.GID, XID: xid, Since: since,
		}, h.Age})
	}
	for _, h := range a.Transactions {
		add(HolderTransaction, h)
	}
	for _, h := range a.Prepared {
		add(HolderPrepared, h)
	}
	for _, s := range a.Slots {
		if s.Plugin != "" || s.XminAge == nil {
			continue
		}
		since := seen.since("standby "+s.Name+" "+string(s.Xmin), a.after)
		if *s.XminAge >= stuckFeedbackAge && a.after.Sub(since) >= stuckFeedback {
			found = append(found, aged{Holder{Kind: HolderStandby, PID: s.ActivePID, Application: s.Name, Since: since}, *s.XminAge})
		}
	}
	slices.SortStableFunc(found, func(x, y aged) int { return int(y.age - x.age) })
	var holders []Holder
	for _, h := range found {
		if a.Now.Sub(h.Since) < youngestHolder && a.after.Sub(h.Since) < youngestHolder {
			continue
		}
		h.Restart = h.Kind != HolderStandby && h.age == oldest
		holders = append(holders, h.Holder)
	}
	return holders
}
