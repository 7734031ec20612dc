package parts

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// SetTraps makes look-alikes, owned by a role, in a schema where it may create: a better match for
// each operator and function that the recorded statements name, and relations and types with the
// names of those of pg_catalog. super is a superuser's connection.
func SetTraps(t testing.TB, super *pgx.Conn, owner, schema string) {
	t.Helper()
	do := func(script string) {
		t.Helper()
		_, err := super.Exec(t.Context(), script)
		require.NoError(t, err)
	}
	do(`CREATE SCHEMA IF NOT EXISTS traps; GRANT USAGE ON SCHEMA traps TO PUBLIC;
		CREATE SEQUENCE IF NOT EXISTS traps.calls; GRANT ALL ON SEQUENCE traps.calls TO PUBLIC`)
	owner = pgx.Identifier{owner}.Sanitize()
	statements, err := Statements()
	require.NoError(t, err)
	_, err = super.Exec(t.Context(), "SELECT pg_catalog.set_config('traps.statements', $1, false)",
		strings.Join(statements, "\n"))
	require.NoError(t, err)
	do("SELECT pg_catalog.set_config('traps.schema', '" + schema + "', false); SET ROLE " + owner +
		"; SET check_function_bodies = off")
	do(trapCalls)
	do(trapNames)
	do("RESET ROLE; RESET check_function_bodies;" +
		" SELECT pg_catalog.setval('traps.calls', 1, false)")
}

// Sprung reports whether any of the look-alikes has run since the last call. A sequence is not
// rolled back with a transaction.
func Sprung(t testing.TB, super *pgx.Conn) (sprung bool) {
	t.Helper()
	require.NoError(t,
		super.QueryRow(t.Context(), "SELECT is_called FROM traps.calls").Scan(&sprung))
	_, err := super.Exec(t.Context(), "SELECT pg_catalog.setval('traps.calls', 1, false)")
	require.NoError(t, err)
	return sprung
}

//go:embed trapcalls.sql
var trapCalls string

//go:embed trapnames.sql
var trapNames string
