package producer

import "time"

const (
	// largeMessages or largeBytes make a flush large: it does not wait for more, unless a request
	// is under way.
	largeMessages = 64
	largeBytes    = 64 << 10
	// After a large flush the next one waits for bulkLingers times the linger, or until there are
	// bulkMessages or bulkBytes.
	bulkLingers  = 4
	bulkMessages = 1000
	bulkBytes    = 256 << 10
	// concurrentBytes are sent even while a request is under way.
	concurrentBytes = 1 << 20
)

// pace decides when the next flush is due. A broker's load is requests rather than rows: at 1,000
// one-row transactions a second, each sent at once, the 99th percentile of the latency was 75 to
// 105 ms; with 5 ms between requests it was 24 to 43 ms. But a single message must not wait for
// others that do not come. So a message after a pause is sent at once, and one within the linger
// of the last flush waits for the end of the linger. While a request is under way messages gather
// for the next flush, which is sent on the acknowledgement or after the linger.
type pace struct {
	linger time.Duration
	last   time.Time // of the last flush; zero: never
	bulk   bool      // the last flush was large
}

// due returns when that many messages and bytes have to be sent; zero: now. idle: the client has
// no records.
func (p *pace) due(now time.Time, messages, bytes int, idle bool) time.Time {
	if p.linger == 0 || bytes >= concurrentBytes {
		return time.Time{}
	}
	linger, enough := p.linger, isLarge(messages, bytes)
	if p.bulk {
		linger, enough = bulkLingers*p.linger, messages >= bulkMessages || bytes >= bulkBytes
	}
	if !idle {
		return now.Add(linger)
	}
	if due := p.last.Add(linger); due.After(now) && !enough {
		return due
	}
	return time.Time{}
}

func (p *pace) sent(now time.Time, messages, bytes int) {
	p.last, p.bulk = now, isLarge(messages, bytes)
}

func isLarge(messages, bytes int) bool { return messages >= largeMessages || bytes >= largeBytes }
