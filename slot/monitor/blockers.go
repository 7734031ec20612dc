package monitor

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	// A transaction that is younger delays no relay.
	youngestBlocker = time.Second
	// Feedback moves with each query of a standby. One that has not moved for this long, while this
	// many transactions began, is stuck.
	stuckFeedback    = time.Minute
	stuckFeedbackAge = 1000 // transactions
)

// firstSeen has the time since when something is there, for what the server does not date or does
// not show. A key that is not looked for in a round is removed.
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

// blockers are those that keep restart_lsn or catalog_xmin back, the oldest first. restart_lsn
// cannot pass the beginning of the oldest transaction that runs, in whichever database.
func (a asked) blockers(seen *firstSeen) []Blocker {
	type aged struct {
		Blocker
		age int64
	}
	var found []aged
	oldest := int64(-1)
	for i, h := range slices.Concat(a.Transactions, a.Prepared) {
		h.Kind = BlockerTransaction
		if i >= len(a.Transactions) {
			h.Kind = BlockerPrepared
		}
		since := seen.since(fmt.Sprint(h.Kind, h.XID), a.Now)
		if h.Since.IsZero() {
			h.Since = since
		}
		oldest = max(oldest, h.Age)
		h.Blocker.XID = h.XID
		found = append(found, aged{h.Blocker, h.Age})
	}
	standby := func(h Blocker, key string, age int64) {
		h.Kind, h.Since = BlockerStandby, seen.since("standby "+key, a.Now)
		if age >= stuckFeedbackAge && a.Now.Sub(h.Since) >= stuckFeedback {
			found = append(found, aged{h, age})
		}
	}
	for _, s := range a.Slots {
		if s.Plugin != "" {
			continue
		}
		xid, age := s.feedback()
		standby(Blocker{PID: s.ActivePID, Application: s.Name}, s.Name+" "+xid, age)
	}
	for _, h := range a.Feedback {
		standby(Blocker{PID: h.PID, Application: h.Application, User: h.User},
			fmt.Sprint(h.PID, h.XID), h.Age)
	}
	slices.SortStableFunc(found, func(x, y aged) int { return int(y.age - x.age) })
	var blockers []Blocker
	for _, h := range found {
		if a.Now.Sub(h.Since) < youngestBlocker {
			continue
		}
		h.Restart = h.Kind != BlockerStandby && h.age == oldest
		blockers = append(blockers, h.Blocker)
	}
	return blockers
}

// feedback is the older of the two xids that a standby retains; an age of zero: none.
func (s slotAnswer) feedback() (xid string, age int64) {
	if s.XminAge != nil {
		xid, age = s.Xmin, *s.XminAge
	}
	if s.CatalogXminAge != nil && *s.CatalogXminAge > age {
		xid, age = strconv.FormatUint(uint64(s.CatalogXmin), 10), *s.CatalogXminAge
	}
	return xid, age
}
