// Package sinktest is the contract of package sink as a test suite. Every sink runs it.
//
//	sinktest.go      Run: the suite, and the session of a test
//	delivery.go      what a sink delivers, and where
//	ending.go        Close, stalls and contexts that end
//	reports.go       what a sink has reported
//	transactional.go RunTransactional: what sink.Transactional promises on top
package sinktest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/sink"
)

// Patience bounds every wait of the suite. What is waited for normally takes milliseconds.
const Patience = time.Minute

// Subject is a sink under test together with what stands behind it. Each test gets one of its own.
type Subject struct {
	// Open makes a session, as the relay does.
	Open sink.Open
	// Topic exists and has Partitions partitions, at least two, and nothing in it.
	Topic      string
	Partitions int32
	// Read returns the records of Topic in the order of each partition, at least n of them.
	Read func(t *testing.T, n int) []Record
	// Stall makes the broker accept and not answer, until resume is called. Nil: this sink cannot
	// stall.
	Stall func(t *testing.T) (resume func())
	// AnyTopic: there are no unknown topics here.
	AnyTopic bool
	// Outlives names functions whose goroutines may be there after Close: of a broker in the same
	// process, or of a library, if they end by themselves and nothing can hurry them.
	Outlives []string
}

// Record is what a reader finds.
type Record struct {
	Partition  int32
	Key, Value []byte // nil: null
	Headers    []sink.Header
	Timestamp  time.Time
}

// Run runs the suite; not in a parallel test, since it looks for goroutines that are left. subject
// is called once for each test and cleans up with t.Cleanup.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *session)
	}{
		{"ReportsEachMessageOnce", reportsEachMessageOnce},
		{"ReportsTheSameMessages", reportsTheSameMessages},
		{"LeavesAloneWhatItHasAcknowledged", leavesAloneWhatItHasAcknowledged},
		{"ReportsInOrderPerPartition", reportsInOrderPerPartition},
		{"DeliversInOrderPerPartition", deliversInOrderPerPartition},
		{"KeepsNilAndEmptyApart", keepsNilAndEmptyApart},
		{"KeepsHeaders", keepsHeaders},
		{"KeepsTimestamps", keepsTimestamps},
		{"SendsToTheExplicitPartition", sendsToTheExplicitPartition},
		{"SendsEqualKeysToOnePartition", sendsEqualKeysToOnePartition},
		{"TakesNothingFromAnEmptyPublish", takesNothingFromAnEmptyPublish},
		{"RefusesAnUnknownTopic", refusesAnUnknownTopic},
		{"RefusesPublishAfterClose", refusesPublishAfterClose},
		{"ClosesTwice", closesTwice},
		{"ClosesDuringPublish", closesDuringPublish},
		{"ReportsInFlightWhenClosed", reportsInFlightWhenClosed},
		{"CatchesUpAfterAStall", catchesUpAfterAStall},
		{"ReturnsFromPublishWhenTheContextEnds", returnsFromPublishWhenTheContextEnds},
		{"OpensAgain", opensAgain},
	} {
		t.Run(test.name, func(t *testing.T) {
			subject := subject(t)
			requireNoneLeft := standing(t, subject.Outlives)
			s := open(t, subject)
			test.run(t, s)
			s.close()
			requireNoneLeft()
		})
	}
}

// standing returns a check that no goroutines are left but those that exist now and those of the
// named functions. It waits longer than goleak: a busy machine may not run them for half a
// second.
func standing(t *testing.T, outlives []string) func() {
	options := []goleak.Option{goleak.IgnoreCurrent()}
	for _, function := range outlives {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	return func() {
		t.Helper()
		err := goleak.Find(options...)
		for began := time.Now(); err != nil && time.Since(began) < Patience; {
			err = goleak.Find(options...)
		}
		require.NoError(t, err)
	}
}

// session is an open sink and what it reported.
type session struct {
	t       *testing.T
	subject Subject
	sink    sink.Sink
	reports *reports
}

func open(t *testing.T, subject Subject) *session {
	t.Helper()
	s := &session{t: t, subject: subject, reports: newReports()}
	var err error
	s.sink, err = subject.Open(s.context(), s.reports.done)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.sink.Close(context.Background()) }) // if the test ended early
	return s
}

// context ends with the test, or when patience does.
func (s *session) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *session) close() {
	s.t.Helper()
	require.NoError(s.t, s.sink.Close(s.context()))
	s.reports.requireOnce(s.t)
}

// publish hands over messages and waits until all of them are delivered.
func (s *session) publish(ms ...*sink.Message) {
	s.t.Helper()
	s.publishBy(max(len(ms), 1), ms...)
}

// publishBy is publish with at most so many messages at once.
func (s *session) publishBy(most int, ms ...*sink.Message) {
	s.t.Helper()
	before := s.reports.count()
	for part := range slices.Chunk(ms, most) {
		require.NoError(s.t, s.sink.Publish(s.context(), part))
	}
	s.reports.wait(s.t, before+len(ms))
	for _, m := range ms {
		require.NoError(s.t, s.reports.of(s.t, m))
	}
}

// read returns the records of the topic, of which there must be n.
func (s *session) read(n int) []Record {
	s.t.Helper()
	records := s.subject.Read(s.t, n)
	require.Len(s.t, records, n)
	return records
}
