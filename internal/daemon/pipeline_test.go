package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
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
