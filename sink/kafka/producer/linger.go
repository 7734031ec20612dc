package producer

import "time"

const (
	// lingerMessages and lingerBytes are what is worth a request without waiting for more, as long
	// as none is under way.
	lingerMessages = 64
	lingerBytes    = 64 << 10
	// While flushes are as large as that they follow each other at bulkLingers the linger, or when
	// there is this much.
	bulkLingers  = 4
	bulkMessages = 1000
	bulkBytes    = 256 << 10
	// besideBytes is what is worth a request beside another that is under way.
	besideBytes = 1 << 20
)

// pace decides when what waits goes to the client. A broker pays for requests, not rows: at 1,000
// one-row transactions a second, each sent at once, the 99th percentile of the latency was 75 to
// 105 ms; with 5 ms between requests it was 24 to 43 ms. But a single message must not wait for
// others that do not come. So the first message after a pause goes at once, and one that follows
// sooner than the linger waits for the rest of it. While the client waits for an answer, messages
// gather for the next flush: it goes with the answer, or after the linger if that takes longer.
type pace struct {
	linger time.Duration
	last   time.Time // when something went to the client; zero: never
	bulk   bool      // it was worth a request by itself
}

// due is when so many messages and bytes have to go; zero: now. idle says that the client has
// nothing.
func (p *pace) due(now time.Time, messages, bytes int, idle bool) time.Time {
	if p.linger == 0 || bytes >= besideBytes {
		return time.Time{}
	}
	linger, much := p.linger, worth(messages, bytes)
	if p.bulk {
		linger, much = bulkLingers*p.linger, messages >= bulkMessages || bytes >= bulkBytes
	}
	if !idle {
		return now.Add(linger)
	}
	if due := p.last.Add(linger); due.After(now) && !much {
		return due
	}
	return time.Time{}
}

func (p *pace) sent(now time.Time, messages, bytes int) {
	p.last, p.bulk = now, worth(messages, bytes)
}

func worth(messages, bytes int) bool { return messages >= lingerMessages || bytes >= lingerBytes }
