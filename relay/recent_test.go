package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

func TestRecent_KeepsASampleOfTheNewest(t *testing.T) {
	r := &Relay{}
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for i := range 3 * recentEvents {
		m := &sink.Message{Topic: "orders", Value: []byte("secret"), Origin: sink.Origin{EventID: fmt.Sprint(i), LSN: 0x1_0000_0010, CommitTime: at}}
		r.recent.delivered(m, at.Add(time.Duration(i)*recentInterval), 3*time.Millisecond)
		r.recent.delivered(m, at.Add(time.Duration(i)*recentInterval+recentInterval/2), 0) // too soon
	}
	events := r.Recent()
	require.Len(t, events, recentEvents)
	for i, e := range events {
		require.Equal(t, fmt.Sprint(3*recentEvents-1-i), e.EventID)
	}
	require.Equal(t, Published{
		At: at.Add(time.Duration(3*recentEvents-1) * recentInterval), Topic: "orders", EventID: "299", LSN: "1/10", CommitTime: at,
		LatencySeconds: 0.003, Bytes: 6,
	}, events[0])
}

func TestRecent_GoesOnWhenTheClockIsSetBack(t *testing.T) {
	var r recent
	now := time.Now()
	for i := range 3 {
		r.delivered(&sink.Message{Topic: "orders"}, now.Add(-time.Duration(i)*time.Hour).Round(0), 0)
	}
	require.Len(t, r.events, 3)
}

func TestRecent_KeepsNoMemoryOfABatch(t *testing.T) {
	r := &Relay{}
	batch := "order" + strings.Repeat("x", 1<<20)
	m := &sink.Message{Topic: batch[:5], Origin: sink.Origin{EventID: batch[:3], Relation: batch[:4]}}
	r.recent.delivered(m, time.Now(), 0)
	r.recent.refusedBy(m.Topic, sink.ErrTooLarge)
	for topic := range r.Refused() {
		require.NotSame(t, unsafe.StringData(batch), unsafe.StringData(topic))
	}
	for _, kept := range []string{r.Recent()[0].Topic, r.Recent()[0].EventID, r.Recent()[0].Relation} {
		require.NotSame(t, unsafe.StringData(batch), unsafe.StringData(kept))
	}
}

func TestRecent_GroupsFailuresByReason(t *testing.T) {
	r := &Relay{}
	require.Empty(t, r.Failures())
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	r.recent.failed(Failure{Reason: "broker_unreachable", Text: "first"}, at)
	r.recent.failed(Failure{Reason: "terminated", Text: "other"}, at.Add(time.Second))
	r.recent.failed(Failure{Reason: "broker_unreachable", Text: "second"}, at.Add(2*time.Second))
	require.Equal(t, []Failure{
		{Reason: "broker_unreachable", Text: "second", Count: 2, FirstSeen: at, LastSeen: at.Add(2 * time.Second)},
		{Reason: "terminated", Text: "other", Count: 1, FirstSeen: at.Add(time.Second), LastSeen: at.Add(time.Second)},
	}, r.Failures())
}

func TestRecent_CountsWhatATopicRefused(t *testing.T) {
	r := &Relay{}
	r.recent.refusedBy("orders", fmt.Errorf("x: %w", sink.ErrTooLarge))
	r.recent.refusedBy("orders", sink.ErrClosed)
	r.recent.refusedBy("payments", sink.ErrUnreachable)
	require.Equal(t, map[string]int{"orders": 1}, r.Refused())
}

func TestRecent_LogsAttemptsThatFailForOneCauseOnceAMinute(t *testing.T) {
	r := &Relay{}
	began := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	lines := map[string]int{}
	for second := range 180 { // each cause every two seconds
		text := []string{"refused", "reset"}[second%2]
		if r.recent.shouldLog(1, text, began.Add(time.Duration(second)*time.Second)) {
			lines[text]++
		}
	}
	require.Equal(t, map[string]int{"refused": 3, "reset": 3}, lines)
	now := began.Add(180 * time.Second)
	require.True(t, r.recent.shouldLog(1, "refused", now))
	require.False(t, r.recent.shouldLog(1, "refused", now))
	require.True(t, r.recent.shouldLog(1, "starting", now))
	require.True(t, r.recent.shouldLog(2, "refused", now), "a session was opened meanwhile")
	for i := range 10_000 {
		r.recent.shouldLog(2, fmt.Sprint(i), now.Add(time.Duration(i)*time.Second))
	}
	require.LessOrEqual(t, len(r.recent.logged.lines), 60)
}
