package terminal_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/terminal"
)

// commands are what a terminal obeys: ESC, CSI as one character, carriage return, backspace, and what turns the direction of the text.
const commands = "\x1b\u009b\r\b\x7f\u202e\u2066\u2028"

func TestText_CommandsNoTerminal(t *testing.T) {
	hostile := "a" + commands + "b\nc\td" + commands
	for name, text := range map[string]string{
		"Printable": terminal.Printable(hostile), "OneLine": terminal.OneLine(hostile), "Lines": terminal.Lines(hostile),
		"Indent": terminal.Indent(hostile), "invalid UTF-8": terminal.Lines("\x9b\x1b[2K" + hostile),
	} {
		require.False(t, strings.ContainsAny(text, commands), "%s: %q", name, text)
	}
	require.Equal(t, "a b c d", terminal.OneLine(hostile))
	require.Equal(t, "one\ttwo\nthree", terminal.Lines("one\ttwo\nthree"))
	require.Equal(t, "one\n  two", terminal.Indent("one\ntwo\n\n"))
	require.Equal(t, "größe 👨‍👩‍👧 سلام", terminal.Printable("größe 👨‍👩‍👧 سلام"), "letters of any language stay")
}

func TestJSON_CommandsNoTerminalAndMeansTheSame(t *testing.T) {
	hostile := []string{"größe 👨‍👩‍👧 \U0001F600", commands}
	var b strings.Builder
	e := json.NewEncoder(terminal.JSON(&b))
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(hostile))
	require.False(t, strings.ContainsAny(b.String(), commands), "%q", b.String())
	require.Contains(t, b.String(), "größe 👨‍👩‍👧")
	var read []string
	require.NoError(t, json.Unmarshal([]byte(b.String()), &read))
	require.Equal(t, hostile, read)
}

func TestShellWord_IsOneWordForAShell(t *testing.T) {
	for word, want := range map[string]string{
		"shop.toml": "shop.toml", "sink.kafka.brokers=kafka-1:9092": "sink.kafka.brokers=kafka-1:9092", "ABC/def@x%y+z": "ABC/def@x%y+z",
		"it's here": `'it'\''s here'`, "": "''", "-": "'-'", "$ConnectionString": "'$ConnectionString'", "a;b`c`": "'a;b`c`'", "a,b": "'a,b'", "größe": "'größe'",
	} {
		quoted := terminal.ShellWord(word)
		require.Equal(t, want, quoted)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s|' "+quoted).Output()
		require.NoError(t, err)
		require.Equal(t, word+"|", string(out))
	}
	require.Equal(t, "'a b'", terminal.ShellWord("a\x1bb"), "it commands no terminal")
}
