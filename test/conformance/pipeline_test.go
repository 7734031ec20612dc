package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/partition"
	"github.com/postrider/postrider/test/parts"
)

// pipeline is what makes messages of the events of one case. It is put together as run does it, but on a stream that other cases use too.
type pipeline struct {
	cfg         config.Config
	db          *database
	router      *router.Router
	publication *slot.Publication
	assigner    *partition.Assigner

	messages []*sink.Message
	failure  error // of the first event that could not be routed
}

// newPipeline makes it, after the same look at the publication and the tables. An error is one that ends run at its start.
func newPipeline(ctx context.Context, cfg config.Config, db *database) (*pipeline, error) {
	publication, err := slot.VerifyPublication(ctx, db.side, cfg.Replication.Publication, cfg.Replication.Tables)
	if err != nil {
		return nil, err
	}
	p := &pipeline{cfg: cfg, db: db, publication: publication, assigner: partition.New(cfg.Replication, db.slot, zerolog.Nop())}
	if err := p.assigner.Look(ctx, db.side); err != nil {
		return nil, err
	}
	p.router, err = router.New(cfg.Router, cfg.Format, router.Options{
		Tables: cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages, Describe: p.describe, ParentTable: p.home,
	})
	if err != nil {
		return nil, err
	}
	for _, table := range publication.Tables {
		rel, err := table.Relation(ctx, db.side)
		if err != nil {
			return nil, err
		}
		if err := p.router.Check(rel); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// describe and home are called by the router: before the stream is followed, and then by its goroutine only.
func (p *pipeline) describe(oid, _ uint32) (*router.Table, error) {
	ctx, cancel := context.WithTimeout(context.Background(), parts.Patience)
	defer cancel()
	var document []byte
	if err := p.db.side.QueryRow(ctx, router.DescribeSQL, oid).Scan(&document); err != nil {
		return nil, err
	}
	return router.ParseTable(document)
}

func (p *pipeline) home(ev *replication.Event) (string, pglogrepl.LSN, error) {
	ctx, cancel := context.WithTimeout(context.Background(), parts.Patience)
	defer cancel()
	return p.assigner.Assign(ctx, p.db.side, partition.FirstRow{Relation: ev.Relation, LSN: ev.LSN, XID: ev.XID, Index: ev.Index})
}

// event routes what the stream or the snapshot brings, up to the first failure.
func (p *pipeline) event(e *replication.Event) {
	if p.failure != nil {
		return
	}
	if e.Chunk != nil {
		e.Chunk.Retain() // for good: the message is looked at when its batch is gone
	}
	m, err := p.router.Route(e)
	if p.failure = err; m != nil {
		p.messages = append(p.messages, m)
	}
}

// follow has the statements of a case run and routes what the stream brings of them.
func (p *pipeline) follow(ctx context.Context, statements []statement) error {
	p.db.consume(p.event)
	defer p.db.consume(nil)
	pause := func() error {
		if err := p.db.catchUp(ctx); err != nil || p.cfg.Relay.HeartbeatInterval == 0 {
			return err
		}
		heartbeat, err := router.Heartbeat(p.cfg.Format, router.Registries{}, p.cfg.HeartbeatTopic(), p.cfg.Router[0].TopicPrefix, time.Now())
		if err != nil {
			return err
		}
		p.messages = append(p.messages, heartbeat) // nothing comes from the stream now
		return nil
	}
	if err := p.db.execute(ctx, statements, pause); err != nil {
		return err
	}
	return p.db.catchUp(ctx)
}

// snapshot routes the rows that are in the tables.
func (p *pipeline) snapshot(ctx context.Context) error {
	conn, err := postgres.ConnectRows(ctx, p.db.config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, table := range p.publication.Tables {
		if err := p.copyTable(ctx, conn, table); err != nil {
			return fmt.Errorf("snapshot of %s: %w", table.Name, err)
		}
	}
	return nil
}

func (p *pipeline) copyTable(ctx context.Context, conn *pgx.Conn, table slot.Table) error {
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return err
	}
	copied, err := backfill.NewTableReader(ctx, conn, table, []string{table.Name}, backfill.KeyColumns{ID: p.cfg.Router[0].FieldID})
	if err != nil {
		return err
	}
	rows, err := copied.Rows(ctx, conn, nil)
	if err != nil {
		return err
	}
	for {
		row, err := rows.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		p.event(&replication.Event{Kind: replication.Insert, Relation: copied.Relation, Values: row.Values, Time: time.Now()})
	}
	if err := rows.Close(ctx); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "COMMIT")
	return err
}
