package slot_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) {
	parts.AtOnce(3)
	parts.Main(m)
}

// place is a database of its own with what the tests of this package do there.
type place struct{ *testdb.DB }

func onShared(t *testing.T, version string) *place {
	t.Helper()
	return &place{testdb.Shared(t, version)}
}

func onOwn(t *testing.T, version string, params map[string]string) (*place, *embedded.Postgres) {
	t.Helper()
	db, server := testdb.Own(t, version, params)
	return &place{db}, server
}

// heal types the SQL of a fix, statement by statement, without the remark behind it.
func (p *place) heal(f slot.Finding) {
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

// awaitFinding checks until the finding of a code is of a severity: settings are reloaded, and statistics written, a moment later.
func (p *place) awaitFinding(pre slot.Preflight, code string, severity slot.Severity) slot.Finding {
	p.T.Helper()
	var last slot.Finding
	require.Eventually(p.T, func() bool {
		last = slot.Finding{}
		p.Exec("SELECT 1") // 14 hands statistics in with a statement
		for _, f := range slot.Check(p.T.Context(), pre) {
			if f.Code == code {
				last = f
			}
		}
		return last.Severity == severity
	}, 30*time.Second, 100*time.Millisecond, "%s does not become %q", code, severity)
	return last
}

// gone is the severity of what is not found at all.
const gone slot.Severity = ""
