package producer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// flush is a set of records that go to the client together: at most one batch of each partition.
type flush struct {
	records []*record
	kgo     []*kgo.Record // of records
}

func (f *flush) add(next *record) {
	f.records = append(f.records, next)
	f.kgo = append(f.kgo, &next.kgo)
}

// trySend hands the ready queues to the client if a flush is due, else it sets the timer. expired:
// the timer calls it; else Publish or an acknowledgement does.
func (s *Sink) trySend(expired bool) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	if s.queues.messages == 0 || s.queues.closed || s.stopped() {
		return
	}
	now := time.Now()
	s.setTimer(now, s.queues.prefetchTopics(now))
	if len(s.queues.ready) == 0 {
		return
	}
	messages, bytes := s.queues.messages, s.queues.bytes
	due := s.pace.due(now, messages, bytes, s.queues.inClient.Load() == 0)
	if !expired && !due.IsZero() {
		s.setTimer(now, due)
		return
	}
	s.pace.sent(now, messages, bytes)
	for len(s.queues.ready) > 0 {
		f := &flush{}
		if n := len(s.freeFlushes); n > 0 {
			f, s.freeFlushes = s.freeFlushes[n-1], s.freeFlushes[:n-1]
		}
		s.queues.next(f, now)
		s.flushes.Add(1) // the queues are open, so Close does not wait for flushes yet
		// ends when all its records are reported, at the latest when the client is closed
		go s.produce(f)
	}
	if len(s.queues.newTopicQueues) == 0 {
		s.timerAt = time.Time{}
		s.timer.Stop()
	}
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// setTimer makes the timer expire at due, unless it expires earlier or due is zero. The caller
// holds queues.mu.
func (s *Sink) setTimer(now, due time.Time) {
	if !due.IsZero() && (s.timerAt.IsZero() || due.Before(s.timerAt)) {
		s.timerAt = due
		s.timer.Reset(due.Sub(now))
	}
}

// expire is the function of the timer.
func (s *Sink) expire() {
	s.queues.mu.Lock()
	s.timerAt = time.Time{}
	s.queues.mu.Unlock()
	s.trySend(true)
}

// produce hands a flush to the client, and frees its records when all are reported. The client
// sends at once after the last record of a ProduceSync.
func (s *Sink) produce(f *flush) {
	defer s.flushes.Done()
	s.client.ProduceSync(s.requestCtx, f.kgo...)
	s.pool.put(f.records)
	clear(f.records)
	clear(f.kgo)
	f.records, f.kgo = f.records[:0], f.kgo[:0]
	s.queues.mu.Lock()
	s.freeFlushes = append(s.freeFlushes, f)
	s.queues.mu.Unlock()
}

// OnProduceRecordUnbuffered is called once for each record, when it is acknowledged or has failed,
// by one goroutine of the client at a time and in the order of each partition.
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
