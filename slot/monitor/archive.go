package monitor

import (
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
)

// archiverTries is how long the oldest segment may wait, in seconds. The archiver tries a segment
// three times, a second apart, and again after a minute: two rounds may fail, and a slow command
// has its time.
const archiverTries = 180

// Archive is the WAL that waits for archive_command or archive_library. No limit bounds it:
// neither max_slot_wal_keep_size nor max_wal_size.
type Archive struct {
	Waiting int64 `json:"waiting"` // segments
	// LSN is the start of the oldest segment that waits; the end of the WAL if none does.
	LSN pglogrepl.LSN `json:"-"`
	// Still is how long LSN has not moved while WAL was written.
	Still Seconds `json:"still_seconds"`
}

// archiveAnswer is what archiveSQL returns.
type archiveAnswer struct {
	Waiting int64  `json:"waiting"`
	Oldest  string `json:"oldest"` // of the name of the segment, without its timeline
}

// archiveSQL is SQL for the segments that wait for the archiver; null: the server archives none.
// pg_stat_archiver does not have them: without an archive_command it counts no failure.
const archiveSQL = `(SELECT CASE WHEN pg_catalog.current_setting('archive_mode') = 'always'
	OR pg_catalog.current_setting('archive_mode') = 'on' AND NOT pg_catalog.pg_is_in_recovery()
	THEN pg_catalog.jsonb_build_object('waiting', pg_catalog.count(*),
		'oldest', pg_catalog.min(pg_catalog.substr(a.name, 9, 16))) END
	FROM pg_catalog.pg_ls_archive_statusdir() a WHERE a.name ~ '^[0-9A-F]{24}\.ready$')`

// archive returns what waits for the archiver; nil: nothing is archived, or it is not known.
func (a timedAnswer) archive() *Archive {
	if a.Archive == nil {
		return nil
	}
	w := &Archive{Waiting: a.Archive.Waiting, LSN: pglogrepl.LSN(a.Current)}
	if lsn, ok := segmentStart(a.Archive.Oldest, a.Limit.SegmentSize); ok {
		w.LSN = lsn
	}
	return w
}

// segmentStart returns where a segment begins, by the 16 digits of its name behind the timeline.
func segmentStart(digits string, size int64) (pglogrepl.LSN, bool) {
	if len(digits) != 16 {
		return 0, false
	}
	high, err := strconv.ParseUint(digits[:8], 16, 32)
	if err != nil {
		return 0, false
	}
	segment, err := strconv.ParseUint(digits[8:], 16, 32)
	return pglogrepl.LSN(high<<32 + segment*uint64(size)), err == nil
}

// unarchived returns the pressure of WAL that waits for the archiver. A repair ends it.
func unarchived(o Observation, wal float64) (pressure, bool) {
	a := o.Archive
	if a == nil || a.Still < archiverTries {
		return pressure{}, false
	}
	wait := "segments wait"
	if a.Waiting == 1 {
		wait = "segment waits"
	}
	still := float64(a.Still)
	return pressure{wal, still, false, fmt.Sprintf("%d %s for archive_command, the oldest for %s",
		a.Waiting, wait, span(still))}, true
}
