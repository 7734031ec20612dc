package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// runningLogged is the interval in which the background writer logs the running transactions.
// restart_lsn advances only then, so a younger transaction does not block it.
const runningLogged = 15 * time.Second

// findTransactions is SQL that shows transactions that may block restart_lsn.
const findTransactions = "SELECT pid, xact_start, usename, application_name FROM " +
	"pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;"

// blockedMore reports whether more WAL is kept before the confirmed position than after it.
func (f *facts) blockedMore() bool {
	lag := orZero(f.slot.LagBytes)
	return f.slot.LagBytes != nil && orZero(f.slot.RetainedBytes)-lag > lag
}

// blocker returns the oldest transaction that blocks restart_lsn, if it is old enough to block it.
func (f *facts) blocker() (monitor.Blocker, bool) {
	for _, h := range f.Observation.Blockers {
		if h.Restart && f.age(h) > min(runningLogged, f.Config.HeldWarning) {
			return h, true
		}
	}
	return monitor.Blocker{}, false
}

func (f *facts) age(h monitor.Blocker) time.Duration {
	if h.Since.IsZero() {
		return 0
	}
	return f.serverTime.Sub(h.Since)
}

// blocking returns the cause for a blocking transaction. Names and gids are those of users: they
// lose their control characters.
func (f *facts) blocking(h monitor.Blocker) cause {
	age, c := Duration(f.age(h)), cause{since: h.Since}
	switch {
	case h.Kind == monitor.BlockerPrepared:
		gid := slot.Printable(h.GID)
		c.name, c.fix = "prepared transaction "+gid, slot.EndPrepared(h.GID, h.Database)
		c.because = fmt.Sprintf("prepared transaction %q%s has waited for COMMIT PREPARED for %s", gid,
			details("", h), age)
	case h.PID == 0:
		c.name, c.fix = fmt.Sprintf("transaction %d", h.XID), findTransactions
		c.because = fmt.Sprintf("%s%s has been open for %s", c.name, details("", h), age)
	default:
		c.name = fmt.Sprintf("transaction of pid %d", h.PID)
		c.because = fmt.Sprintf("the %s%s has been open for %s", c.name, details(h.Application, h), age)
		if h.Application != "" {
			c.name += " (" + slot.Printable(h.Application) + ")"
		}
		c.fix = endSession(h) + " -- or wait for its end"
		switch {
		case !h.Works():
		case h.State == "":
			c.fix = atWork(h, "query, state", "it may be")
		default:
			c.fix = atWork(h, "query", "it is")
		}
	}
	return c
}

// atWork returns SQL that shows what a transaction does, for one that must not simply be ended.
func atWork(h monitor.Blocker, columns, itIs string) string {
	return fmt.Sprintf("SELECT xact_start, %s FROM pg_stat_activity WHERE pid = %d; "+
		"-- %s at work; this undoes all of it:\n-- %s", columns, h.PID, itIs, endSession(h))
}

// endSession returns SQL that ends this transaction, and none that its session begins after it.
func endSession(h monitor.Blocker) string {
	if h.XID == 0 {
		return fmt.Sprintf("SELECT pg_terminate_backend(%d);", h.PID)
	}
	return slot.EndTransaction(h.PID, strconv.FormatUint(h.XID, 10))
}

// details returns the known attributes of a blocking transaction in parentheses.
func details(application string, h monitor.Blocker) string {
	var parts []string
	for _, p := range []struct{ label, value string }{
		{"", application}, {"user ", h.User}, {"database ", h.Database}, {"", h.State},
	} {
		if p.value != "" {
			parts = append(parts, p.label+slot.Printable(p.value))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
