// Package kgoinbox is the inbox for consumers with franz-go. Offsets are committed to Kafka only
// after the transactions of their records.
package kgoinbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/inbox"
)

// mostRecords bounds what is processed between two commits of offsets, and how long a rebalance
// waits.
const mostRecords = 100

// Run consumes as a member of a group, and calls handle for each record whose event the inbox
// does not have, in the order of each partition, in the transaction in which the event is
// marked. opts are those of a client that consumes: at least kgo.SeedBrokers, kgo.ConsumerGroup
// and kgo.ConsumeTopics. Run adds kgo.AutoCommitMarks and kgo.BlockRebalanceOnPoll, and marks the
// records that are processed: other options of automatic commits are refused.
//
// handle is called again for a record after an error of the server that asks for that, as
// inbox.Consumer.Process says, and after a crash or a rebalance. What it does beside tx is then
// done twice.
//
// It blocks until ctx ends, and then returns nil; or until a record cannot be processed or the
// client cannot go on, and then returns that error. Nothing is lost in either case: offsets are
// committed up to the first record that was not processed, and the next Run begins there. A
// broker that is away is waited for.
func Run[T any](ctx context.Context, c *inbox.Consumer[T],
	handle func(ctx context.Context, tx T, record *kgo.Record) error, opts ...kgo.Opt) error {
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll())...)
	if err != nil {
		return fmt.Errorf("make the client of the inbox: %w", err)
	}
	defer client.CloseAllowingRebalance()
	process := Handler(c, handle)
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, mostRecords)
		var failed error
		for _, fetch := range fetches.Errors() {
			if ctx.Err() == nil && !passes(fetch.Err) {
				failed = errors.Join(failed, fmt.Errorf("consume %s, partition %d: %w", fetch.Topic,
					fetch.Partition, fetch.Err))
			}
		}
		for records := fetches.RecordIter(); failed == nil && !records.Done(); {
			record := records.Next()
			if failed = process(ctx, record); failed == nil {
				client.MarkCommitRecords(record)
			}
		}
		failed = errors.Join(failed, commit(ctx, client))
		if failed != nil && ctx.Err() == nil {
			return failed
		}
		client.AllowRebalance()
	}
	return nil
}

// Handler returns what processes one record, for a consumer with a loop of its own: that one
// commits the offset of a record only after it returned nil, and no later one of its partition
// after an error. Its client needs kgo.DisableAutoCommit, or kgo.AutoCommitMarks.
func Handler[T any](c *inbox.Consumer[T],
	handle func(ctx context.Context, tx T, record *kgo.Record) error,
) func(context.Context, *kgo.Record) error {
	return func(ctx context.Context, record *kgo.Record) error {
		_, err := c.ProcessRecord(ctx, inbox.Record{
			Topic: record.Topic, Partition: record.Partition, Offset: record.Offset,
			Time: record.Timestamp,
			Header: func(name string) ([]byte, bool) {
				for _, h := range record.Headers {
					if h.Key == name {
						return h.Value, true
					}
				}
				return nil, false
			},
		}, func(ctx context.Context, tx T) error { return handle(ctx, tx, record) })
		return err
	}
}

// commit commits the offsets of marked records, also once ctx has ended. Where that fails for now,
// the client commits them later: every kgo.AutoCommitInterval, or before it loses the partition.
func commit(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil && !passes(err) {
		return fmt.Errorf("commit offsets: %w", err)
	}
	return nil
}

// passes reports whether the client goes on by itself after an error: it joins its group again,
// and connects again.
func passes(err error) bool {
	var answer *kerr.Error
	if errors.As(err, &answer) {
		return answer.Retriable || errors.Is(answer, kerr.IllegalGeneration) ||
			errors.Is(answer, kerr.UnknownMemberID) || errors.Is(answer, kerr.RebalanceInProgress) ||
			errors.Is(answer, kerr.StaleMemberEpoch) || errors.Is(answer, kerr.FencedMemberEpoch)
	}
	session := new(kgo.ErrGroupSession)
	return errors.As(err, &session) || errors.Is(err, context.DeadlineExceeded) ||
		kgo.IsRetryableBrokerErr(err)
}
