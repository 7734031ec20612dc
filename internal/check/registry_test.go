package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/test/parts"
)

func TestCheckRegistry_SaysWhetherItAnswers(t *testing.T) {
	cfg := config.Default()
	cfg.Registry.Timeout = 30 * time.Second
	require.Empty(t, checkRegistry(t.Context(), cfg), "no format needs one")
	cfg.Format.Value = "avro"

	registry := srfake.New(srfake.WithAuth("Basic cG9zdHJpZGVyOnMzY3JldC1jYW5hcnk="))
	t.Cleanup(registry.Close)
	cfg.Registry.URLs = []string{registry.URL()}
	cfg.Registry.Username, cfg.Registry.Password = "postrider", secret.Of("s3cret-canary")
	f := checkRegistry(t.Context(), cfg)
	require.Len(t, f, 1)
	require.Equal(t, SeverityOK, f[0].Severity)

	cfg.Registry.Password = secret.Of("wr0ng-canary")
	f = checkRegistry(t.Context(), cfg)
	require.Equal(t, SeverityError, f[0].Severity)
	require.Equal(t, ClassPermission, f[0].Class)
	require.Contains(t, f[0].Fix, "check registry.username and password")
	require.NotContains(t, f[0].Observed, "canary")

	cfg.Registry.URLs = []string{"http://" + parts.Nobody(t)}
	f = checkRegistry(t.Context(), cfg)
	require.Equal(t, ClassUnreachable, f[0].Class)
	require.Contains(t, f[0].Fix, "check registry.urls")
}
