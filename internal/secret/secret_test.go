package secret_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/secret"
)

func TestReveal_SaysWhatSystemdRemovesOfAFileThatIsNotThere(t *testing.T) {
	const advice = "systemd keeps it only while the unit runs"
	_, err := secret.File("/run/credentials/none.service/postgres_url").Reveal()
	require.ErrorContains(t, err, advice)
	require.ErrorContains(t, err, "its line LoadCredential= is missing or has another name")
	_, err = secret.File("/run/credentials/" + strings.Repeat("x", 5000)).Reveal()
	require.ErrorContains(t, err, "file name too long")
	require.NotContains(t, err.Error(), advice)
}
