package slot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

func TestCheck_AsksForConsentWhereRowsWereMissed(t *testing.T) {
	p := onShared(t, "17")
	p.outbox()
	require.Equal(t, slot.SeverityInfo, finding(t, slot.Check(t.Context(), preflight(p)), "slot").Severity)
	p.exec("INSERT INTO outbox VALUES (1, 'x')")
	f := finding(t, slot.Check(t.Context(), preflight(p)), "slot")
	require.Equal(t, slot.SeverityError, f.Severity)
	require.Contains(t, f.Fix, "postrider slot create")
}
