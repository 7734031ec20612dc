package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err    error
		first  bool
		class  Class
		reason string
	}{
		{errors.New("nobody has seen this before"), true, Retryable, "other"},
		{io.ErrUnexpectedEOF, false, Retryable, "other"},
		{replication.ErrServerStopping, true, Retryable, "server_stopping"},
		{replication.ErrTerminated, false, Retryable, "terminated"},
		{replication.ErrSlotInUse, true, Retryable, "slot_in_use"},
		{replication.ErrSlotLost, false, Fatal, "slot_lost"},
		{replication.ErrSlotMissing, true, Fatal, "slot_missing"},
		{replication.ErrPublicationMissing, false, Fatal, "publication"},
		{replication.ErrIdentityChanged, false, Fatal, "identity"},
		{postgres.ErrUnreachable, true, Retryable, "postgres_unreachable"},
		{postgres.ErrTLS, true, Retryable, "postgres_tls"},
		{postgres.ErrAuthentication, true, Fatal, "postgres_authentication"},
		{postgres.ErrAuthentication, false, Retryable, "postgres_authentication"}, // the password may be in rotation
		{sink.ErrAuthentication, true, Fatal, "broker_authentication"},
		{sink.ErrAuthentication, false, Retryable, "broker_authentication"},
		{sink.ErrUnreachable, true, Retryable, "broker_unreachable"},
		{sink.ErrUnknownTopic, true, Retryable, "unknown_topic"},
		{sink.ErrTLS, true, Retryable, "broker_tls"},
		{&sink.MessageError{Topic: "t", Err: sink.ErrTooLarge}, false, Poison, "too_large"},
		{&router.RowError{Reason: router.ReasonNullKey, Err: errors.New("no key")}, false, Poison, router.ReasonNullKey},
		{&router.ShapeError{Relation: "public.outbox", Column: "payload"}, false, Fatal, "shape"},
		{&replication.RowTooLargeError{Bytes: 2, Max: 1}, false, Poison, "row_too_large"},
		{ErrConfiguration, false, Fatal, "configuration"},
		{ErrDrainTimeout, false, Fatal, "drain_timeout"},
		{context.Canceled, false, Retryable, "cancelled"},
	} {
		wrapped := fmt.Errorf("while doing something: %w", fmt.Errorf("deeper: %w", c.err))
		class, reason := Classify(wrapped, c.first)
		require.Equal(t, c.class, class, "%v, first session %v", c.err, c.first)
		require.Equal(t, c.reason, reason, "%v", c.err)
	}
}

func TestBackoff_GrowsToItsCeilingAndStartsOverAfterProgress(t *testing.T) {
	longest := func(failures int) time.Duration {
		longest := time.Duration(0)
		for range 200 {
			b := backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
			for range failures {
				b.next("other", false)
			}
			delay, least := b.next("other", false)
			require.LessOrEqual(t, least, delay)
			longest = max(longest, delay)
		}
		return longest
	}
	require.LessOrEqual(t, longest(0), 100*time.Millisecond)
	require.Greater(t, longest(3), 400*time.Millisecond)
	require.LessOrEqual(t, longest(60), 5*time.Second, "no overflow")

	b := backoff{min: 100 * time.Millisecond, max: 5 * time.Second, failures: 40}
	delay, _ := b.next("other", true)
	require.LessOrEqual(t, delay, 100*time.Millisecond)
}

// It is looked for again after 10 s, or as soon as its return is seen.
func TestBackoff_LeavesAServerThatShutsDownAlone(t *testing.T) {
	b := backoff{min: time.Millisecond, max: time.Second}
	delay, least := b.next(reasonServerStopping, true)
	require.GreaterOrEqual(t, delay, 10*time.Second)
	require.LessOrEqual(t, least, time.Millisecond)
}

// A failover: when the standby is promoted is not known, and consumers wait for it.
func TestBackoff_LooksForADatabaseThatIsAway(t *testing.T) {
	for range 100 {
		b := backoff{min: time.Second, max: time.Minute, failures: 40}
		delay, least := b.next("postgres_unreachable", false)
		require.LessOrEqual(t, delay, 5*time.Second)
		require.LessOrEqual(t, least, minDelay)
	}
}

// Full jitter: the delays of relays that failed together lie anywhere below the ceiling, down to half of relay.backoff_min.
func TestBackoff_SpreadsItsDelays(t *testing.T) {
	for name, draw := range map[string]func(b *backoff) time.Duration{
		"next":  func(b *backoff) time.Duration { delay, _ := b.next("other", false); return delay },
		"freed": func(b *backoff) time.Duration { return b.freed(0) },
	} {
		var quarters [4]int
		for range 4000 {
			b := backoff{min: 100 * time.Millisecond, max: 10 * time.Second, failures: 40}
			delay := draw(&b)
			require.GreaterOrEqual(t, delay, 50*time.Millisecond, name)
			require.LessOrEqual(t, delay, 10*time.Second, name)
			quarters[min(3, delay/(2500*time.Millisecond))]++
		}
		for _, n := range quarters {
			require.InDelta(t, 1000, n, 200, name)
		}
	}
}

func TestBackoff_AStandbyLooksOften(t *testing.T) {
	b := backoff{min: time.Second, max: time.Minute, failures: 40}
	delay, _ := b.next(reasonSlotInUse, false)
	require.LessOrEqual(t, delay, time.Second)
}

// A policy is applied to a row alone, and not to what else may go wrong with one.
func TestCauseOf_IsThatOfARow(t *testing.T) {
	row := func(reason string) error { return fmt.Errorf("route: %w", &router.RowError{Reason: reason}) }
	for _, c := range []struct {
		err  error
		want deadletter.Cause // empty: none
	}{
		{row(router.ReasonInvalidTopic), deadletter.InvalidTopic},
		{row(router.ReasonInvalidMessage), deadletter.Malformed},
		{row(router.ReasonInvalidHeaders), deadletter.Malformed},
		{row(router.ReasonNullRoute), deadletter.NotRoutable},
		{row(router.ReasonUpdate), ""}, // the relay is to stop for it
		{&replication.RowTooLargeError{}, deadletter.TooLarge},
		{sink.ErrTooLarge, deadletter.TooLarge},
		{sink.ErrInvalidTopic, deadletter.InvalidTopic},
		{sink.ErrInvalidRecord, deadletter.Refused},
		{sink.ErrUnknownTopic, deadletter.UnknownTopic},
		{sink.ErrPermission, ""},
		{sink.ErrUnreachable, ""},
		{errors.New("nobody has seen this before"), ""},
	} {
		cause, known := CauseOf(c.err)
		require.Equal(t, c.want, cause, "%v", c.err)
		require.Equal(t, c.want != "", known, "%v", c.err)
	}
}
