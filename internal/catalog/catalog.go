// Package catalog asks the database about tables, over one connection that closes when there is nothing to ask.
package catalog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/router"
)

// questionTimeout bounds a question, with the connection that it may need.
const questionTimeout = 10 * time.Second

// catalogIdle is how long the connection for questions stays open when there are none. They come in swarms: a session meets all its
// tables at its start, and a publication of thousands of tables is one question each.
const catalogIdle = 5 * time.Second

// catalog asks the database about tables. A connection for each question would be one for each table of the publication.
// It may be used from any goroutine.
type Catalog struct {
	Config postgres.Config

	mu   sync.Mutex
	conn *pgx.Conn   // nil: none is open
	idle *time.Timer // closes it
}

// ask blocks until the question is answered, ten seconds at most. An idle connection may have ended since it was last used: then the question is asked
// again on another. Errors are postgres.Connect's and the question's.
func (c *Catalog) Ask(question func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), questionTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for reused := c.conn != nil; ; reused = false {
		if c.conn == nil {
			conn, err := postgres.Connect(ctx, c.Config)
			if err != nil {
				return fmt.Errorf("ask the catalog: %w", err)
			}
			c.conn = conn
			c.idle = time.AfterFunc(catalogIdle, func() { c.close(conn) })
		}
		err := question(ctx, c.conn)
		if !c.conn.IsClosed() {
			c.idle.Reset(catalogIdle)
			return err
		}
		c.idle.Stop()
		c.conn = nil
		if err == nil || !reused {
			return err
		}
	}
}

// reset has the next question asked on a new connection: the database may have failed over.
func (c *Catalog) Reset() {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		c.close(conn)
	}
}

// close ends a connection, if it is still the one that is open.
func (c *Catalog) close(conn *pgx.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != conn {
		return
	}
	c.idle.Stop()
	c.conn = nil
	postgres.Close(conn)
}

// describe reads what the router needs to know of a table. It blocks for one query.
func Describe(ctx context.Context, conn *pgx.Conn, oid uint32) (*router.Table, error) {
	var document []byte
	if err := conn.QueryRow(ctx, router.DescribeSQL, oid).Scan(&document); err != nil {
		return nil, fmt.Errorf("describe relation %d: %w", oid, postgres.Error(err))
	}
	return router.ParseTable(document)
}
