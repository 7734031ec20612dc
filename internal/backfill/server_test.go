package backfill

import (
	"testing"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

func TestMain(m *testing.M) {
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
