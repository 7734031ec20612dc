package demo

import (
	"context"
	"time"
)

// WaitUntil blocks until due. It returns false if ctx ends first.
func WaitUntil(ctx context.Context, due time.Time) bool {
	if wait := time.Until(due); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// quiet is how long nothing may arrive before what is missing counts as lost.
const quiet = 30 * time.Second

// Often is the interval at which a count is read that costs nothing.
const Often = 5 * time.Millisecond

// AwaitProgress blocks until count reaches want, or has not moved for 30 seconds: the audit
// reports what is missing. Errors are those of count and the cause of ctx.
func AwaitProgress(ctx context.Context, every time.Duration, want int64,
	count func() (int64, error)) error {
	last, moved := int64(-1), time.Now()
	for {
		n, err := count()
		if err != nil {
			return err
		}
		if n != last {
			last, moved = n, time.Now()
		}
		if n >= want || time.Since(moved) > quiet {
			return nil
		}
		if !WaitUntil(ctx, time.Now().Add(every)) {
			return context.Cause(ctx)
		}
	}
}
