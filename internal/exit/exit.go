// Package exit holds how a command ends: exit codes, and errors with what they mean for the WAL
// and what to type next.
//
//	codes.go the exit codes, the table error -> exit code and advice, and Explain, which looks it up
package exit

import (
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/postrider/postrider/internal/terminal"
)

// Error is an error with an exit code, and with what the user needs besides the text of Err, which
// names what failed and where. Any other error that a command returns ends it with Runtime.
type Error struct {
	Code int
	Err  error  // nil: the result on stdout is complete, Print prints nothing
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

// Status ends a command with a code and no message: its result is on stdout. OK is no error.
func Status(code int) error {
	if code == OK {
		return nil
	}
	return &Error{Code: code}
}

// Usagef is the error of a wrong call that cobra does not recognise.
func Usagef(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// likeAdvice is a line in the text of an error that would look like one of PrintAdvice: a server
// reports what the owner of a table, or of a trigger, has written.
var likeAdvice = regexp.MustCompile(`\n\s*((?:WAL|next):)`)

// Print writes err as every failure of a command is written, and returns the exit code.
func Print(w io.Writer, err error) int {
	if err == nil {
		return OK
	}
	f := &Error{Code: Runtime, Err: err}
	errors.As(err, &f)
	if f.Err == nil {
		return f.Code
	}
	// err, not f.Err: a caller may have wrapped f.
	text := likeAdvice.ReplaceAllString(err.Error(), "\n> $1")
	fmt.Fprintf(w, "postrider: %s\n", terminal.Indent(text))
	PrintAdvice(w, f.WAL, f.Next)
	return f.Code
}

// PrintAdvice writes what is below the text of a failure or of a verdict.
func PrintAdvice(w io.Writer, wal, next string) {
	for _, a := range [][2]string{{"WAL:  ", wal}, {"next: ", next}} {
		if a[1] != "" {
			fmt.Fprintf(w, "  %s%s\n", a[0], terminal.IndentBy(a[1], "        "))
		}
	}
}
