package trace

import (
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/sink"
)

// fillCommit has the best of what is known of the commit: records and dead letters have that of
// the insert, the row that of its last writer.
func (s *search) fillCommit(e *event) {
	c := &e.Commit
	for i := range e.Records {
		r := &e.Records[i]
		if c.LSN == "" && r.LSN != "" && (s.Topic != "" || s.ownPosition(r.source)) {
			c.LSN, c.Index = r.LSN, r.Index
		}
		if c.Time.IsZero() && !r.commitTime.IsZero() {
			c.Time, c.TimeBy = r.commitTime, "header "+sink.HeaderSource
		}
	}
	if l := e.last(); l != nil && c.LSN == "" {
		if at := strings.LastIndexByte(l.position, '/'); at > 0 && s.ownPosition(l.source) {
			c.LSN = l.position[:at]
			if n, err := strconv.ParseUint(l.position[at+1:], 10, 32); err == nil {
				c.Index = new(uint32(n))
			}
		}
		if c.Time.IsZero() && !l.commitTime.IsZero() {
			c.Time, c.TimeBy = l.commitTime.UTC(), "header "+deadletter.HeaderCommitTime
		}
	}
	if p := e.acknowledged; p != nil && c.LSN == "" {
		c.LSN = p.LSN
		c.Time, c.TimeBy = p.CommitTime.UTC(), "the relay"
	}
	switch {
	case !c.Time.IsZero():
	case s.timedByCommit(e) && !e.committed.Truncate(time.Millisecond).Equal(e.Records[0].Timestamp):
		c.Time, c.TimeBy = e.Records[0].Timestamp, "timestamp of the record"
		if s.cfg.Snapshot.On() {
			c.TimeBy += ": of the commit, or of the snapshot"
		}
	case !e.committed.IsZero():
		c.Time, c.TimeBy = e.committed, "track_commit_timestamp"
	}
	if c.LSN == "" && e.Row != nil {
		c.AtMost = s.end.String()
	}
}

// timedByCommit reports whether the first record has the time of the commit, and not that of a
// column or of the broker.
func (s *search) timedByCommit(e *event) bool {
	switch {
	case len(e.Records) == 0, e.Records[0].TimestampType != "CreateTime", e.Records[0].Redriven != "":
		return false
	case e.table != nil:
		return e.table.rule.FieldTimestamp == ""
	}
	for i := range s.cfg.Router {
		if s.cfg.Router[i].FieldTimestamp != "" {
			return false
		}
	}
	return true
}

// fillLegs has the steps of an event whose times are known, in their order.
func (e *event) fillLegs() {
	add := func(name string, at time.Time, by string) {
		if at.IsZero() {
			return
		}
		l := Leg{Name: name, At: at.UTC(), By: by}
		if n := len(e.Legs); n > 0 {
			before := e.Legs[n-1].At
			if at.Equal(at.Truncate(time.Millisecond)) { // as records have it
				before = before.Truncate(time.Millisecond)
			}
			l.Seconds = new(at.Sub(before).Seconds())
		}
		e.Legs = append(e.Legs, l)
	}
	if e.Row != nil && e.table.time >= 0 {
		c := e.table.rel.Columns[e.table.time]
		by := "column " + c.Name
		if c.TypeOID != pgtype.TimestamptzOID {
			by += ", which has no time zone"
		}
		add("inserted", e.inserted, by)
	}
	add("committed", e.Commit.Time, e.Commit.TimeBy)
	if l := e.last(); l != nil {
		add("dead letter", l.At, "the relay")
	}
	if len(e.Records) > 0 && e.Records[0].TimestampType == "LogAppendTime" {
		add("appended", e.Records[0].Timestamp, "the broker")
	}
	if e.acknowledged != nil {
		add("acknowledged", e.acknowledged.At, "the relay")
	}
}

// position is the commit LSN as a number; zero: not known.
func (c *Commit) position() (lsn pglogrepl.LSN) {
	lsn, _ = pglogrepl.ParseLSN(c.LSN)
	return lsn
}
