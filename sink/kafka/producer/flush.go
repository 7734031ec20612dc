package producer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// flush is what goes to the client at once: at most one batch of each partition.
type flush struct {
	records  []*record
	producer []*kgo.Record // the same
}

func (f *flush) add(next *record) {
	f.records = append(f.records, next)
	f.producer = append(f.producer, &next.producer)
}

// trySend gives what waits to the client if it is due, else it sets the timer. Publish, an
// acknowledgement, and the timer, with expired, call it.
func (s *Sink) trySend(expired bool) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	if s.queues.messages == 0 || s.queues.shut || s.stopped() {
		return
	}
	now := time.Now()
	s.setTimer(now, s.queues.prefetchTopics(now))
	if len(s.queues.ready) == 0 {
		return
	}
	messages, bytes := s.queues.messages, s.queues.bytes
	if due := s.pace.due(now, messages, bytes, s.queues.out.Load() == 0); !expired && !due.IsZero() {
		s.setTimer(now, due)
		return
	}
	s.pace.sent(now, messages, bytes)
	for len(s.queues.ready) > 0 {
		f := &flush{}
		if n := len(s.idle); n > 0 {
			f, s.idle = s.idle[n-1], s.idle[:n-1]
		}
		s.queues.next(f, now)
		s.flushes.Add(1) // before shut, as seen under the lock
		// ends when all of it is reported, at the latest with the client; Close waits for flushes
		go s.produce(f)
	}
	if len(s.queues.newTopics) == 0 {
		s.timerAt = time.Time{}
		s.timer.Stop()
	}
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// setTimer makes the timer expire when something is due, unless it does earlier; zero: nothing is.
// The caller holds the lock of the queues.
func (s *Sink) setTimer(now, due time.Time) {
	if !due.IsZero() && (s.timerAt.IsZero() || due.Before(s.timerAt)) {
		s.timerAt = due
		s.timer.Reset(due.Sub(now))
	}
}

// expire is called by the timer.
func (s *Sink) expire() {
	s.queues.mu.Lock()
	s.timerAt = time.Time{}
	s.queues.mu.Unlock()
	s.trySend(true)
}

// produce gives a flush to the client and takes its records back when they are all reported. With
// ProduceSync the client sends when it has the last record, at once.
func (s *Sink) produce(f *flush) {
	defer s.flushes.Done()
	s.client.ProduceSync(s.life, f.producer...)
	s.records.giveBack(f.records)
	clear(f.records)
	clear(f.producer)
	f.records, f.producer = f.records[:0], f.producer[:0]
	s.queues.mu.Lock()
	s.idle = append(s.idle, f)
	s.queues.mu.Unlock()
}

// OnProduceRecordUnbuffered is called for each record once, when it is acknowledged or given up.
// One goroutine of the client at a time calls it, in the order of each partition.
func (s *Sink) OnProduceRecordUnbuffered(p *kgo.Record, err error) {
	r := p.Context.(*record)
	m := r.message
	r.message = nil
	if err == nil {
		s.reported.Add(1)
		s.done(m, nil)
	} else {
		s.report(m, err)
	}
	freed, idle := s.queues.acked(r.queue)
	if freed {
		s.queues.mu.Lock()
		r.queue.lastAck = time.Now()
		s.queues.makeReady(r.queue)
		s.queues.mu.Unlock()
	}
	if freed || idle {
		s.trySend(false)
	}
}
