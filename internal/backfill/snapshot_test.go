package backfill

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

func TestDecide_WhatSlotAndRecordMeanTogether(t *testing.T) {
	const here, elsewhere = "1", "2"
	usable := foundSlot{slot.Slot{Name: "s", WALStatus: "reserved", ConfirmedFlushLSN: 100}}
	lost := foundSlot{slot.Slot{Name: "s", WALStatus: "lost", ConfirmedFlushLSN: 100}}
	missing := foundSlot{}
	rec := func(p phase, system string, at pglogrepl.LSN) *record {
		return &record{SystemID: system, Phase: p, ConsistentPoint: at.String()}
	}
	for _, c := range []struct {
		name     string
		now      foundSlot
		record   *record
		later    bool // not the first session
		keep     bool // slot.create is false
		initial  any  // a decision or an error
		ifNeeded any
	}{
		{name: "first start", now: missing, initial: create, ifNeeded: create},
		{name: "first start, but slots are made by somebody else", now: missing, keep: true, initial: stream, ifNeeded: stream},
		{name: "killed before the slot was there", now: missing, record: rec(phaseCreating, here, 0), initial: create, ifNeeded: create},
		{name: "killed when the slot was just there", now: usable, record: rec(phaseCreating, here, 0), initial: resume, ifNeeded: resume},
		{name: "killed while copying", now: usable, record: rec(phaseCopying, here, 100), initial: resume, ifNeeded: resume},
		{name: "streamed or recreated while copying", now: usable, record: rec(phaseCopying, here, 50), initial: slot.ErrNoSnapshot, ifNeeded: slot.ErrNoSnapshot},
		{name: "complete", now: usable, record: rec(phaseComplete, here, 100), initial: stream, ifNeeded: stream},
		{name: "complete, and streamed since", now: usable, record: rec(phaseComplete, here, 50), initial: stream, ifNeeded: stream},
		{name: "complete, and the server was upgraded", now: usable, record: rec(phaseComplete, elsewhere, 100), initial: stream, ifNeeded: stream},
		{name: "somebody else's slot", now: usable, initial: stream, ifNeeded: stream},
		{name: "dropped after it was complete", now: missing, record: rec(phaseComplete, here, 100), initial: replication.ErrSlotLost, ifNeeded: create},
		{name: "dropped while copying", now: missing, record: rec(phaseCopying, here, 100), initial: replication.ErrSlotLost, ifNeeded: create},
		{name: "dropped while we ran", now: missing, later: true, initial: replication.ErrSlotLost, ifNeeded: create},
		{name: "lost", now: lost, record: rec(phaseComplete, here, 100), initial: stream, ifNeeded: create}, // slot.Prepare says that it is lost
		{name: "lost while copying", now: lost, record: rec(phaseCopying, here, 100), initial: stream, ifNeeded: create},
		{name: "somebody else's slot, lost", now: lost, initial: stream, ifNeeded: create},
		{name: "another server without the slot", now: missing, record: rec(phaseComplete, elsewhere, 100), initial: slot.ErrNoSnapshot, ifNeeded: create},
		{name: "another server with the slot, while copying", now: usable, record: rec(phaseCopying, elsewhere, 100), initial: slot.ErrNoSnapshot, ifNeeded: slot.ErrNoSnapshot},
	} {
		for mode, want := range map[string]any{Initial: c.initial, WhenNeeded: c.ifNeeded} {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				s := NewSnapshot(Config{Mode: mode, Topic: "t"}, SnapshotParts{Parts: Parts{Need: slot.Requirements{Slot: slot.Config{Name: "s", Create: !c.keep}}}})
				got, err := s.decide(c.now, c.record, here, !c.later)
				if failure, isError := want.(error); isError {
					require.ErrorIs(t, err, failure)
					return
				}
				require.NoError(t, err)
				require.Equal(t, want, got)
			})
		}
	}
}

func TestConfig_Validate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	require.ErrorContains(t, Config{Mode: "always", Topic: "t"}.Validate(), `snapshot.mode = "always": must be no_data, initial or when_needed`)
	require.ErrorContains(t, Config{Mode: Initial, Topic: "a b"}.Validate(), "snapshot.topic")
}
