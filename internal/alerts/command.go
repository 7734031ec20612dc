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
		return c.notStarted(err)
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
		line = c.withoutArguments(line)
		f.text += ": " + line[:min(len(line), maxLine)]
	}
	return f
}

// Program is what may be shown of a command: its first item, if that is a name and no whole command line. Arguments may be passwords.
func Program(command []string) string {
	if len(command) == 0 || strings.ContainsFunc(command[0], unicode.IsSpace) || strings.Contains(command[0], "://") {
		return "the first item of alerts.command"
	}
	return command[0]
}

// LookProgram looks for the program of a command. The error shows nothing else of it.
func LookProgram(command []string) error {
	_, err := exec.LookPath(command[0])
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", Program(command), bare(err))
}

// bare is the error without the path that it names.
func bare(err error) error {
	if named := new(exec.Error); errors.As(err, &named) {
		err = named.Err
	}
	if named := new(fs.PathError); errors.As(err, &named) {
		err = named.Err
	}
	return err
}

const hidden = "********"

// withoutArguments masks the command's arguments in what it has printed, as a shell with -x and many a program repeat them; and of one that reads as a header or
// as name=value also the value by itself.
func (c *command) withoutArguments(line string) string {
	for _, arg := range c.args[1:] {
		texts := []string{arg}
		if i := strings.IndexAny(arg, ":="); i > 0 {
			value := strings.TrimSpace(arg[i+1:])
			texts = append(texts, value)
			if words := strings.Fields(value); len(words) > 0 {
				texts = append(texts, words[len(words)-1])
			}
		}
		for _, text := range texts {
			if len(text) > 3 {
				line = strings.ReplaceAll(line, text, hidden)
			}
		}
	}
	return line
}

// notStarted tells a program that is not there from a machine that is out of something.
func (c *command) notStarted(err error) *failure {
	f := &failure{text: fmt.Sprintf("alerts.command: %s: %v", Program(c.args), bare(err))}
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

// maxLine is how much of it is shown, and keptLine how much is looked through for arguments.
const (
	maxLine  = 300
	keptLine = 4096
)

func (l *firstLine) Write(b []byte) (int, error) {
	for _, c := range b {
		if l.ended || len(l.line) >= keptLine {
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
