package sinktest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

// TransactionalSubject is a sink.Transactional under test. Each test gets one of its own.
type TransactionalSubject struct {
	Open func(ctx context.Context, done sink.Done, committed sink.Committed) (sink.Transactional,
		error)
	// Source has never begun.
	Source sink.Source
	// Topic exists and has at least two partitions, and nothing in it.
	Topic string
	// Seen returns every record of Topic that readers of committed records can see now.
	Seen func(t *testing.T) []Record
	// Outlives is as in Subject.
	Outlives []string
}

// RunTransactional runs what sink.Transactional promises beyond sink.Sink. subject is called once
// for each test and cleans up with t.Cleanup.
func RunTransactional(t *testing.T, subject func(t *testing.T) TransactionalSubject) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s TransactionalSubject)
	}{
		{"ShowsNothingBeforeTheBoundary", showsNothingBeforeTheBoundary},
		{"CommitsBoundariesInOrder", commitsBoundariesInOrder},
		{"BeginsAtTheStoredPosition", beginsAtTheStoredPosition},
		{"StoresABoundaryWithoutMessages", storesABoundaryWithoutMessages},
		{"BeginShutsOutTheFormer", beginShutsOutTheFormer},
		{"BeginAbortsWhatACrashLeftOpen", beginAbortsWhatACrashLeftOpen},
		{"CloseAbortsWhatHasNoBoundary", closeAbortsWhatHasNoBoundary},
		{"KeepsSourcesApart", keepsSourcesApart},
	} {
		t.Run(test.name, func(t *testing.T) {
			subject := subject(t)
			requireNoneLeft := standing(t, subject.Outlives)
			test.run(t, subject)
			requireNoneLeft()
		})
	}
}

// transactional is an open sink, and what it reported.
type transactional struct {
	session
	of    sink.Source
	tx    sink.Transactional
	start sink.Position // that Begin returned

	mu     sync.Mutex
	ends   []pglogrepl.LSN // of successful commits
	failed error           // of the first that was not
	more   chan struct{}
}

func begin(t *testing.T, subject TransactionalSubject, source sink.Source) *transactional {
	t.Helper()
	s := &transactional{
		session: session{t: t, reports: newReports()}, of: subject.Source,
		more: make(chan struct{}, 1),
	}
	ctx := s.context()
	var err error
	s.tx, err = subject.Open(ctx, s.reports.done, s.committed)
	require.NoError(t, err)
	s.sink = s.tx
	t.Cleanup(func() { _ = s.sink.Close(context.Background()) }) // if the test ended early
	s.start, err = s.tx.Begin(ctx, source)
	require.NoError(t, err)
	return s
}

func (s *transactional) committed(end pglogrepl.LSN, err error) {
	s.mu.Lock()
	if err == nil {
		s.ends = append(s.ends, end)
	} else if s.failed == nil {
		s.failed = err
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// until waits for a commit that satisfies the condition.
func (s *transactional) until(what string, satisfied func(last pglogrepl.LSN, failed error) bool) {
	s.t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		s.mu.Lock()
		var last pglogrepl.LSN
		if n := len(s.ends); n > 0 {
			last = s.ends[n-1]
		}
		failed := s.failed
		s.mu.Unlock()
		if satisfied(last, failed) {
			return
		}
		select {
		case <-s.more:
		case <-late.C:
			require.FailNowf(s.t, "never "+what, "last commit %s, failure %v", last, failed)
		}
	}
}

func (s *transactional) untilCommitted(end pglogrepl.LSN) {
	s.t.Helper()
	s.until("committed", func(last pglogrepl.LSN, failed error) bool {
		require.NoError(s.t, failed)
		return last >= end
	})
}

func (s *transactional) boundary(lsn pglogrepl.LSN) {
	s.tx.Boundary(sink.Position{Source: s.of, LSN: lsn,
		CommitTime: time.UnixMicro(1_700_000_000_123_456)})
}

// requireSeen requires the numbered messages 0 to n-1, once each, ascending in each partition,
// once the markers of the commit are in the partitions.
func requireSeen(t *testing.T, subject TransactionalSubject, n int) {
	t.Helper()
	records := subject.Seen(t)
	for late := time.Now().Add(Patience); len(records) < n && time.Now().Before(late); {
		records = subject.Seen(t)
	}
	requireNumbered(t, records, n)
}

// upTo publishes messages, and waits until they are committed with a position.
func (s *transactional) upTo(end pglogrepl.LSN, ms ...*sink.Message) {
	s.t.Helper()
	s.publish(ms...)
	s.boundary(end)
	s.untilCommitted(end)
}

func showsNothingBeforeTheBoundary(t *testing.T, subject TransactionalSubject) {
	s := begin(t, subject, subject.Source)
	require.Zero(t, s.start)
	ms := numbered(subject.Topic, 100)
	s.publish(ms[:60]...)
	require.Empty(t, subject.Seen(t))
	s.publish(ms[60:]...)
	require.Empty(t, subject.Seen(t))
	s.upTo(1000)
	requireSeen(t, subject, 100)
	s.close()
}

func commitsBoundariesInOrder(t *testing.T, subject TransactionalSubject) {
	s := begin(t, subject, subject.Source)
	const transactions, size = 200, 5
	ms := numbered(subject.Topic, transactions*size)
	for i := range transactions {
		require.NoError(t, s.sink.Publish(context.Background(), ms[i*size:(i+1)*size]))
		s.boundary(pglogrepl.LSN(i + 1))
	}
	s.untilCommitted(transactions)
	s.mu.Lock()
	ends := s.ends
	s.mu.Unlock()
	require.IsIncreasing(t, append([]pglogrepl.LSN{0}, ends...))
	require.EqualValues(t, transactions, ends[len(ends)-1])
	requireSeen(t, subject, transactions*size)
	s.close()
}

func beginsAtTheStoredPosition(t *testing.T, subject TransactionalSubject) {
	ms := numbered(subject.Topic, 30)
	for i, end := range []pglogrepl.LSN{0x1_0000_0010, 0x1_0000_0020, 0x1_0000_0030} {
		s := begin(t, subject, subject.Source)
		if i > 0 {
			require.Equal(t, subject.Source, s.start.Source)
			require.Equal(t, end-0x10, s.start.LSN)
			require.True(t, s.start.CommitTime.Equal(time.UnixMicro(1_700_000_000_123_456)),
				s.start.CommitTime)
		}
		s.upTo(end, ms[i*10:(i+1)*10]...)
		s.close()
	}
	requireSeen(t, subject, 30)
}

func storesABoundaryWithoutMessages(t *testing.T, subject TransactionalSubject) {
	s := begin(t, subject, subject.Source)
	s.upTo(10)
	s.boundary(20)
	s.upTo(30)
	s.close()
	again := begin(t, subject, subject.Source)
	require.EqualValues(t, 30, again.start.LSN)
	again.close()
}

func beginShutsOutTheFormer(t *testing.T, subject TransactionalSubject) {
	ms := numbered(subject.Topic, 20)
	former := begin(t, subject, subject.Source)
	former.upTo(10, ms[:10]...)
	former.publish(ms[10:]...)

	latter := begin(t, subject, subject.Source)
	require.EqualValues(t, 10, latter.start.LSN)
	former.boundary(20)
	former.until("shut out", func(last pglogrepl.LSN, failed error) bool {
		require.LessOrEqual(t, last, pglogrepl.LSN(10))
		return failed != nil
	})
	requireSeen(t, subject, 10)

	latter.upTo(20, ms[10:]...)
	requireSeen(t, subject, 20)
	former.close()
	latter.close()
}

func beginAbortsWhatACrashLeftOpen(t *testing.T, subject TransactionalSubject) {
	ms := numbered(subject.Topic, 20)
	crashed := begin(t, subject, subject.Source)
	crashed.publish(ms[:10]...) // and sends nothing more

	s := begin(t, subject, subject.Source)
	require.Zero(t, s.start)
	s.upTo(20, ms...)
	requireSeen(t, subject, 20)
	s.close()
	crashed.close()
	requireSeen(t, subject, 20)
}

func closeAbortsWhatHasNoBoundary(t *testing.T, subject TransactionalSubject) {
	ms := numbered(subject.Topic, 20)
	s := begin(t, subject, subject.Source)
	s.upTo(10, ms[:10]...)
	s.publish(ms[10:]...)
	s.close()
	requireSeen(t, subject, 10)

	again := begin(t, subject, subject.Source)
	require.EqualValues(t, 10, again.start.LSN)
	again.close()
}

func keepsSourcesApart(t *testing.T, subject TransactionalSubject) {
	ms := numbered(subject.Topic, 20)
	one := begin(t, subject, subject.Source)
	one.publish(ms[:10]...)
	for _, change := range []func(*sink.Source){
		func(s *sink.Source) { s.SystemID += "1" },
		func(s *sink.Source) { s.Database += "_test" },
		func(s *sink.Source) { s.Slot += "_2" },
	} {
		source := subject.Source
		change(&source)
		other := begin(t, subject, source)
		require.Zero(t, other.start)
		other.close()
	}
	one.upTo(10) // none of them has shut it out
	one.close()

	source := subject.Source
	source.Timeline++ // goes on where the old primary stopped, and reports by whose position
	promoted := begin(t, subject, source)
	require.EqualValues(t, 10, promoted.start.LSN)
	require.Equal(t, subject.Source, promoted.start.Source)
	promoted.close()
}
