package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// Role is the role of a connection.
type Role struct {
	Name        string
	Super       bool
	Replication bool
	Rds         bool       // a member of rds_replication
	Limit       int        // of connections; negative: none
	Until       *time.Time // end of the password's life; nil: none
}

// Replicates reports whether it may replicate.
func (r Role) Replicates() bool { return r.Super || r.Replication || r.Rds }

// ReadRole reads the role of a connection. It blocks for one query.
func ReadRole(ctx context.Context, conn *pgx.Conn) (r Role, err error) {
	err = conn.QueryRow(ctx, `
		SELECT r.rolname, r.rolsuper, r.rolreplication, r.rolconnlimit, CASE WHEN pg_catalog.isfinite(r.rolvaliduntil) THEN r.rolvaliduntil END,
		  EXISTS (SELECT FROM pg_catalog.pg_roles m WHERE m.rolname = 'rds_replication' AND pg_catalog.pg_has_role(r.oid, m.oid, 'MEMBER'))
		FROM pg_catalog.pg_roles r WHERE r.rolname = current_user`).Scan(&r.Name, &r.Super, &r.Replication, &r.Limit, &r.Until, &r.Rds)
	if err != nil {
		return Role{}, fmt.Errorf("read role: %w", postgres.Error(err))
	}
	return r, nil
}
