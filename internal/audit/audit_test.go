package audit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// good is a run without a fault: two keys, 100 events each.
func good() *Tally {
	t := New()
	for n := uint64(1); n <= 100; n++ {
		for _, k := range []string{"a", "b"} {
			t.Wrote(k, n)
			t.Received(k, n)
		}
	}
	return t
}

func TestVerdict_GoodRunIsClean(t *testing.T) {
	v := good().Verdict()
	require.True(t, v.Clean())
	require.Equal(t, Verdict{Written: 200, Delivered: 200}, v)
}

func TestVerdict_FindsALostEvent(t *testing.T) {
	tally := good()
	tally.Wrote("a", 101)
	tally.Wrote("a", 102)
	tally.Received("a", 102)
	require.Equal(t, Verdict{Written: 202, Delivered: 201, Lost: 1, Partial: 1}, tally.Verdict())
}

func TestVerdict_FindsALostKey(t *testing.T) {
	tally := good()
	tally.Wrote("c", 1)
	require.Equal(t, int64(1), tally.Verdict().Lost)
}

func TestVerdict_FindsADuplicate(t *testing.T) {
	tally := good()
	require.False(t, tally.Received("a", 7))
	v := tally.Verdict()
	require.Equal(t, int64(1), v.Duplicated)
	require.Zero(t, v.OutOfOrder, "a repeated event is not out of order")
}

func TestVerdict_FindsASwappedPair(t *testing.T) {
	tally := good()
	tally.Wrote("a", 101)
	tally.Wrote("a", 102)
	tally.Received("a", 102)
	tally.Received("a", 101)
	require.Equal(t, int64(1), tally.Verdict().OutOfOrder)
}

func TestVerdict_FindsAnUnexpectedRecord(t *testing.T) {
	tally := good()
	tally.Received("a", 101)
	require.Equal(t, int64(1), tally.Verdict().Phantom)
}

func TestVerdict_AcceptsARepetitionThatGoesOnToItsBeginning(t *testing.T) {
	tally := good()
	for n := uint64(90); n <= 100; n++ {
		tally.Received("a", n)
	}
	tally.Wrote("a", 101)
	tally.Received("a", 101)
	v := tally.Verdict()
	require.Equal(t, int64(11), v.Duplicated)
	require.Zero(t, v.Partial)
}

func TestVerdict_FindsARepetitionThatEndsTooSoon(t *testing.T) {
	tally := good()
	tally.Received("a", 90)
	tally.Wrote("a", 101)
	tally.Received("a", 101)
	require.Equal(t, int64(1), tally.Verdict().Partial)
}
