package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes. Scripts, systemd units and probes rely on them.
const (
	exitOK          = 0
	exitRuntime     = 1  // it ran and something went wrong
	exitUsage       = 2  // unknown command, flag or argument
	exitUnavailable = 69 // a dependency cannot be reached
	exitInvariant   = 70 // something that must always hold does not; never restart without a look
	exitTemporary   = 75 // try again
	exitPermission  = 77
	exitConfig      = 78
)

// failure is an error with an exit code, and what the user needs besides the error's own text (which says what and where).
// A RunE returns one; any other error from a RunE ends with exitRuntime.
type failure struct {
	code int
	err  error  // nil: everything has been said on stdout, print nothing
	wal  string // what it means for the WAL that PostgreSQL keeps; empty if nothing
	next string // command, SQL or setting to type next; may have several lines
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// exitStatus ends a command with a code and no message, for commands whose result on stdout says it all.
func exitStatus(code int) error {
	if code == exitOK {
		return nil
	}
	return &failure{code: code}
}

// usagef is a wrong call that cobra cannot recognise by itself.
func usagef(format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// report prints err the way every command's failure is printed, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	f := &failure{code: exitRuntime, err: err}
	errors.As(err, &f)
	if f.err == nil {
		return f.code
	}
	// err, not f.err: it may have been wrapped on the way up.
	fmt.Fprintf(w, "postrider: %s\n", indent(err.Error()))
	if f.wal != "" {
		fmt.Fprintf(w, "  WAL:  %s\n", indentBy(f.wal, "        "))
	}
	if f.next != "" {
		fmt.Fprintf(w, "  next: %s\n", indentBy(f.next, "        "))
	}
	return f.code
}

func indent(s string) string { return indentBy(s, "  ") }

func indentBy(s, by string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+by)
}
