package alerts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
)

func TestIncident_HasToBeGoneForLongerTheMoreOftenItComesBack(t *testing.T) {
	var e incident
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	c := condition("PostriderPaused", health.Warning, 0)
	// round lets it fire for a minute and be gone for longer than it has to, and returns for how long
	// it had to.
	round := func() time.Duration {
		e.update(now, &c, false)
		require.True(t, e.firing)
		gone := now
		for e.firing {
			now = now.Add(time.Second)
			e.update(now, nil, false)
		}
		return now.Sub(gone)
	}
	var had []time.Duration
	for range 8 {
		had = append(had, round())
		now = now.Add(10 * time.Second)
	}
	s := time.Second
	require.Equal(t, []time.Duration{
		30 * s, 60 * s, 120 * s, 240 * s, 480 * s, 900 * s, 900 * s, 900 * s,
	}, had)
	now = now.Add(flapping)
	require.Equal(t, resolveAfter, round(), "what was quiet for an hour begins anew")
}

func TestIncident_HoldsOnWhileItComesAndGoes(t *testing.T) {
	var e incident
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	c := condition("PostriderNotReady", health.Critical, time.Minute)
	e.update(now, &c, true)
	began := e.startsAt
	for range 100 {
		now = now.Add(10 * time.Second)
		e.update(now, nil, false)
		now = now.Add(4 * time.Second)
		e.update(now, &c, false)
		require.True(t, e.firing)
		require.Equal(t, critical, e.severity)
		require.Equal(t, began, e.startsAt)
	}
}

func TestGravest_KeepsOneOfEachName(t *testing.T) {
	low, high := condition("a", health.Info, 0), condition("a", health.Critical, 0)
	other := condition("b", "unheard of", 0)
	m := mostSevere([]health.Condition{low, high, other})
	require.Len(t, m, 2)
	require.Equal(t, high, *m["a"])
	require.Equal(t, warning, rankOf(m["b"].Severity), "a severity that nobody knows is one that "+
		"somebody should look at")
	require.Empty(t, mostSevere(nil))
}
