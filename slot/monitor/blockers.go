package monitor

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	// A younger transaction is no blocker.
	youngestBlocker = time.Second
	// Feedback advances with the queries of a standby. It is stuck if it has not advanced for
	// stuckFeedback, while stuckFeedbackAge transactions began.
	stuckFeedback    = time.Minute
	stuckFeedbackAge = 1000 // transactions
)

// firstSeen has the time at which something was first observed, where the server reports no time.
// A key is removed after a round in which it was not requested.
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

// blockers returns what holds restart_lsn and catalog_xmin back, or VACUUM alone, the oldest
// first. Neither can pass the start of the oldest running transaction of any database.
func (a timedAnswer) blockers(seen *firstSeen) []Blocker {
	var found []Blocker
	oldest := int64(-1)
	for i, b := range slices.Concat(a.Transactions, a.Prepared) {
		b.Kind = BlockerTransaction
		if i >= len(a.Transactions) {
			b.Kind = BlockerPrepared
		}
		since := seen.since(fmt.Sprint(b.Kind, b.XID), a.Now)
		if b.Since.IsZero() {
			b.Since = since
		}
		oldest = max(oldest, b.Age)
		b.Blocker.XID, b.Blocker.Age = b.XID, b.Age
		found = append(found, b.Blocker)
	}
	standby := func(b Blocker, key string, age int64) {
		b.Kind, b.Age, b.Since = BlockerStandby, age, seen.since("standby "+key, a.Now)
		if age >= stuckFeedbackAge && a.Now.Sub(b.Since) >= stuckFeedback {
			found = append(found, b)
		}
	}
	for _, s := range a.Slots {
		if s.Plugin != "" {
			continue
		}
		xid, age := s.feedback()
		standby(Blocker{PID: s.ActivePID, Application: s.Name}, s.Name+" "+xid, age)
	}
	for _, b := range a.Feedback {
		standby(Blocker{PID: b.PID, Application: b.Application, User: b.User},
			fmt.Sprint(b.PID, b.XID), b.Age)
	}
	slices.SortStableFunc(found, func(x, y Blocker) int { return int(y.Age - x.Age) })
	var blockers []Blocker
	for _, b := range found {
		if a.Now.Sub(b.Since) < youngestBlocker {
			continue
		}
		b.Restart = b.Kind != BlockerStandby && b.Age == oldest
		blockers = append(blockers, b)
	}
	return blockers
}

// feedback returns the older of the slot's xmin and catalog_xmin, with its age; zero: none.
func (s slotAnswer) feedback() (xid string, age int64) {
	if s.XminAge != nil {
		xid, age = s.Xmin, *s.XminAge
	}
	if s.CatalogXminAge != nil && *s.CatalogXminAge > age {
		xid, age = strconv.FormatUint(uint64(s.CatalogXmin), 10), *s.CatalogXminAge
	}
	return xid, age
}
