package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// owner is a role that owns a publication and is no superuser. It can leave a table out again at
// any time, or have no inserts published.
type owner struct {
	oid   uint32
	name  string
	super string // the role of the session, if that is a superuser
}

const selectOwner = `
SELECT o.oid, o.rolname::text, CASE WHEN me.rolsuper THEN me.rolname::text ELSE '' END
FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_roles o ON o.oid = p.pubowner JOIN
  pg_catalog.pg_roles me ON me.rolname = current_user
WHERE p.oid = $1::pg_catalog.oid AND NOT o.rolsuper`

func readOwner(ctx context.Context, conn *pgx.Conn, publication uint32) (*owner, error) {
	var o owner
	err := conn.QueryRow(ctx, selectOwner, publication).Scan(&o.oid, &o.name, &o.super)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	// pg_roles was closed to all but superusers: the problem is found without it
	case postgres.SQLState(err) == "42501":
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read its owner: %w", postgres.Error(err))
	}
	return &o, nil
}

// Foreign reports whether a table that it lacks belongs to another role than the publication. Who
// may add it still is a superuser, or trusted by both.
func (p *Publication) Foreign(t Table) bool {
	return p.owner != nil && t.OID != 0 && p.owner.oid != t.owner
}

// trusted refuses a publication that somebody else has made where the right to change it says
// nothing: a superuser has it for every one.
func (p *Publication) trusted(t Table) error {
	if !p.Foreign(t) || p.owner.super == "" {
		return nil
	}
	return &Error{
		Err: fmt.Errorf("publication %q belongs to role %q, who could take table %s out of it at any "+
			"time: %w",
			p.Name, p.owner.name, t.Name, ErrForeign),
		WAL: "nothing was changed",
		Fix: "once it is clear who made it, give it to a superuser; or choose another name with " +
			"replication.publication:\n" + p.TakeSQL(),
	}
}

// TakeSQL gives the publication to the superuser who types it: among the owners of several tables
// it would change hands with each.
func (p *Publication) TakeSQL() string {
	to := "CURRENT_USER"
	if p.owner.super != "" {
		to = postgres.QuoteName(p.owner.super)
	}
	return "ALTER PUBLICATION " + postgres.QuoteName(p.Name) + " OWNER TO " + to + ";"
}

// belonging goes on from the name of the publication.
func (p *Publication) belonging(t Table) string {
	if !p.Foreign(t) {
		return ""
	}
	return fmt.Sprintf(", which belongs to role %q", p.owner.name)
}

// Caution is the remark behind SQL that takes the publication.
func (p *Publication) Caution() string {
	return fmt.Sprintf(" -- once it is clear who role %q is, who could take the table out again; "+
		"or name another in replication.publication", p.owner.name)
}
