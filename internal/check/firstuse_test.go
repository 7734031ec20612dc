package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
)

func TestCheck_AsksForConsentWhereRowsWereMissed(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	require.Equal(t, check.SeverityInfo, checktest.Finding(t, check.Server(t.Context(), preflight(p)), "slot").Severity)
	p.Exec("INSERT INTO outbox VALUES (1, 'x')")
	f := checktest.Finding(t, check.Server(t.Context(), preflight(p)), "slot")
	require.Equal(t, check.SeverityError, f.Severity)
	require.Contains(t, f.Fix, "postrider slot create")
}
