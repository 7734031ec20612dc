package logging

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
)

func TestLogger_WritesJSONToAPipe(t *testing.T) {
	var w bytes.Buffer
	log := testLogger(&w, config.Log{Level: "info", Format: "auto"})
	log.Debug().Msg("not written")
	log.Info().Dur("duration", 1500*time.Millisecond).Msg("session opened")

	var line map[string]any
	require.NoError(t, json.Unmarshal(w.Bytes(), &line), w.String())
	require.Equal(t, "info", line["level"])
	require.Equal(t, "session opened", line["message"])
	require.Equal(t, 1.5, line["duration"], "seconds")
	_, err := time.Parse(time.RFC3339Nano, line["time"].(string))
	require.NoError(t, err)
}

func TestLogger_WritesTextWithoutColoursWhenAskedTo(t *testing.T) {
	var w bytes.Buffer
	log := testLogger(&w, config.Log{Level: "debug", Format: "console"})
	log.Debug().Str("slot", "postrider").Msg("session opened")
	require.Contains(t, w.String(), "DBG session opened slot=postrider")
	require.NotContains(t, w.String(), "\x1b", "not a terminal")
}

func testLogger(w io.Writer, cfg config.Log) zerolog.Logger {
	level := new(Level)
	level.Configure(cfg)
	return New(w, cfg, level, false)
}
