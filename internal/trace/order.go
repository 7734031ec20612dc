package trace

import (
	"cmp"
	"slices"
)

// The values of Result.OrderedBy.
const (
	orderedByPosition    = "position"
	orderedByCommitTime  = "commit time"
	orderedByTransaction = "transaction"
)

// sortByCommit sorts the events of a key in the order of their commits, by the best that is known
// of all of them. Rows come newest first, by their transactions.
func (s *search) sortByCommit() {
	if s.Topic == "" {
		slices.Reverse(s.events)
	}
	slices.SortStableFunc(s.events, func(a, b *event) int { // those of several tables
		return cmp.Compare(uint64(b.age), uint64(a.age)) //nolint:gosec // a negative age is the oldest
	})
	all := func(known func(e *event) bool) bool {
		return !slices.ContainsFunc(s.events, func(e *event) bool { return !known(e) })
	}
	switch {
	case all(func(e *event) bool { return e.Commit.LSN != "" && e.Commit.Index != nil }):
		s.result.OrderedBy = orderedByPosition
		slices.SortStableFunc(s.events, func(a, b *event) int {
			return cmp.Or(cmp.Compare(a.Commit.position(), b.Commit.position()),
				cmp.Compare(*a.Commit.Index, *b.Commit.Index))
		})
	case all(func(e *event) bool { return !e.Commit.Time.IsZero() }):
		s.result.OrderedBy = orderedByCommitTime
		slices.SortStableFunc(s.events, func(a, b *event) int {
			return cmp.Or(a.Commit.Time.Compare(b.Commit.Time), byOffset(a, b))
		})
	default:
		// Events without a row, of which only a record or a dead letter is left, are the oldest.
		s.result.OrderedBy = orderedByTransaction
		slices.SortStableFunc(s.events,
			func(a, b *event) int { return order(a.Row != nil, b.Row != nil) })
	}
}

// byOffset compares two events with records in one partition; else they are equal.
func byOffset(a, b *event) int {
	if len(a.Records) == 0 || len(b.Records) == 0 {
		return 0
	}
	x, y := a.Records[0], b.Records[0]
	if x.Topic != y.Topic || x.Partition != y.Partition {
		return 0
	}
	return cmp.Compare(x.Offset, y.Offset)
}
