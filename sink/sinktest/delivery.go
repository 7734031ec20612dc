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
			Origin: sink.Origin{
				Index:   uint32(i), //nolint:gosec // small
				EventID: strconv.Itoa(i), Relation: "public.outbox",
			},
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
	for at := 0; at < len(ms); at += 50 {
		require.NoError(t, s.sink.Publish(s.context(), ms[at:at+50]))
	}
	s.reports.wait(t, len(ms))
	for _, m := range ms {
		require.NoError(t, s.reports.of(t, m))
	}
	require.Equal(t, len(ms), s.reports.count())
}

// leavesAloneWhatItHasAcknowledged uses each message for something else as soon as it is reported.
func leavesAloneWhatItHasAcknowledged(t *testing.T, s *session) {
	s.reports.spoil = true
	ms := numbered(s.subject.Topic, 2000)
	for at := 0; at < len(ms); at += 20 {
		require.NoError(t, s.sink.Publish(s.context(), ms[at:at+20]))
	}
	s.reports.wait(t, len(ms))
	requireDelivered(t, s, len(ms))
	if !s.readable() {
		return
	}
	for _, r := range s.read(len(ms)) {
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
	ms := numbered(s.subject.Topic, 3000)
	for at := 0; at < len(ms); at += 30 {
		require.NoError(t, s.sink.Publish(s.context(), ms[at:at+30]))
	}
	s.reports.wait(t, len(ms))
	requireDelivered(t, s, len(ms))
}

// requireDelivered requires the numbered messages 0 to n-1 in the topic.
func requireDelivered(t *testing.T, s *session, n int) {
	t.Helper()
	if s.readable() {
		requireNumbered(t, s.read(n), n)
	}
}

// requireNumbered requires the numbered messages 0 to n-1, once each, ascending in each partition.
func requireNumbered(t *testing.T, records []Record, n int) {
	t.Helper()
	last, seen := map[int32]int{}, map[int]bool{}
	for _, r := range records {
		i := number(t, r.Value)
		require.False(t, seen[i], "%d was delivered twice", i)
		before, follows := last[r.Partition]
		require.True(t, !follows || before < i,
			"partition %d: %d follows %d", r.Partition, i, before)
		last[r.Partition], seen[i] = i, true
	}
	require.Len(t, seen, n)
}

func keepsNilAndEmptyApart(t *testing.T, s *session) {
	to := func(key, value []byte) *sink.Message {
		return &sink.Message{Topic: s.subject.Topic, Key: key, Value: value, Partition: 0}
	}
	s.publish(to(nil, []byte("v")), to([]byte{}, []byte("v")), to([]byte("k"), nil),
		to([]byte("k"), []byte{}), to(nil, nil))
	if !s.readable() {
		return
	}
	records := s.read(5)
	require.Nil(t, records[0].Key)
	require.NotNil(t, records[1].Key)
	require.Empty(t, records[1].Key)
	require.Nil(t, records[2].Value)
	require.NotNil(t, records[3].Value)
	require.Empty(t, records[3].Value)
	require.Nil(t, records[4].Key)
	require.Nil(t, records[4].Value)
}

func keepsHeaders(t *testing.T, s *session) {
	headers := []sink.Header{
		{Key: "b", Value: []byte("1")},
		{Key: "a", Value: []byte{0, 0xff}},
		{Key: "b", Value: []byte("2")},
		{Key: "null", Value: nil},
		{Key: "empty", Value: []byte{}},
		{Key: "", Value: []byte("no name")},
		{Key: "größe", Value: []byte("é")},
	}
	with := &sink.Message{Topic: s.subject.Topic, Value: []byte("with"), Headers: headers}
	without := &sink.Message{Topic: s.subject.Topic, Value: []byte("without")}
	s.publish(with, without)
	// after objects may have been reused
	s.publish(&sink.Message{Topic: s.subject.Topic, Value: []byte("one"), Headers: headers[:1]})
	if !s.readable() {
		return
	}
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
	s.publish(&sink.Message{Topic: s.subject.Topic, Value: []byte("given"), Timestamp: at})
	s.publish(&sink.Message{Topic: s.subject.Topic, Value: []byte("later"),
		Timestamp: at.Add(-time.Hour)})
	s.publish(&sink.Message{Topic: s.subject.Topic, Value: []byte("clock")})
	if !s.readable() {
		return
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
	if !s.readable() {
		return
	}
	for _, r := range s.read(len(ms)) {
		want := int32(number(t, r.Value)) % s.subject.Partitions //nolint:gosec // small
		require.Equal(t, want, r.Partition)
	}
}

func sendsEqualKeysToOnePartition(t *testing.T, s *session) {
	ms := numbered(s.subject.Topic, 500)
	s.publish(ms...)
	if !s.readable() {
		return
	}
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
	requireDelivered(t, second, len(ms))
	second.close()
}
