package check

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/writeback"
)

// writeBack judges the tables that [write_back] writes to, one finding for each problem.
func (c checker) writeBack(ctx context.Context, conn *pgx.Conn) ([]Finding, error) {
	cfg := c.loaded.Config
	parts := writeback.Parts{Config: cfg.WriteBack, Publication: cfg.Replication.Publication,
		Tables: cfg.WriteBackTables()}
	problems, err := writeback.Check(ctx, conn, parts)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, p := range problems {
		f := found("write_back", p.Table, p.Text)
		if p.Warning {
			findings = append(findings, f.warn("an index of the pending rows", p.Fix))
			continue
		}
		f = f.fail("tables that can be written to without running code of other "+
			"roles", p.Fix)
		f.WAL, _ = p.Advice()
		if strings.Contains(p.Fix, "GRANT ") {
			f.Class = ClassPermission
		}
		findings = append(findings, f)
	}
	if len(findings) == 0 {
		var names []string
		for _, t := range parts.Tables {
			names = append(names, t.Table)
		}
		findings = append(findings, found("write_back", "", "can be written to: "+
			strings.Join(names, ", ")))
	}
	return findings, nil
}
