package slot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

func TestCheck_AsksForConsentWhereRowsWereMissed(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	require.Equal(t, slot.SeverityInfo, finding(t, slot.Check(t.Context(), preflight(p)), "slot").Severity)
	p.Exec("INSERT INTO outbox VALUES (1, 'x')")
	f := finding(t, slot.Check(t.Context(), preflight(p)), "slot")
	require.Equal(t, slot.SeverityError, f.Severity)
	require.Contains(t, f.Fix, "postrider slot create")
}
