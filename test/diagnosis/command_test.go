package diagnosis

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	findings "github.com/postrider/postrider/internal/check"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/cli"
	"github.com/postrider/postrider/test/parts"
)

// The commands of the matrix. Those that stream go on until a signal comes, whatever is wrong, and so
// are processes of their own.
const (
	run        = "run"
	check      = "check"
	initialise = "init"
	tail       = "tail"
	dryRun     = "run --dry-run"
	status     = "status"
	audit      = "audit"
	compare    = "audit compare"
	recovering = "recover"
	slotShow   = "slot show"
	letters    = "deadletter list"
)

var commands = []string{
	run, check, initialise, tail, dryRun, status, audit, compare, recovering, slotShow, letters,
}

func streams(command string) bool {
	return slices.Contains([]string{run, tail, dryRun, compare}, command)
}

// said is what a command has printed of a cause: a text on one line, and what to type next.
type said struct {
	code int // of exit; -1: it goes on
	text string
	next string
}

// ask has a command say what is wrong. What it says beyond the cause is in the text, too.
func (s *site) ask(t *testing.T, command string, cause *regexp.Regexp) said {
	t.Helper()
	switch {
	case streams(command):
		return s.watch(t, command, cause)
	case command == check:
		return s.check(t, cause)
	}
	return s.execute(t, strings.Fields(command)...)
}

// execute runs a command within this process.
func (s *site) execute(t *testing.T, args ...string) said {
	t.Helper()
	if !slices.Contains(args, "--config") {
		args = append(args, "--config", s.file)
	}
	code, stdout, stderr := within(t, args...)
	text := stdout + stderr
	return said{code, oneLine(text), nextOf(text)}
}

// within runs a command that ends by itself.
func within(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	example, err := os.ReadFile("../../config.example.toml")
	require.NoError(t, err)
	var out, errs bytes.Buffer
	p := cli.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Example: string(example),
	}
	ended := make(chan int, 1)
	go func() { ended <- cli.Main(p) }()
	select {
	case code = <-ended:
	case <-time.After(parts.Patience):
		require.FailNow(t, "postrider "+strings.Join(args, " ")+" does not end")
	}
	return code, out.String(), errs.String()
}

// check is the command of this name. Code and subject of a finding begin the sentence.
func (s *site) check(t *testing.T, cause *regexp.Regexp) said {
	t.Helper()
	code, stdout, stderr := within(t, "check", "--json", "--config", s.file, "--topic", s.topic())
	var result struct{ Findings []findings.Finding }
	require.NoError(t, json.Unmarshal([]byte(stdout), &result), stdout+stderr)
	out := said{code: code}
	for _, f := range result.Findings {
		if f.Severity == findings.SeverityOK {
			continue
		}
		subject := f.Subject
		if subject == f.Code {
			subject = ""
		}
		sentence := oneLine(f.Code + " " + subject + " " + f.Observed)
		out.text += sentence + "\n"
		if out.next == "" && cause.MatchString(sentence) {
			out.next = f.Fix
		}
	}
	return out
}

// start runs a command of the binary.
func (s *site) start(t *testing.T, command string) *parts.Relay {
	t.Helper()
	return parts.StartRelay(t, parts.RelayConfig{Dir: filepath.Dir(s.file), OneLog: true},
		append(strings.Fields(command), "--config", s.file)...)
}

// stop ends it in order, if it still runs, and returns the exit code.
func stop(t *testing.T, p *parts.Relay) int {
	t.Helper()
	require.NoError(t, p.Signal(syscall.SIGTERM))
	return p.Wait(t)
}

// watch waits until a command has named the cause, or has ended.
func (s *site) watch(t *testing.T, command string, cause *regexp.Regexp) said {
	t.Helper()
	p := s.start(t, command)
	var out said
	await(t, command+" to name "+cause.String(), func() bool {
		ended := !p.Running() // before what it has printed is read
		out = heard(p.Log.String(), cause)
		return ended || out.next != ""
	})
	running := p.Running()
	out.code = stop(t, p)
	if running {
		out.code = -1
	}
	out = said{out.code, heard(p.Log.String(), cause).text, out.next}
	return out
}

// heard reads a log in JSON, and the report at its end.
func heard(output string, cause *regexp.Regexp) (out said) {
	var rest strings.Builder
	for line := range strings.Lines(output) {
		var fields struct{ Level, Message, Error, Reason, Next string }
		if json.Unmarshal([]byte(line), &fields) != nil {
			rest.WriteString(line)
			continue
		}
		sentence := oneLine(fields.Message + ": " + fields.Error)
		out.text += sentence + "\n"
		if out.next == "" && cause.MatchString(sentence) {
			out.next = fields.Next
		}
	}
	if reported := oneLine(rest.String()); cause.MatchString(reported) {
		out.text += reported
		if next := nextOf(rest.String()); next != "" {
			out.next = next
		}
	}
	return out
}

// streamsNow waits until the relay streams, and ends it.
func (s *site) streamsNow(t *testing.T) {
	t.Helper()
	p := s.start(t, run)
	await(t, "a relay that streams", func() bool {
		require.True(t, p.Running(), p.Log.String())
		return strings.Contains(p.Log.String(), `"message":"streaming started"`)
	})
	require.Zero(t, stop(t, p), p.Log.String())
}

// nextOf is what stands behind "next:" in what a command prints for people.
func nextOf(text string) string {
	const indent = "        "
	var next []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		first, begins := strings.CutPrefix(line, "  next: ")
		more, goesOn := strings.CutPrefix(line, indent)
		switch {
		case begins && next == nil:
			next = []string{first}
		case next != nil && goesOn:
			next = append(next, more)
		case next != nil:
			return strings.Join(next, "\n")
		}
	}
	return strings.Join(next, "\n")
}

// oneLine is a text as the sentences of the table are written: without quotes and line breaks.
func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), `"`, "")
}
