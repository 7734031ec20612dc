package logging

import (
	"bytes"
	"encoding/json"
	"errors"
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

// Text of a server is in messages and in errors, and the console may be a terminal.
func TestLogger_CommandsNoTerminal(t *testing.T) {
	const hostile = "a\x1b[2K\r\u202e\u009bb\n"
	var w bytes.Buffer
	log := testLogger(&w, config.Log{Level: "debug", Format: "console"})
	log.Error().Err(errors.New(hostile)).Str("table", hostile).Strs("columns", []string{hostile}).Msg(hostile)
	require.Contains(t, w.String(), "ERR a [2K   b ")
	require.Equal(t, 1, bytes.Count(w.Bytes(), []byte("\n")), "%q", w.String())
	require.False(t, bytes.ContainsAny(w.Bytes(), "\x1b\r\u202e\u009b"), "%q", w.String())
}

func testLogger(w io.Writer, cfg config.Log) zerolog.Logger {
	level := new(Level)
	level.Configure(cfg)
	return New(w, cfg, level, false)
}
