package check

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
)

// Severity says what a Finding means for the relay.
type Severity string

// The severities. Only SeverityError keeps the relay from starting.
const (
	SeverityOK      Severity = "ok"
	SeverityInfo    Severity = "info"
	SeverityWarning Severity = "warning" // it starts, and will hurt later
	SeverityError   Severity = "error"
)

// Class says what kind of problem an error is, for an exit code.
type Class string

// The classes.
const (
	ClassUnreachable   Class = "unreachable"
	ClassPermission    Class = "permission"
	ClassConfiguration Class = "configuration"
)

// Finding is the result of one check.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`              // what was checked, stable, for scripts
	Subject  string   `json:"subject,omitempty"` // which table, slot, setting
	Observed string   `json:"observed"`
	Required string   `json:"required,omitempty"`
	WAL      string   `json:"wal,omitempty"` // what it means for the WAL that PostgreSQL keeps
	Fix      string   `json:"fix,omitempty"` // SQL, command or setting
	// page and heading that explain it, like docs/CHECK.md#wal_level; empty if all is well
	Docs  string `json:"docs,omitempty"`
	Class Class  `json:"class,omitempty"` // of an error
}

// ConnectionFinding is the finding of an error of package postgres: the server cannot be talked
// to.
func ConnectionFinding(code, subject string, err error) Finding {
	f := Finding{
		Severity: SeverityError, Code: code, Subject: subject, Observed: err.Error(),
		Class: ClassUnreachable,
	}
	f.Required, f.Fix = postgres.Advice(err)
	switch {
	case errors.Is(err, postgres.ErrAuthentication), errors.Is(err, postgres.ErrPermission):
		f.Class = ClassPermission
	case errors.Is(err, postgres.ErrNoSuchDatabase), errors.Is(err, postgres.ErrTLS),
		errors.Is(err, postgres.ErrConfig), errors.Is(err, postgres.ErrPooler):
		f.Class = ClassConfiguration
	}
	return f
}

// ErrorFinding is the finding of any error of this package or of postgres.
func ErrorFinding(code, subject string, err error) Finding {
	var advised interface{ Advice() (wal, fix string) }
	if !errors.As(err, &advised) {
		return ConnectionFinding(code, subject, err)
	}
	wal, fix := advised.Advice()
	class := ClassConfiguration
	if errors.Is(err, postgres.ErrPermission) {
		class = ClassPermission
	}
	return Finding{Severity: SeverityError, Code: code, Subject: subject, Observed: about(code,
		subject, err.Error()), WAL: wal, Fix: fix, Class: class}
}

// about is a sentence without its beginning where that is what the finding is about: code and
// subject stand in front of it.
func about(code, subject, sentence string) string {
	for _, name := range []string{subject, strconv.Quote(subject)} {
		prefix := code + " " + name + " "
		if code == subject {
			prefix = code + " "
		}
		if rest, found := strings.CutPrefix(sentence, prefix); found {
			return rest
		}
	}
	return sentence
}

func okFinding(code, subject string, observed any) Finding {
	return Finding{Severity: SeverityOK, Code: code, Subject: subject, Observed: fmt.Sprint(observed)}
}
