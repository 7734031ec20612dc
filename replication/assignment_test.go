package replication

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfig_PartitionsNameARelationAndItsTable(t *testing.T) {
	c := DefaultConfig()
	c.Tables = []string{"public.outbox", "shop.out@box"}
	c.Partitions = []string{"public.outbox_1@16400 = public.outbox", "shop.a@b@7<=0/1949F48=shop.out@box", "public.copy@9 = none"}
	require.NoError(t, c.Validate())
	got := c.Assignments()
	require.Equal(t, []Assignment{
		{Relation: "public.outbox_1", OID: 16400, Table: "public.outbox"}, {Relation: "shop.a@b", OID: 7, UpTo: 0x1949F48, Table: "shop.out@box"}, {Relation: "public.copy", OID: 9},
	}, got)
	for _, a := range got {
		again, err := parseAssignment(a.String())
		require.NoError(t, err)
		require.Equal(t, a, again)
	}
	rel := &Relation{OID: 7, Namespace: "shop", Name: "a@b"}
	require.True(t, got[1].Covers(rel, 0x1949F48))
	require.False(t, got[1].Covers(rel, 0x1949F49))
	require.False(t, got[1].Covers(&Relation{OID: 8, Namespace: "shop", Name: "a@b"}, 1))
	require.False(t, got[1].Covers(&Relation{OID: 7, Namespace: "shop", Name: "b"}, 1), "an OID that was given again")

	for entry, want := range map[string]string{
		"public.outbox_1":                        "is not of the form",
		"public.outbox_1@0 = none":               "0 is not an OID",
		"public.outbox_1@99999999999 = none":     "is not an OID",
		"public.outbox_1@1 = public.orders":      "table public.orders is not in replication.tables",
		"public.other@16400 = none":              "are about the same rows",
		"public.outbox_1@1<=x = none":            "is not of the form",
		"public.outbox_1@16401 => public.outbox": "is not in replication.tables",
	} {
		c.Partitions = []string{"public.outbox_1@16400 = public.outbox", entry}
		err := c.Validate()
		require.ErrorContains(t, err, want, entry)
		require.ErrorContains(t, err, "replication.partitions")
	}
}
