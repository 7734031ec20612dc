package postgres

import (
	"context"
	"time"
)

// Poll asks until the answer is yes, for at most limit; zero: without one. It returns the last
// answer, the error of ask, or the cause for which ctx has ended.
func Poll(ctx context.Context, interval, limit time.Duration,
	ask func() (bool, error)) (bool, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for began := time.Now(); ; {
		yes, err := ask()
		if yes || err != nil || limit > 0 && time.Since(began) > limit {
			return yes, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
