package auditor

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// slotCommits reads the order of commits from the WAL that a slot keeps. Nothing is confirmed: the
// slot stays as it is, and the stream is the same each time.
type slotCommits struct {
	cfg  config.Config
	slot string
	ids  map[uint32]string // column with the id, by OID of the relation under which rows come
	upTo pglogrepl.LSN
	log  zerolog.Logger
}

// commits returns the commits of the tables up to the present end of the WAL.
func (t *auditTables) commits(ctx context.Context, name string, cfg config.Config,
	log zerolog.Logger) (*slotCommits, error) {
	c := &slotCommits{cfg: cfg, slot: name, ids: map[uint32]string{},
		log: log.With().Str("component", "replication").Logger()}
	oids, err := slot.OIDs(ctx, t.conn, t.Names())
	if err != nil {
		return nil, err
	}
	for oid, name := range oids {
		at := slices.IndexFunc(t.tables, func(table auditTable) bool { return table.name == name })
		c.ids[oid] = t.tables[at].id
	}
	var end string
	if err := t.conn.QueryRow(ctx,
		"SELECT pg_catalog.pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
		return nil, fmt.Errorf("read where the WAL ends: %w", postgres.Error(err))
	}
	c.upTo, err = pglogrepl.ParseLSN(end)
	return c, err
}

// read is audit.JudgeConfig.Commits.
func (c *slotCommits) read(ctx context.Context, each func(id []byte) error) error {
	pg, err := postgres.ReplicationLogin(ctx, c.cfg.Postgres)
	if err != nil {
		return err
	}
	err = replication.ReadInserts(ctx, pg, c.cfg.Replication, c.slot, c.upTo, c.log,
		func(e *replication.Event) error {
			id, ours := c.ids[e.Relation.OID]
			if !ours {
				return nil
			}
			at := slices.IndexFunc(e.Relation.Columns,
				func(column replication.Column) bool { return column.Name == id })
			// not published, or behind a column that is too large: its order is not judged
			if at < 0 || e.Values[at] == nil {
				return nil
			}
			return each(e.Values[at])
		})
	if err != nil {
		return fmt.Errorf("read the order of commits from slot %q: %w", c.slot, postgres.Error(err))
	}
	return nil
}
