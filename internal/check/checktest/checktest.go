// Package checktest gives a test a database whose server is checked and repaired.
package checktest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts/testdb"
)

// DB is a database with an outbox.
type DB struct{ *testdb.DB }

// Shared makes a DB on a server that must be left as it is.
func Shared(t *testing.T, version string) *DB {
	t.Helper()
	return &DB{testdb.Shared(t, version)}
}

// Own makes a DB on a server that the test may stop, use up or configure.
func Own(t *testing.T, version string, params map[string]string) (*DB, *embedded.Postgres) {
	t.Helper()
	db, server := testdb.Own(t, version, params)
	return &DB{db}, server
}

// Heal executes the SQL of a fix, statement by statement, without the remark after it.
func (p *DB) Heal(f check.Finding) {
	p.T.Helper()
	for i, line := range strings.Split(f.Fix, "\n") {
		sql, _, _ := strings.Cut(line, " -- ")
		if i > 0 && strings.HasPrefix(line, "or") {
			return // another way
		}
		require.Contains(p.T, sql, ";", "no SQL: %s", f.Fix)
		for statement := range strings.SplitSeq(sql, ";") {
			if strings.TrimSpace(statement) != "" {
				p.Exec(statement)
			}
		}
	}
}

// AwaitFinding checks until the finding of a code has a severity: settings are reloaded, and
// statistics written, a moment later.
func (p *DB) AwaitFinding(pre check.Preflight, code string,
	severity check.Severity) check.Finding {
	p.T.Helper()
	var last check.Finding
	require.Eventually(p.T, func() bool {
		last = check.Finding{}
		p.Exec("SELECT 1") // 14 hands statistics in with a statement
		for _, f := range check.Server(p.T.Context(), pre) {
			if f.Code == code {
				last = f
			}
		}
		return last.Severity == severity
	}, 30*time.Second, 100*time.Millisecond, "%s does not become %q", code, severity)
	return last
}

// Finding is the finding of a code.
func Finding(t *testing.T, findings []check.Finding, code string) check.Finding {
	t.Helper()
	for _, f := range findings {
		if f.Code == code {
			return f
		}
	}
	require.Fail(t, "no finding", "%s in %+v", code, findings)
	return check.Finding{}
}
