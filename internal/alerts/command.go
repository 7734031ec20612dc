package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// command runs a program for each notification, without a shell, with the payload on standard
// input. Exit status 0 accepts the notification.
type command struct {
	args    []string
	timeout time.Duration // for error texts
}

func newCommand(cfg Config) *command { return &command{args: cfg.Command, timeout: cfg.Timeout} }

// closePipes is how long children may keep standard error open after the program has ended.
const closePipes = time.Second

func (c *command) send(ctx context.Context, payload message) *failure {
	body, err := json.Marshal(payload)
	if err != nil {
		return &failure{text: "encode notification: " + err.Error(), refused: true}
	}
	var stderr limited
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = withoutSecrets(cmd.Environ())
	cmd.Stdin, cmd.Stderr = bytes.NewReader(body), &stderr
	// In its own process group, which the timeout kills, and which Ctrl-C on the terminal of
	// postrider does not reach.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = closePipes
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return c.notStarted(err)
	}
	if cmd.ProcessState.Success() { // err may be ErrWaitDelay: a child is running
		return nil
	}
	f := &failure{
		text: "alerts.command: " + cmd.ProcessState.String(), reached: true,
		next: "postrider alerts test",
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.text = fmt.Sprintf("alerts.command: killed after %s (alerts.timeout)", c.timeout)
	case ctx.Err() != nil:
		f.text = "alerts.command: killed, since postrider stops"
	}
	if line := c.withoutArguments(stderr.firstLine()); line != "" {
		f.text += ": " + line[:min(len(line), maxLine)]
	}
	return f
}

// Program returns what may be shown of a command: the first item, unless it is a command line or a
// URL. Arguments may be passwords.
func Program(command []string) string {
	if len(command) == 0 || strings.ContainsFunc(command[0], unicode.IsSpace) ||
		strings.Contains(command[0], "://") {
		return "the first item of alerts.command"
	}
	return command[0]
}

// LookProgram finds the program of a command in PATH. Its error shows no argument.
func LookProgram(command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return fmt.Errorf("%s: %w", Program(command), withoutPath(err))
	}
	return nil
}

func withoutPath(err error) error {
	if named, ok := errors.AsType[*exec.Error](err); ok {
		err = named.Err
	}
	if named, ok := errors.AsType[*fs.PathError](err); ok {
		err = named.Err
	}
	return err
}

const hidden = "********"

// withoutArguments masks the command's arguments in its output: a shell with -x and many programs
// print them. Of a header and of name=value it also masks the value alone.
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

// notStarted returns the failure of a start. It is refused only if the program is missing.
func (c *command) notStarted(err error) *failure {
	f := &failure{text: fmt.Sprintf("alerts.command: %s: %v", Program(c.args), withoutPath(err))}
	missing := []error{
		exec.ErrNotFound, exec.ErrDot, fs.ErrNotExist, fs.ErrPermission, syscall.ENOEXEC,
	}
	if slices.ContainsFunc(missing, func(target error) bool { return errors.Is(err, target) }) {
		f.refused = true
		f.next = "correct alerts.command, or install the program and make it executable, " +
			"then: postrider alerts test"
	}
	return f
}

// secretVariables are prefixes of environment variables that the program does not get: those of
// postrider and libpq, which may be passwords, and those for systemd's protocols.
var secretVariables = []string{
	"POSTRIDER_", "PG", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY",
}

func withoutSecrets(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		return slices.ContainsFunc(secretVariables, func(p string) bool {
			return strings.HasPrefix(v, p)
		})
	})
}

// maxLine bounds the line that is shown, in bytes, and maxOutput the output in which it is found.
const (
	maxLine   = 300
	maxOutput = 4096
)

// limited is a writer that keeps the first maxOutput bytes.
type limited struct{ kept []byte }

func (l *limited) Write(b []byte) (int, error) {
	l.kept = append(l.kept, b[:min(len(b), maxOutput-len(l.kept))]...)
	return len(b), nil
}

func (l *limited) firstLine() string {
	line, _, _ := strings.Cut(strings.TrimLeft(string(l.kept), "\n"), "\n")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(line, "")))
}
