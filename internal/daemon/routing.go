package daemon

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/slot/partition"
)

// sessionRouter makes the router of a session. Rows of the session before may come again after
// their partitions were dropped, so it keeps the assignments of the old router.
func (p *Pipeline) sessionRouter() (r *router.Router, err error) {
	if p.router != nil {
		for _, a := range p.router.Assigned() {
			p.remember(a)
		}
	}
	p.router, err = p.NewRouter()
	return p.router, err
}

// remember hands an assignment to the assigner, which keeps it as long as its rows may come again.
func (p *Pipeline) remember(a router.Assigned) {
	p.assigner.Remember(p.timeline, a.OID, a.Table, a.First, a.Last)
}

// rowsFrom sets the timeline of the rows of a session. A position names other rows on another
// timeline.
func (p *Pipeline) rowsFrom(timeline int32) {
	p.timeline = timeline
	p.assigner.On(timeline)
}

// NewRouter makes a router of the configured rules. An error is a relay.ErrConfiguration.
func (p *Pipeline) NewRouter() (*router.Router, error) {
	registries, err := p.registries()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	r, err := router.New(p.Config.Router, p.Config.Format, router.Options{
		Tables:          p.Config.Replication.Tables,
		ParentTable:     p.parentTable,
		Release:         p.remember,
		MessagePrefixes: p.Config.Replication.Messages,
		Describe:        p.describe,
		Updated:         p.updated,
		OwnTopics:       p.Config.OwnTopics(),
		Registries:      registries,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	return r, nil
}

// preview leaves nothing in a schema registry: for what publishes nothing.
func (p *Pipeline) preview() {
	p.registries = sync.OnceValues(func() (router.Registries, error) {
		return registry.Preview(p.Config.Registry, p.Config.Format)
	})
}

// updated logs the first update of a table in a session.
func (p *Pipeline) updated(table, behavior string) {
	log := p.Component("router")
	event := log.Warn()
	if behavior == "error" {
		event = log.Error()
	}
	event.Str("relation", table).Msg("a row of the outbox was updated; updates are not published " +
		"(router.table.op.invalid.behavior)")
}

// parentTable finds the configured table of a relation, once per relation.
func (p *Pipeline) parentTable(ev *replication.Event) (table string, upTo pglogrepl.LSN,
	err error) {
	row := partition.FirstRow{Relation: ev.Relation, LSN: ev.LSN, XID: ev.XID, Index: ev.Index}
	if table, known := p.assigner.Remembered(row); known {
		return table, 0, nil
	}
	err = p.catalog.Query(func(ctx context.Context, conn *pgx.Conn) error {
		table, upTo, err = p.assigner.Assign(ctx, conn, row)
		return err
	})
	return table, upTo, err
}

// describe reads the columns of a relation, once per shape, after the transaction of its first
// row: that may have added columns.
func (p *Pipeline) describe(oid, xid uint32) (t *router.Table, err error) {
	err = p.catalog.Query(func(ctx context.Context, conn *pgx.Conn) error {
		if err := partition.AwaitChanges(ctx, conn, xid); err != nil {
			log := p.Component("router")
			log.Warn().Err(err).Uint32("oid", oid).Msg("types of columns that this transaction has added " +
				"are taken as text")
		}
		t, err = catalog.Describe(ctx, conn, oid)
		return err
	})
	return t, err
}
