// Package catalog queries the database about tables, over one connection that closes when it is
// idle.
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

// queryTimeout bounds a query, with the connection that it may need.
const queryTimeout = 10 * time.Second

// idleTimeout is how long an idle connection stays open. A session describes all its tables at its
// start, with one query for each.
const idleTimeout = 5 * time.Second

// Catalog queries the database about tables. A connection for each query would be one for each
// table of the publication. It may be used from any goroutine.
type Catalog struct {
	Config postgres.Config

	mu   sync.Mutex  // guards what follows; held for as long as a query runs
	conn *pgx.Conn   // nil: none is open
	idle *time.Timer // closes it
}

// Query blocks until query returns, ten seconds at most. An idle connection may have ended since
// its last use: query is then called again with another. Errors are those of postgres.Connect and
// query.
func (c *Catalog) Query(query func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for reused := c.conn != nil; ; reused = false {
		if c.conn == nil {
			conn, err := postgres.Connect(ctx, c.Config)
			if err != nil {
				return fmt.Errorf("query the catalog: %w", err)
			}
			c.conn = conn
			c.idle = time.AfterFunc(idleTimeout, func() { c.close(conn) })
		}
		err := query(ctx, c.conn)
		if !c.conn.IsClosed() {
			c.idle.Reset(idleTimeout)
			return err
		}
		c.idle.Stop()
		c.conn = nil
		if err == nil || !reused {
			return err
		}
	}
}

// Reset closes the connection, for the next query to open another: the database may have failed
// over.
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

// Describe reads what the router needs of a table. It blocks for one query.
func Describe(ctx context.Context, conn *pgx.Conn, oid uint32) (*router.Table, error) {
	var document []byte
	if err := conn.QueryRow(ctx, router.DescribeSQL, oid).Scan(&document); err != nil {
		return nil, fmt.Errorf("describe relation %d: %w", oid, postgres.Error(err))
	}
	return router.ParseTable(document)
}
