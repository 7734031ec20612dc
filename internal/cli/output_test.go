package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/slot"
)

// Names of databases, rows and records are of others, and a result is read on a terminal.
func TestOutput_CommandsNoTerminal(t *testing.T) {
	const hostile = "shop\x1b[2K\u202e\u009b\rb"
	var out, warned strings.Builder
	a := &app{Process: Process{Stdout: &out, Stderr: &warned, Stdin: strings.NewReader("")}}
	slots := []slot.Status{{Slot: slot.Slot{Name: "crm", Database: hostile + "\nforged  row"}}}
	require.NoError(t, a.print(nil, func(w io.Writer) error { return writeSlots(w, slots) }))
	require.Contains(t, out.String(), "shop [2K   b forged  row")
	require.NoError(t, a.print(nil, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, hostile)
		return err
	}))
	require.NoError(t, a.printf("%s\n", hostile))
	require.NoError(t, a.printJSON(hostile))
	require.NoError(t, writeResults(&out, []alerts.Result{{Receiver: "webhook", Error: hostile, Next: hostile + "\nmore\n"}}))
	require.Contains(t, out.String(), "b\n                more\n", "the advice keeps its lines")
	a.warn([]string{hostile})
	a.progress("%s", hostile)
	require.Error(t, a.confirm("crm", hostile))
	require.False(t, strings.ContainsAny(out.String()+warned.String(), "\x1b\u202e\u009b\r"), "%q %q", out.String(), warned.String())
}
