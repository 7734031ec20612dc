package daemon

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot/partition"
)

// What is counted stays as it is, or what was published before would not be recognised.
func TestPipeline_WitnessesTheHistoryWithExactlyOnce(t *testing.T) {
	cfg := config.Default()
	require.False(t, streamed(cfg).Witness)
	cfg.Relay.ExactlyOnce = true
	require.True(t, streamed(cfg).Witness)
	require.Empty(t, streamed(cfg).Messages)
	require.Equal(t, cfg.Replication.Publication, counted(streamed(cfg)))
}

// Rows of a relation that the router has forgotten may come again when it is dropped.
func TestPipeline_RemembersWhatTheRouterForgets(t *testing.T) {
	cfg := config.Default()
	cfg.Replication.Tables = []string{"public.outbox"}
	p := Unmeasured(Environment{}, cfg, zerolog.Nop())
	p.rowsFrom(1)
	r, err := p.NewRouter()
	require.NoError(t, err)
	again := func(oid uint32) (known bool) {
		rel := &replication.Relation{OID: oid, Namespace: "public", Name: "staging"}
		_, known = p.assigner.Remembered(partition.FirstRow{Relation: rel, LSN: 20})
		return known
	}
	for oid := range uint32(2000) {
		p.assigner.Remember(1, oid+1, "", 10, 10) // or the router would ask the server
		rel := &replication.Relation{OID: oid + 1, Namespace: "public", Name: "staging"}
		for _, lsn := range []pglogrepl.LSN{10, 20} {
			m, err := r.Route(&replication.Event{Kind: replication.Insert, Relation: rel, LSN: lsn})
			require.NoError(t, err)
			require.Nil(t, m)
		}
	}
	require.True(t, again(1), "the router has forgotten it")
	require.False(t, again(2000), "the router knows it")
}
