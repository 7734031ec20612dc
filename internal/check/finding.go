package check

import (
	"errors"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

func okFinding(code, subject, observed string) slot.Finding {
	return slot.Finding{Severity: slot.SeverityOK, Code: code, Subject: subject,
		Observed: observed}
}

func infoFinding(code, subject, observed, required, fix string) slot.Finding {
	return slot.Finding{
		Severity: slot.SeverityInfo, Code: code, Subject: subject,
		Observed: observed, Required: required, Fix: fix,
	}
}

func warningFinding(code, subject, observed, required, fix string) slot.Finding {
	f := infoFinding(code, subject, observed, required, fix)
	f.Severity = slot.SeverityWarning
	return f
}

// configFinding is an error that a change of the configuration fixes.
func configFinding(code, subject, observed, required, fix string) slot.Finding {
	f := infoFinding(code, subject, observed, required, fix)
	f.Severity, f.Class = slot.SeverityError, slot.ClassConfiguration
	return f
}

// sinkFinding is the finding of an error of package sink.
func sinkFinding(code, subject string, err error) slot.Finding {
	f := slot.Finding{
		Severity: slot.SeverityError, Code: code, Subject: subject, Observed: err.Error(),
		Class: slot.ClassUnreachable, Fix: exit.Explain(err).Next,
	}
	if f.Fix == "" {
		f.Fix = "check again; if it stays, the broker's log says more"
	}
	switch {
	case errors.Is(err, sink.ErrAuthentication), errors.Is(err, sink.ErrPermission):
		f.Class = slot.ClassPermission
	case errors.Is(err, sink.ErrTLS), errors.Is(err, sink.ErrUnknownTopic),
		errors.Is(err, sink.ErrInvalidTopic):
		f.Class = slot.ClassConfiguration
	}
	return f
}

// completed adds to every finding what follows from its code and severity.
func completed(findings []slot.Finding) []slot.Finding {
	for i := range findings {
		f := &findings[i]
		if f.Severity == slot.SeverityError && f.WAL == "" {
			f.WAL = exit.KeptMaybe
		}
		if f.Severity != slot.SeverityOK {
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
func Code(findings []slot.Finding) int {
	first := slices.IndexFunc(findings, func(f slot.Finding) bool {
		return f.Severity == slot.SeverityError
	})
	if first < 0 {
		return exit.OK
	}
	switch findings[first].Class {
	case slot.ClassUnreachable:
		return exit.Unavailable
	case slot.ClassPermission:
		return exit.Permission
	default:
		return exit.Config
	}
}
