package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// round is what goes to the client at once: at most one batch of each partition.
type round struct {
	records  []*record
	producer []*kgo.Record // the same
}

func (r *round) add(next *record) {
	r.records = append(r.records, next)
	r.producer = append(r.producer, &next.producer)
}

// feed hands over what waits, if it is due, and sees to it that it will be. Whoever may have changed that calls it: Publish, an
// acknowledgement, or the timer, with expired.
func (s *Sink) feed(expired bool) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if s.lanes.messages == 0 || s.lanes.shut || s.stopped() {
		return
	}
	now := time.Now()
	if later := s.lanes.welcome(now); !later.IsZero() {
		s.ring(now, later)
	}
	if len(s.lanes.ready) == 0 {
		return
	}
	if !expired {
		if due := s.pace.due(now, s.lanes.messages, s.lanes.bytes, s.lanes.out.Load() == 0); !due.IsZero() {
			s.ring(now, due)
			return
		}
	}
	s.pace.sent(now, s.lanes.messages, s.lanes.bytes)
	for len(s.lanes.ready) > 0 {
		var r *round
		if n := len(s.idle); n > 0 {
			r, s.idle = s.idle[n-1], s.idle[:n-1]
		} else {
			r = &round{}
		}
		s.lanes.next(r, now)
		s.rounds.Add(1) // before shut, as seen under the lock
		go s.produce(r) // ends when all of it is reported, at the latest with the client; Close waits for rounds
	}
	if len(s.lanes.fresh) == 0 {
		s.alarm = time.Time{}
		s.timer.Stop()
	}
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// ring has the timer ring, unless it does earlier. The caller holds the lanes' lock.
func (s *Sink) ring(now, due time.Time) {
	if s.alarm.IsZero() || due.Before(s.alarm) {
		s.alarm = due
		s.timer.Reset(due.Sub(now))
	}
}

// expire is called by the timer.
func (s *Sink) expire() {
	s.lanes.mu.Lock()
	s.alarm = time.Time{}
	s.lanes.mu.Unlock()
	s.feed(true)
}

// produce gives a round to the client and takes its records back when they are all reported. ProduceSync is what makes it a round: the
// client does not begin to send until it has the last record, and then sends at once.
func (s *Sink) produce(r *round) {
	defer s.rounds.Done()
	s.client.ProduceSync(s.life, r.producer...)
	s.records.giveBack(r.records)
	clear(r.records)
	clear(r.producer)
	r.records, r.producer = r.records[:0], r.producer[:0]
	s.lanes.mu.Lock()
	s.idle = append(s.idle, r)
	s.lanes.mu.Unlock()
}

// OnProduceRecordUnbuffered hears of each record once, when it is acknowledged or given up. One goroutine of the client at a time calls it, in
// the order of each partition.
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
	freed, idle := s.lanes.landed(r.lane)
	if !freed && !idle {
		return
	}
	if freed {
		s.lanes.mu.Lock()
		r.lane.acked = time.Now()
		s.lanes.queue(r.lane)
		s.lanes.mu.Unlock()
	}
	s.feed(false)
}
