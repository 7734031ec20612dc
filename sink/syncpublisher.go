package sink

import (
	"context"
	"sync"
	"time"
)

// closeTimeout is how long the sink of a SyncPublisher may take to close, as in a session of the
// relay.
const closeTimeout = 5 * time.Second

// SyncPublisher publishes chunks, and waits until the broker has acknowledged the whole of each.
// It is for one goroutine.
type SyncPublisher struct {
	sink      Sink
	delivered func(*Message)
	failed    context.Context // ends with the first failure
	fail      context.CancelCauseFunc

	mu      sync.Mutex
	pending int
	done    chan struct{} // one token: pending became zero
}

// OpenSyncPublisher opens a sink for it. delivered is called for each message that was
// acknowledged, from the sink's goroutines; it may be nil. The caller closes what is returned.
func OpenSyncPublisher(ctx context.Context, open Open, delivered func(*Message)) (*SyncPublisher,
	error) {
	w := &SyncPublisher{delivered: delivered, done: make(chan struct{}, 1)}
	w.failed, w.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	if w.sink, err = open(ctx, w.report); err != nil {
		w.fail(nil)
		return nil, err
	}
	return w, nil
}

// Publish returns when all of ms is acknowledged, or with why not; then it is not known which of
// them the broker has, and Close is all that is left.
func (w *SyncPublisher) Publish(ctx context.Context, ms []*Message) error {
	if len(ms) == 0 {
		return nil
	}
	now := time.Now()
	for _, m := range ms {
		m.Origin.HandedOver = now
	}
	w.mu.Lock()
	w.pending = len(ms)
	w.mu.Unlock()
	if err := w.sink.Publish(ctx, ms); err != nil {
		return err
	}
	select {
	case <-w.done:
		return nil
	case <-w.failed.Done():
		return context.Cause(w.failed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// report is the sink's Done.
func (w *SyncPublisher) report(m *Message, err error) {
	if err != nil {
		w.fail(err)
		return
	}
	if w.delivered != nil {
		w.delivered(m)
	}
	w.mu.Lock()
	w.pending--
	last := w.pending == 0
	w.mu.Unlock()
	if last {
		w.done <- struct{}{} // there is room: the token of the chunk before was taken
	}
}

// Close ends the sink. What it still holds may be written or not.
func (w *SyncPublisher) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// what was not acknowledged is looked for in the topics, by who comes next
	_ = w.sink.Close(ctx)
	w.fail(nil)
}
