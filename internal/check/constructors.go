package check

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink"
)

func infoFinding(code, subject, observed, required, fix string) Finding {
	return Finding{
		Severity: SeverityInfo, Code: code, Subject: subject,
		Observed: observed, Required: required, Fix: fix,
	}
}

func warningFinding(code, subject, observed, required, fix string) Finding {
	f := infoFinding(code, subject, observed, required, fix)
	f.Severity = SeverityWarning
	return f
}

// configFinding is an error that a change of the configuration fixes.
func configFinding(code, subject, observed, required, fix string) Finding {
	f := infoFinding(code, subject, observed, required, fix)
	f.Severity, f.Class = SeverityError, ClassConfiguration
	return f
}

// sinkFinding is the finding of an error of package sink.
func sinkFinding(code, subject string, err error) Finding {
	f := Finding{
		Severity: SeverityError, Code: code, Subject: subject, Observed: err.Error(),
		Class: ClassUnreachable, Fix: exit.Explain(err).Next,
	}
	if f.Fix == "" {
		f.Fix = "check again; if it stays, the broker's log says more"
	}
	switch {
	case errors.Is(err, sink.ErrAuthentication), errors.Is(err, sink.ErrPermission):
		f.Class = ClassPermission
	case errors.Is(err, sink.ErrTLS), errors.Is(err, sink.ErrUnknownTopic),
		errors.Is(err, sink.ErrInvalidTopic):
		f.Class = ClassConfiguration
	}
	return f
}

// completed adds to every finding what follows from its code and severity.
func completed(findings []Finding) []Finding {
	for i := range findings {
		f := &findings[i]
		if f.Severity == SeverityError && f.WAL == "" {
			f.WAL = exit.KeptMaybe
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
	first := slices.IndexFunc(findings, func(f Finding) bool {
		return f.Severity == SeverityError
	})
	if first < 0 {
		return exit.OK
	}
	switch findings[first].Class {
	case ClassUnreachable:
		return exit.Unavailable
	case ClassPermission:
		return exit.Permission
	default:
		return exit.Config
	}
}

// Report is the part check of the status page: what the last check found.
type Report struct {
	Running  bool      `json:"running"`
	At       time.Time `json:"at,omitzero"`
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
}
