package monitor

import "github.com/jackc/pglogrepl"

// boundary is a position together with the transactions of its time.
type boundary struct {
	lsn  pglogrepl.LSN
	xmin uint64 // transactions before it had ended
	next uint64 // transactions from it on had not begun: all that they write is behind lsn
}

// boundaries keeps the position behind which everything is that the last look did not see. That is
// not the position of the look: a transaction can have written its commit, and be decoded, and
// still be invisible, for as long as it waits for a synchronous standby.
type boundaries struct {
	settled   boundary // every transaction that had begun by then has ended; zero: none is known
	candidate boundary // becomes it when that is so
}

// passed records a look that found nothing: the position was read before its snapshot.
func (b *boundaries) passed(lsn pglogrepl.LSN, xmin, xmax uint64) {
	now := boundary{lsn: lsn, xmin: xmin, next: xmax}
	switch {
	case b.settled.lsn == 0, xmin >= now.next:
		b.settled, b.candidate = now, now
	case xmin >= b.candidate.next:
		b.settled, b.candidate = b.candidate, now
	}
}
