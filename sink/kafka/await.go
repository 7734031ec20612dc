package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/sink"
)

const (
	// Pauses between two attempts to reach a broker: a tenth of the time since the first, within
	// these limits.
	answerPauseMin = 100 * time.Millisecond
	answerPauseMax = 500 * time.Millisecond
)

// AwaitAnswer waits until one of the brokers answers, or ctx ends. The answer may be an error: a
// refused password, or no TLS.
func AwaitAnswer(ctx context.Context, cfg Config) error {
	silence()
	for began := time.Now(); ; {
		if _, err := cfg.reach(ctx); !errors.Is(err, sink.ErrNoBroker) {
			return err
		}
		if err := pause(ctx, min(max(time.Since(began)/10, answerPauseMin), answerPauseMax)); err != nil {
			return err
		}
	}
}
