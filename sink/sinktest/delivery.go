package sinktest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

// numbered makes n messages with a few keys, whose values count up.
func numbered(topic string, n int) []*sink.Message {
	ms := make([]*sink.Message, n)
	for i := range ms {
		ms[i] = &sink.Message{
			Topic:     topic,
			Key:       fmt.Appendf(nil, "key-%d", i%13),
			Value:     strconv.AppendInt(nil, int64(i), 10),
			Partition: sink.ByKey,
			Headers:   []sink.Header{{Key: "id", Value: strconv.AppendInt(nil, int64(i), 10)}},
			Origin: sink.Origin{Index: uint32(i), EventID: strconv.Itoa(i), //nolint:gosec // small
				Relation: "public.outbox"},
		}
	}
	return ms
}

func number(t *testing.T, value []byte) int {
	t.Helper()
	n, err := strconv.Atoi(string(value))
	require.NoError(t, err)
	return n
}

func reportsEachMessageOnce(t *testing.T, s *session) {
	ms := numbered(s.subject.Topic, 2000)
	s.publishBy(50, ms...)
	require.Equal(t, len(ms), s.reports.count())
}

// leavesAloneWhatItHasAcknowledged uses each message for something else as soon as it is reported.
func leavesAloneWhatItHasAcknowledged(t *testing.T, s *session) {
	s.reports.spoil = true
	s.publishBy(20, numbered(s.subject.Topic, 2000)...)
	records := s.read(2000)
	requireNumbered(t, records, 2000)
	for _, r := range records {
		require.Equal(t, []sink.Header{{Key: "id", Value: r.Value}}, r.Headers)
		require.Equal(t, fmt.Sprintf("key-%d", number(t, r.Value)%13), string(r.Key))
	}
}

func reportsTheSameMessages(t *testing.T, s *session) {
	m := numbered(s.subject.Topic, 1)[0]
	before := *m
	s.publish(m)
	require.Same(t, m, s.reports.inOrder()[0])
	require.Equal(t, before, *m, "the sink changed the message")
}

func reportsInOrderPerPartition(t *testing.T, s *session) {
	ms := numbered(s.subject.Topic, 1000)
	s.publish(ms...)
	last := map[string]int{} // by key: equal keys share a partition
	for _, m := range s.reports.inOrder() {
		n := number(t, m.Value)
		before, seen := last[string(m.Key)]
		require.True(t, !seen || before < n, "key %s: %d reported after %d", m.Key, n, before)
		last[string(m.Key)] = n
	}
}

func deliversInOrderPerPartition(t *testing.T, s *session) {
	s.publishBy(30, numbered(s.subject.Topic, 3000)...)
	requireNumbered(t, s.read(3000), 3000)
}

// requireNumbered requires the numbered messages 0 to n-1, once each, ascending in each partition.
func requireNumbered(t *testing.T, records []Record, n int) {
	t.Helper()
	last, seen := map[int32]int{}, map[int]bool{}
	for _, r := range records {
		i := number(t, r.Value)
		require.False(t, seen[i], "%d was delivered twice", i)
		before, follows := last[r.Partition]
		require.True(t, !follows || before < i, "partition %d: %d follows %d", r.Partition, i, before)
		last[r.Partition], seen[i] = i, true
	}
	require.Len(t, seen, n)
}

func keepsNilAndEmptyApart(t *testing.T, s *session) {
	v, empty := []byte("v"), []byte{}
	pairs := [][2][]byte{{nil, v}, {empty, v}, {v, nil}, {v, empty}, {nil, nil}} // key, value
	ms := make([]*sink.Message, len(pairs))
	for i, pair := range pairs {
		ms[i] = &sink.Message{Topic: s.subject.Topic, Key: pair[0], Value: pair[1]}
	}
	s.publish(ms...)
	for i, r := range s.read(len(pairs)) {
		require.Equal(t, pairs[i], [2][]byte{r.Key, r.Value})
	}
}

func keepsHeaders(t *testing.T, s *session) {
	headers := []sink.Header{
		{Key: "b", Value: []byte("1")}, {Key: "a", Value: []byte{0, 0xff}},
		{Key: "b", Value: []byte("2")}, {Key: "null", Value: nil}, {Key: "empty", Value: []byte{}},
		{Key: "", Value: []byte("no name")}, {Key: "größe", Value: []byte("é")},
	}
	with := func(headers []sink.Header) *sink.Message {
		return &sink.Message{Topic: s.subject.Topic, Value: []byte("v"), Headers: headers}
	}
	s.publish(with(headers), with(nil))
	s.publish(with(headers[:1])) // after objects may have been reused
	records := s.read(3)
	require.Len(t, records[0].Headers, len(headers))
	for i, h := range records[0].Headers {
		require.Equal(t, headers[i].Key, h.Key)
		require.Equal(t, string(headers[i].Value), string(h.Value))
		require.Equal(t, headers[i].Value == nil, h.Value == nil, "null value of header %q", h.Key)
	}
	require.Empty(t, records[1].Headers)
	require.Equal(t, headers[:1], records[2].Headers)
}

func keepsTimestamps(t *testing.T, s *session) {
	at := time.Date(2024, 2, 29, 12, 30, 15, 123e6, time.UTC)
	before := time.Now().Truncate(time.Millisecond)
	for _, given := range []time.Time{at, at.Add(-time.Hour), {}} {
		s.publish(&sink.Message{Topic: s.subject.Topic, Value: []byte("v"), Timestamp: given})
	}
	records := s.read(3)
	require.True(t, at.Equal(records[0].Timestamp), "%s", records[0].Timestamp)
	require.True(t, at.Add(-time.Hour).Equal(records[1].Timestamp), "%s", records[1].Timestamp)
	require.WithinRange(t, records[2].Timestamp, before, time.Now())
}

func sendsToTheExplicitPartition(t *testing.T, s *session) {
	ms := numbered(s.subject.Topic, int(s.subject.Partitions)*10)
	for i, m := range ms {
		m.Partition = int32(i) % s.subject.Partitions //nolint:gosec // small
	}
	s.publish(ms...)
	for _, r := range s.read(len(ms)) {
		want := int32(number(t, r.Value)) % s.subject.Partitions //nolint:gosec // small
		require.Equal(t, want, r.Partition)
	}
}

func sendsEqualKeysToOnePartition(t *testing.T, s *session) {
	ms := numbered(s.subject.Topic, 500)
	s.publish(ms...)
	of := map[string]int32{}
	for _, r := range s.read(len(ms)) {
		partition, seen := of[string(r.Key)]
		require.True(t, !seen || partition == r.Partition, "key %s in partitions %d and %d", r.Key,
			partition, r.Partition)
		of[string(r.Key)] = r.Partition
	}
}

func takesNothingFromAnEmptyPublish(t *testing.T, s *session) {
	require.NoError(t, s.sink.Publish(s.context(), nil))
	require.Zero(t, s.reports.count())
	s.publish(numbered(s.subject.Topic, 1)...)
}

func refusesAnUnknownTopic(t *testing.T, s *session) {
	if s.subject.AnyTopic {
		s.publish(numbered("any.topic", 3)...)
		return
	}
	ms := numbered(s.subject.Topic, 3)
	ms[1].Topic = "nobody.made.this"
	err := s.sink.Publish(s.context(), ms)
	if err == nil { // then it has to be reported
		s.reports.wait(t, 2)
		err = s.reports.of(t, ms[1])
	}
	require.ErrorIs(t, err, sink.ErrUnknownTopic)
	var which *sink.MessageError
	require.ErrorAs(t, err, &which)
	require.Equal(t, "nobody.made.this", which.Topic)
	require.Equal(t, ms[1].Origin, which.Origin)
	require.NoError(t, s.sink.Close(s.context()))
	_ = s.reports.of(t, ms[0]) // the leading part was taken: it is reported, either way
}

func opensAgain(t *testing.T, s *session) {
	ms := numbered(s.subject.Topic, 200)
	s.publish(ms[:100]...)
	s.close()
	second := open(t, s.subject)
	second.publish(ms[100:]...)
	requireNumbered(t, second.read(len(ms)), len(ms))
	second.close()
}
