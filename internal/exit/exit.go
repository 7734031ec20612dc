package exit

import (
	"errors"
	"fmt"
	"io"

	"github.com/postrider/postrider/internal/terminal"
)

// Exit codes. Scripts, systemd units and probes rely on them.
const (
	OK          = 0
	Runtime     = 1  // it ran and something went wrong
	Usage       = 2  // unknown command, flag or argument
	Unavailable = 69 // a dependency cannot be reached
	Invariant   = 70 // something that must always hold does not; never restart without a look
	Temporary   = 75 // try again
	Permission  = 77
	Config      = 78
)

// failure is an error with an exit code, and what the user needs besides the error's own text (which says what and where).
// A RunE returns one; any other error from a RunE ends with exitRuntime.
type Error struct {
	Code int
	Err  error  // nil: everything has been said on stdout, print nothing
	WAL  string // what it means for the WAL that PostgreSQL keeps; empty if nothing
	Next string // command, SQL or setting to type next; may have several lines
}

func (f *Error) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit status %d", f.Code)
	}
	return f.Err.Error()
}

func (f *Error) Unwrap() error { return f.Err }

// exitStatus ends a command with a code and no message, for commands whose result on stdout says it all.
func Status(code int) error {
	if code == OK {
		return nil
	}
	return &Error{Code: code}
}

// usagef is a wrong call that cobra cannot recognise by itself.
func Usagef(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// report prints err the way every command's failure is printed, and returns the exit code.
func Print(w io.Writer, err error) int {
	if err == nil {
		return OK
	}
	f := &Error{Code: Runtime, Err: err}
	errors.As(err, &f)
	if f.Err == nil {
		return f.Code
	}
	// err, not f.err: it may have been wrapped on the way up.
	fmt.Fprintf(w, "postrider: %s\n", terminal.Indent(err.Error()))
	if f.WAL != "" {
		fmt.Fprintf(w, "  WAL:  %s\n", terminal.IndentBy(f.WAL, "        "))
	}
	if f.Next != "" {
		fmt.Fprintf(w, "  next: %s\n", terminal.IndentBy(f.Next, "        "))
	}
	return f.Code
}
