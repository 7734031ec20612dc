package backfill

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// saved is a record as it is written at a time of the writer's clock, behind the one before it.
func saved(t *testing.T, before *record, at phase, now time.Time) (*record, []byte) {
	t.Helper()
	r := &record{Slot: "s", Phase: at}
	if before != nil {
		r.SavedAt = before.SavedAt
	}
	r.stamp(now)
	document, err := json.Marshal(r)
	require.NoError(t, err)
	return r, document
}

func TestNewest_IgnoresARecordThatArrivesLate(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	_, late := saved(t, nil, phaseCreating, noon)
	first, creating := saved(t, nil, phaseCreating, noon.Add(time.Second))
	second, copying := saved(t, first, phaseCopying, noon.Add(-time.Hour)) // another host, whose clock is behind
	_, complete := saved(t, second, phaseComplete, noon.Add(-time.Hour))
	for name, order := range map[string][][]byte{
		"in time":           {late, creating, copying, complete},
		"behind the first":  {creating, late, copying, complete},
		"behind the last":   {creating, copying, complete, late},
		"and then repeated": {creating, copying, complete, late, complete},
	} {
		t.Run(name, func(t *testing.T) {
			var n newest
			for _, document := range order {
				n.add(document)
			}
			require.NoError(t, n.err)
			require.Equal(t, phaseComplete, n.record.Phase)
			require.Equal(t, complete, n.document)
			require.Equal(t, name == "behind the last", n.olderFollows)
		})
	}
}

func TestNewest_IsDeletedByAnEmptyValue(t *testing.T) {
	_, creating := saved(t, nil, phaseCreating, time.Now())
	_, later := saved(t, nil, phaseComplete, time.Now().Add(-time.Hour))
	var n newest
	n.add(creating)
	n.add(nil)
	require.Nil(t, n.record)
	n.add(later) // the next snapshot of the slot knows nothing of the one before
	require.Equal(t, phaseComplete, n.record.Phase)
}

func TestNewest_RefusesALastValueThatCannotBeRead(t *testing.T) {
	_, creating := saved(t, nil, phaseCreating, time.Now())
	var n newest
	n.add([]byte("{"))
	n.add(creating)
	require.NoError(t, n.err)
	n.add([]byte("{"))
	require.Error(t, n.err)
}

// history is a topic that has not been compacted yet.
type history struct {
	Store
	values [][]byte
}

func (h *history) Load(_ context.Context, _ string, each func([]byte)) error {
	for _, v := range h.values {
		each(v)
	}
	return nil
}

func (h *history) Save(_ context.Context, _ string, value []byte) error {
	h.values = append(h.values, value)
	return nil
}

// Compaction keeps what stands last. That has to be the newest, also when a late request has put an older one behind it.
func TestRecord_TheNewestIsWrittenBehindOneThatArrivesLate(t *testing.T) {
	h := &history{}
	r := &record{Slot: "s", Phase: phaseCopying}
	require.NoError(t, r.save(t.Context(), h))
	r.Phase = phaseComplete
	require.NoError(t, r.save(t.Context(), h))
	h.values[0], h.values[1] = h.values[1], h.values[0]
	for range 2 {
		found, err := load(t.Context(), h, "s")
		require.NoError(t, err)
		require.Equal(t, phaseComplete, found.Phase)
		require.Len(t, h.values, 3, "once is enough")
		require.Equal(t, h.values[0], h.values[2])
	}
}
