package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// Severity is what a Finding means for the relay.
type Severity string

// The severities. Only SeverityError keeps the relay from starting.
const (
	SeverityOK      Severity = "ok"
	SeverityInfo    Severity = "info"
	SeverityWarning Severity = "warning" // it starts, and will hurt later
	SeverityError   Severity = "error"
)

// Class is what kind of problem an error is, for an exit code.
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

// found is a finding without a problem; info, warn and fail make it one with a problem.
func found(code, subject string, observed any) Finding {
	return Finding{Severity: SeverityOK, Code: code, Subject: subject, Observed: fmt.Sprint(observed)}
}

func (f Finding) info(required, fix string) Finding {
	f.Severity, f.Required, f.Fix = SeverityInfo, required, fix
	return f
}

func (f Finding) warn(required, fix string) Finding {
	f.Severity, f.Required, f.Fix = SeverityWarning, required, fix
	return f
}

// fail makes f an error that a change of the configuration fixes.
func (f Finding) fail(required, fix string) Finding {
	f.Severity, f.Required, f.Fix, f.Class = SeverityError, required, fix, ClassConfiguration
	return f
}

// findings collects what one part of check finds.
type findings []Finding

func (fs *findings) add(more ...Finding) { *fs = append(*fs, more...) }

// connectionFinding is the finding of an error of package postgres about a connection.
func connectionFinding(code, subject string, err error) Finding {
	f := found(code, subject, err).fail(postgres.Advice(err))
	f.Class = classOf(err)
	return f
}

// errorFinding is the finding of an error of package postgres or slot.
func errorFinding(code, subject string, err error) Finding {
	var advised interface{ Advice() (wal, fix string) }
	if !errors.As(err, &advised) {
		return connectionFinding(code, subject, err)
	}
	wal, fix := advised.Advice()
	f := found(code, subject, about(code, subject, err.Error())).fail("", fix)
	f.WAL = wal
	if errors.Is(err, postgres.ErrPermission) {
		f.Class = ClassPermission
	}
	return f
}

// sinkFinding is the finding of an error of package sink.
func sinkFinding(code, subject string, err error) Finding {
	fix := cmp.Or(exit.Explain(err).Next, "check again; if it stays, the broker's log has more")
	f := found(code, subject, err).fail("", fix)
	f.Class = classOf(err)
	return f
}

// classOf is the class of an error of package postgres or sink.
func classOf(err error) Class {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case slices.ContainsFunc([]error{
		postgres.ErrAuthentication, postgres.ErrPermission, sink.ErrAuthentication, sink.ErrPermission,
		connect.ErrRegistryLogin,
	}, is):
		return ClassPermission
	case slices.ContainsFunc([]error{
		postgres.ErrNoSuchDatabase, postgres.ErrTLS, postgres.ErrConfig, postgres.ErrPooler,
		sink.ErrTLS, sink.ErrUnknownTopic, sink.ErrInvalidTopic,
	}, is):
		return ClassConfiguration
	}
	return ClassUnreachable
}

// about cuts code and subject off the beginning of a sentence, since the output shows them before
// it.
func about(code, subject, sentence string) string {
	for _, name := range []string{subject, strconv.Quote(subject)} {
		prefix := code + " " + name + " "
		if code == subject {
			prefix = code + " "
		}
		if rest, cut := strings.CutPrefix(sentence, prefix); cut {
			return rest
		}
	}
	return sentence
}

// completed adds to every finding what follows from its code and severity.
func completed(findings []Finding) []Finding {
	for i := range findings {
		f := &findings[i]
		if f.Severity == SeverityError {
			f.WAL = cmp.Or(f.WAL, exit.KeptMaybe)
		}
		if f.Severity != SeverityOK {
			f.Docs = docsOf(f.Code)
		}
	}
	return findings
}

// docsOf is the page and heading that explain a code. The code of a condition is the name of its
// alert and runbook.
func docsOf(code string) string {
	if strings.HasPrefix(code, "Postrider") {
		return "docs/RUNBOOKS.md#" + strings.ToLower(code)
	}
	return "docs/CHECK.md#" + code
}

// Code is the exit code of the first error: later ones may follow from it.
func Code(findings []Finding) int {
	first := slices.IndexFunc(findings, func(f Finding) bool { return f.Severity == SeverityError })
	if first < 0 {
		return exit.OK
	}
	switch findings[first].Class {
	case ClassUnreachable:
		return exit.Unavailable
	case ClassPermission:
		return exit.Permission
	}
	return exit.Config
}

// Report is the part check of the status page: what the last check found.
type Report struct {
	Running  bool      `json:"running"`
	At       time.Time `json:"at,omitzero"`
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
}
