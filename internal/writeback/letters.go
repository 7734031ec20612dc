package writeback

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/deadletter"
)

// settleTime is for how long the row of a dead letter may become visible after the dead letter was
// written: a commit that waits for a synchronous standby is in the stream, and in no snapshot yet.
const settleTime = 10 * time.Minute

// rowLetters are the dead letters of the rows of one table.
type rowLetters struct {
	held     []string          // ids of rows that may not have been published; not nil
	failed   map[string]string // errors of open and discarded ones, by the id of the row
	redriven map[string]string // by the id of the row; the errors are empty
	settled  bool              // no dead letter is younger than settleTime
	nameless int               // open ones without the id of their row
	signs    []string          // what was applied once these are written
}

// lettersOf selects the dead letters of a slot that are of the relations of one table, or of none
// of the relay's relations by their names of now: a table that was renamed since keeps its
// coverage. The rows of these are held in every table, and nothing is written to them. applied has
// the signs of what was written already.
func lettersOf(entries []*deadletter.Entry, system, slot string, relations []string,
	now map[string]bool, applied map[string]bool, at time.Time) rowLetters {
	l := rowLetters{held: []string{}, failed: map[string]string{}, redriven: map[string]string{},
		settled: true}
	elsewhere := func(e *deadletter.Entry) bool {
		// a logical message is in no table
		return !now[e.Relation] && !strings.HasPrefix(e.Relation, "message:")
	}
	ofSlot := func(e *deadletter.Entry) bool {
		s, name, ok := deadletter.ParseSource([]byte(e.Source))
		return ok && s == system && name == slot &&
			(slices.Contains(relations, e.Relation) || elsewhere(e))
	}
	// The open ones last: of several dead letters of a row an open one counts.
	var ordered []*deadletter.Entry
	for _, open := range []bool{false, true} {
		for _, e := range entries {
			if e.Open() == open && ofSlot(e) {
				ordered = append(ordered, e)
			}
		}
	}
	last := map[string]*deadletter.Entry{}
	for _, e := range ordered {
		switch {
		case e.EventID != "":
			last[e.EventID] = e
		case e.Open():
			l.nameless++
		}
	}
	for id, e := range last {
		if e.Action != deadletter.Redriven {
			l.held = append(l.held, id)
		}
		sign := e.ID.String() + e.Action
		if applied[sign] || elsewhere(e) {
			continue
		}
		if at.Sub(e.At) > settleTime {
			l.signs = append(l.signs, sign)
		} else {
			l.settled = false
		}
		if e.Action == deadletter.Redriven {
			l.redriven[id] = ""
		} else {
			l.failed[id] = describeLetter(e)
		}
	}
	return l
}

// describeLetter is the last_error of the row of a dead letter.
func describeLetter(e *deadletter.Entry) string {
	var parts []string
	for _, part := range []string{string(e.Cause), e.Reason, e.Error} {
		if part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	text := fmt.Sprintf("dead letter %s: %s", e.ID, strings.Join(parts, ": "))
	if e.Action == deadletter.Discarded {
		text = fmt.Sprintf("discarded by %s at %s: %s", e.ResolvedBy,
			e.ResolvedAt.UTC().Format(time.RFC3339), text)
	}
	return strings.ReplaceAll(text, "\x00", "") // which no text of PostgreSQL has
}
