package check_test

import (
	"testing"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/stretchr/testify/require"
)

// What the publication sends, or does not, beside the rows of the outbox.
func TestCheck_MendsAPublication(t *testing.T) {
	for _, c := range []struct {
		name, make, code string
		versions         []string
		severity         check.Severity
	}{
		{"other tables", `CREATE TABLE other (id int PRIMARY KEY); ALTER PUBLICATION postrider ADD TABLE other`, "publication_tables", testdb.OldAndNew, check.SeverityWarning},
		{"all tables", `DROP PUBLICATION postrider; CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION postrider FOR ALL TABLES WITH (publish = 'insert')`,
			"publication_tables", testdb.OldAndNew, check.SeverityWarning},
		{"updates", `ALTER PUBLICATION postrider SET (publish = 'insert, update')`, "publication_publish", testdb.OldAndNew, check.SeverityWarning},
		{"a row filter", `ALTER PUBLICATION postrider SET TABLE outbox WHERE (id > 10)`, "row_filter", []string{"15", "18"}, check.SeverityWarning},
		{"a column list", `ALTER PUBLICATION postrider SET TABLE outbox (id)`, "column_list", []string{"15", "18"}, check.SeverityInfo},
		{"names of partitions", `DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY, payload text) PARTITION BY RANGE (id);
			CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT; ALTER PUBLICATION postrider ADD TABLE outbox; ALTER PUBLICATION postrider SET (publish_via_partition_root = false)`,
			"partitions", testdb.OldAndNew, check.SeverityWarning},
	} {
		t.Run(c.name, func(t *testing.T) {
			testdb.Versions(t, c.versions, func(t *testing.T, version string) {
				p := checktest.Shared(t, version)
				p.Outbox()
				require.Equal(t, gone, severityOf(check.Server(t.Context(), preflight(p)), c.code))
				p.Exec(c.make)
				findings := check.Server(t.Context(), preflight(p))
				require.Empty(t, errorsOf(findings))
				f := checktest.Finding(t, findings, c.code)
				require.Equal(t, c.severity, f.Severity)
				require.NotEmpty(t, f.Required)
				p.Heal(f)
				findings = check.Server(t.Context(), preflight(p))
				require.Equal(t, gone, severityOf(findings, c.code))
				require.Empty(t, errorsOf(findings))
			})
		})
	}
}
