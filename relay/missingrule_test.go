package relay

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/sink"
)

var (
	errMissing = fmt.Errorf("look up: %w", sink.ErrUnknownTopic)
	errAway    = fmt.Errorf("look up: %w", sink.ErrUnreachable)
)

func clock(policy deadletter.Policy, after time.Duration) *missing {
	policies := deadletter.DefaultConfig()
	policies.UnknownTopic, policies.UnknownTopicAfter = policy, after
	m := newMissing(DefaultConfig(), policies)
	return &m
}

func TestMissing_CountsOnlyTimeOverWhichEachAnswerIsThatTheTopicIsMissing(t *testing.T) {
	start := time.Now()
	type step struct {
		at     time.Duration // since the step before
		answer error
		poison bool
	}
	const beat = 30 * time.Second
	for name, steps := range map[string][]step{
		"missing all the time": {{beat, errMissing, false}, {beat, errMissing, false}, {beat, errMissing, false}, {beat, errMissing, false}, {beat, errMissing, true}},
		"there in between": {{beat, errMissing, false}, {beat, errMissing, false}, {beat, nil, false}, {beat, errMissing, false}, {beat, errMissing, false},
			{beat, errMissing, false}, {beat, errMissing, false}, {beat, errMissing, true}},
		"away in between": {{beat, errMissing, false}, {beat, errMissing, false}, {beat, errMissing, false}, {beat, errAway, false}, {beat, errMissing, false}},
		"refused in between": {{beat, errMissing, false}, {beat, errMissing, false}, {beat, errMissing, false},
			{beat, sink.ErrPermission, false}, {beat, errMissing, false}},
		"no request for long":   {{beat, errMissing, false}, {10 * time.Minute, errMissing, false}, {beat, errMissing, false}},
		"settled, and away":     {{beat, errMissing, false}, {time.Minute, errMissing, false}, {time.Minute, errMissing, true}, {beat, errAway, false}, {beat, errMissing, true}},
		"settled, and there":    {{beat, errMissing, false}, {time.Minute, errMissing, false}, {time.Minute, errMissing, true}, {beat, nil, false}, {beat, errMissing, false}},
		"settled, and hours on": {{beat, errMissing, false}, {time.Minute, errMissing, false}, {time.Minute, errMissing, true}, {5 * time.Hour, errMissing, true}},
	} {
		t.Run(name, func(t *testing.T) {
			m, now := clock(deadletter.DeadLetter, 2*time.Minute), start
			for i, s := range steps {
				now = now.Add(s.at)
				require.Equal(t, s.poison, m.judge("typo", s.answer, now), "step %d", i)
			}
		})
	}
}

func TestMissing_HaltWaitsForEver(t *testing.T) {
	m, now := clock(deadletter.Halt, time.Second), time.Now()
	for i := range 1000 {
		require.False(t, m.judge("typo", errMissing, now.Add(time.Duration(i)*10*time.Second)))
	}
}

// The names come from rows: there may be any number of them.
func TestMissing_RemembersABoundedNumberOfTopics(t *testing.T) {
	m, now := clock(deadletter.DeadLetter, time.Second), time.Now()
	for i := range 10 * missingTopics {
		m.judge(fmt.Sprintf("typo %d", i), errMissing, now.Add(time.Duration(i)*time.Millisecond))
	}
	require.Len(t, m.topics, missingTopics)
	require.Contains(t, m.topics, fmt.Sprintf("typo %d", 10*missingTopics-1))
}

// A session that ended for another reason is no report about the topic; one that was not the cluster's turn is none against it.
func TestMissing_AnotherFailureBeginsTheTimeAnew(t *testing.T) {
	m, now := clock(deadletter.DeadLetter, time.Minute), time.Now()
	m.judge("typo", errMissing, now)
	m.judge("settled", errMissing, now.Add(-time.Minute))
	require.True(t, m.judge("settled", errMissing, now))
	m.forgetUnsettled()
	require.False(t, m.judge("typo", errMissing, now.Add(time.Minute)))
	require.True(t, m.judge("settled", errMissing, now.Add(time.Minute)))
}

func TestMissing_TellsWhatBecomesOfTheRow(t *testing.T) {
	row := &sink.MessageError{Topic: "typo", Err: errMissing}
	halt := new(HaltError)
	require.ErrorAs(t, clock(deadletter.Halt, time.Minute).explain("typo", row), &halt)
	require.Equal(t, deadletter.UnknownTopic, halt.Cause)
	m := clock(deadletter.Skip, time.Minute)
	require.ErrorContains(t, m.explain("typo", row), "deadletter.unknown_topic decides once the topic has been missing for 1m0s")
	m.judge("typo", errMissing, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	require.ErrorContains(t, m.explain("typo", row), "deadletter.unknown_topic decides at 2026-01-02T03:05:05Z")
	other := errors.New("other")
	require.Equal(t, other, m.explain("typo", other))
}
