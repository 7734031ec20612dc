package alerts

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// lastTries bounds the attempts at the end of the process. With relay.drain_timeout they take
	// less than the 30 s of Kubernetes' terminationGracePeriodSeconds.
	lastTries = 3 * time.Second
	// idleWait bounds the wait while nothing is pending; Update ends it.
	idleWait = time.Hour
)

// Run sends notifications until ctx ends. Then it makes one attempt for each pending one, within
// three seconds in all. It waits for its goroutines. Call it once.
func (n *Notifier) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	n.mu.Lock()
	n.stopped = ctx.Done()
	n.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range n.receivers {
		// One goroutine sends to one receiver. It ends after ctx and the last attempts.
		wg.Go(func() { n.serve(ctx, sending, r) })
	}
	<-ctx.Done()
	limit := time.AfterFunc(lastTries, cancel)
	defer limit.Stop()
	wg.Wait()
	for _, r := range n.receivers {
		for _, p := range n.pending(r, false) {
			n.dropped(r, []string{p.condition.Name},
				"process ended before the receiver could be notified")
		}
	}
}

// serve sends to one receiver, one notification at a time.
func (n *Notifier) serve(ctx, sending context.Context, r *receiver) {
	for ctx.Err() == nil {
		pending := n.pending(r, true)
		now, wait := time.Now(), idleWait
		at := slices.IndexFunc(pending, func(p notification) bool { return !p.due.After(now) })
		if at >= 0 {
			n.attempt(sending, r, pending[at])
			continue
		}
		for _, p := range pending {
			wait = min(wait, p.due.Sub(now))
		}
		timer := time.NewTimer(wait)
		select {
		case <-r.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	for _, p := range n.pending(r, false) {
		if sending.Err() == nil && n.mayRetry(r, p) {
			n.attempt(sending, r, p)
		}
	}
}

// pending returns the notifications for a receiver in the order of sending: first firing, then
// resolved, each by severity. repeats: with the repetitions.
func (n *Notifier) pending(r *receiver, repeats bool) []notification {
	n.mu.Lock()
	defer n.mu.Unlock()
	repeat := time.Duration(0)
	if repeats {
		repeat = n.repeat
	}
	var all []notification
	for name, i := range n.incidents {
		if p, ok := r.deliveryLocked(name).pending(i, n.least, repeat); ok {
			if r.notBefore.After(p.due) {
				p.due = r.notBefore
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, notification.compare)
	return all
}

// mayRetry reports whether the last attempt may come before it is due: not if the receiver has
// refused the notification, or requests a later attempt.
func (n *Notifier) mayRetry(r *receiver, p notification) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !r.deliveryLocked(p.condition.Name).refuses(p) && !r.notBefore.After(time.Now())
}

func (r *receiver) deliveryLocked(condition string) *delivery {
	if r.deliveries[condition] == nil {
		r.deliveries[condition] = &delivery{}
	}
	return r.deliveries[condition]
}

// attempt sends one notification and records the outcome. A change of the incident meanwhile is
// pending afterwards.
func (n *Notifier) attempt(sending context.Context, r *receiver, p notification) {
	ctx, cancel := context.WithTimeout(sending, n.timeout)
	defer cancel()
	start := time.Now()
	failed := r.sender.send(ctx, p.message(n.about, r.name, n.externalURL))
	now := time.Now()

	n.mu.Lock()
	d := r.deliveryLocked(p.condition.Name)
	pause := time.Duration(0)
	if failed == nil {
		d.accepted(p, now)
	} else {
		pause = d.failed(p, failed, n.repeat, now)
		if failed.retryAfter > 0 {
			r.notBefore = now.Add(failed.retryAfter)
		}
	}
	attempts := d.attempts
	n.mu.Unlock()

	event := func(e *zerolog.Event) *zerolog.Event {
		return e.Str("receiver", r.name).Str("condition", p.condition.Name).Str("status", p.status()).
			Stringer("severity", p.severity).Dur("duration", now.Sub(start))
	}
	if failed == nil {
		n.set.AlertsSent.WithLabelValues(r.name).Inc()
		event(n.log.Info()).Bool("repeated", p.repeated).Msg("notification sent")
		return
	}
	n.set.AlertsFailed.WithLabelValues(r.name).Inc()
	line := n.log.Debug()
	switch {
	case failed.refused:
		n.set.AlertsDropped.Inc()
		line = n.log.Error()
	case attempts == 1 || pause > backoffMax/2: // the first, and then a few an hour
		line = n.log.Warn()
	}
	line = event(line).Int("attempt", attempts).Dur("backoff", pause).Str("error", failed.text)
	if failed.next != "" {
		line = line.Str("next", failed.next)
	}
	line.Msg("notification not sent")
}
