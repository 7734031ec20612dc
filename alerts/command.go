package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// command runs a program for each notification, without a shell, with the payload on its standard input. Exit status 0: it was taken.
type command struct {
	args    []string
	timeout time.Duration // for the text of an error
}

func newCommand(cfg Config) *command { return &command{args: cfg.Command, timeout: cfg.Timeout} }

// closePipes is how long a program that has ended may leave its standard error to others.
const closePipes = time.Second

func (c *command) send(ctx context.Context, payload message) *failure {
	body, err := json.Marshal(payload)
	if err != nil {
		return &failure{text: "encode notification: " + err.Error(), refused: true}
	}
	var said firstLine
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = withoutSecrets(cmd.Environ())
	cmd.Stdin, cmd.Stderr = bytes.NewReader(body), &said
	// A group of its own, so that what it started dies with it, and a Ctrl-C on our terminal is not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = closePipes
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return notStarted(err)
	}
	if cmd.ProcessState.Success() { // err may be ErrWaitDelay: it left a child behind
		return nil
	}
	f := &failure{text: "alerts.command: " + cmd.ProcessState.String(), reached: true, next: "postrider alerts test"}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.text = fmt.Sprintf("alerts.command: killed after %s (alerts.timeout)", c.timeout)
	case ctx.Err() != nil:
		f.text = "alerts.command: killed, since the process ends"
	}
	if line := said.String(); line != "" {
		f.text += ": " + line
	}
	return f
}

// notStarted tells a program that is not there from a machine that is out of something.
func notStarted(err error) *failure {
	f := &failure{text: fmt.Sprintf("alerts.command: %v", err)}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, exec.ErrDot) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, syscall.ENOEXEC) {
		f.refused, f.next = true, "correct alerts.command, or install the program and make it executable, then: postrider alerts test"
	}
	return f
}

// withoutSecrets leaves out what is ours or libpq's, which may be a password, and what would let the program speak to systemd for us.
func withoutSecrets(env []string) []string {
	var rest []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		ours := false
		for _, prefix := range []string{"POSTRIDER_", "PG", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY"} {
			ours = ours || strings.HasPrefix(name, prefix)
		}
		if !ours {
			rest = append(rest, v)
		}
	}
	return rest
}

// firstLine keeps the first line of what is written to it, and takes everything.
type firstLine struct {
	line  []byte
	ended bool
}

const maxLine = 300

func (l *firstLine) Write(b []byte) (int, error) {
	for _, c := range b {
		if l.ended || len(l.line) >= maxLine {
			break
		}
		if c == '\n' {
			l.ended = len(l.line) > 0
			continue
		}
		l.line = append(l.line, c)
	}
	return len(b), nil
}

func (l *firstLine) String() string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(l.line), "")))
}
