package replication

import "time"

const (
	// readInterval is the time between two reads under load. An eager reader makes the walsender do
	// one system call per message: with one-row transactions, reading as soon as there was something
	// cost 36 to 43 s of CPU per million rows, and the walsender 14 s (docs/decisions/0002).
	readInterval = time.Millisecond
	// readBurst is how many reads may follow each other at once after a pause: a transaction of one
	// row, which must not wait, arrives as up to three pieces.
	readBurst = 4

	// A stream that is behind by staleness waits for worthAwaiting bytes, up to longestPause: its
	// rows are old anyway. What a read brings becomes requests to the broker. With few cores there
	// is little to read in a millisecond, and the requests for it take all the CPU.
	staleness     = 200 * time.Millisecond
	worthAwaiting = 64 << 10
	longestPause  = 5 * time.Millisecond

	// With the server on the same machine, and a small receive buffer, the stream sleeps instead
	// for as long as worthReading bytes take to come. Meanwhile the walsender's messages wait in
	// its socket, and leave it in large packets; as packets of their own they cost both sides twice
	// as much (docs/decisions/0002).
	worthReading = 256 << 10
	// longestNap bounds that. On a slow machine less than the receive buffer holds would come in a
	// shorter one: nothing would wait in the server's socket, and a slow backlog would stay slow.
	longestNap = 8 * time.Millisecond
	// worthReadingOn: a read of a backlog that brings less has emptied the server's socket too.
	worthReadingOn = 16 << 10

	// shrunkTimeout is how long the receive buffer may stay small while nothing is read.
	shrunkTimeout = 20 * time.Millisecond

	// worthWaking is for how many bytes keepalives may wait. A busy server sends one, of 23 bytes,
	// for each transaction of other tables. No row waits: Begin, Insert and Commit have at least 145.
	worthWaking = 128
)

// pace spaces reads by the generic cell rate algorithm: at most one per readInterval in the long
// run.
type pace struct {
	next time.Time // theoretical arrival time: when the next read is due, without a burst
}

// wait returns how long to wait before reading at now, and counts that read.
func (p *pace) wait(now time.Time) time.Duration {
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(readInterval)
	return max(0, p.next.Sub(now)-readBurst*readInterval)
}

// nap spaces the reads of a backlog.
type nap struct {
	began time.Time // the last one; zero: none yet
	bytes int       // read since
}

// next returns how long to sleep from now on, for worthReading bytes at the rate since the last
// nap, at most longestNap.
func (n *nap) next(now time.Time) time.Duration {
	d := longestNap
	if n.bytes > 0 && !n.began.IsZero() {
		share := worthReading / float64(n.bytes)
		d = min(d, time.Duration(share*float64(now.Sub(n.began))))
	}
	n.began, n.bytes = now, 0
	return d
}
