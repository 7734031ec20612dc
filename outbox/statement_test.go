package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// The statements go to the connection of an application, where nothing records them, so they are compared with those that test/security tries against
// operators and functions of another role.
func TestStatements_AreThoseThatAreTriedAgainstOthersCode(t *testing.T) {
	tried, err := parts.Statements()
	require.NoError(t, err)
	statements := []string{messageSQL, messagesSQL}
	for _, payload := range []string{JSONB, JSON} { // the table of that test has no payload of another type
		cfg := DefaultConfig()
		cfg.PayloadType = payload
		e, err := New(cfg)
		require.NoError(t, err)
		statements = append(statements, e.insert)
	}
	for _, s := range statements {
		require.Contains(t, tried, s)
	}
}
