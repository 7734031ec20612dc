package backfill

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// fetchSize is the number of rows of a FETCH. They are read from the socket one by one, so it
// costs no memory.
const fetchSize = 5000

// Rows reads the rows of a table in their order, within a transaction of the caller. It is for one
// goroutine, and uses the connection exclusively until Close.
type Rows struct {
	table  *TableReader
	conn   *pgconn.PgConn
	result *pgconn.MultiResultReader
	left   int // rows that the current FETCH may still return
}

// Row is one row of a table.
type Row struct {
	// one per Relation.Columns, in text format, as replication.Event has them; never written again
	Values   [][]byte
	Position Position
	id       rowID
}

// rowID distinguishes rows: a hash of table and unique columns.
type rowID [16]byte

// Rows begins to read after a position; nil: at the beginning.
func (c *TableReader) Rows(ctx context.Context, conn *pgx.Conn, after *Position) (*Rows, error) {
	r := &Rows{table: c, conn: conn.PgConn()}
	_, err := r.conn.Exec(ctx, "DECLARE postrider NO SCROLL CURSOR FOR "+c.sql(after)).ReadAll()
	return r, slot.Locked(postgres.Wrap(err, "read table %s", c.Name))
}

// Next returns the next row, or io.EOF after the last. If ctx ends, also after Next has returned,
// the connection is closed.
func (r *Rows) Next(ctx context.Context) (*Row, error) {
	for {
		if r.result == nil {
			r.left = fetchSize
			r.result = r.conn.Exec(ctx, fmt.Sprintf("FETCH FORWARD %d FROM postrider", fetchSize))
			r.result.NextResult()
		}
		if fetched := r.result.ResultReader(); fetched != nil && fetched.NextRow() {
			r.left--
			return r.row(fetched.Values()), nil
		}
		err := r.result.Close()
		r.result = nil
		// internal_error, program_limit_exceeded: a row above 1 GB in text form
		if state := postgres.SQLState(err); state == "XX000" || state == "54000" {
			return nil, fmt.Errorf("read table %s: %w: %w", r.table.Name, replication.ErrUndecodable, err)
		}
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", r.table.Name, postgres.Error(err))
		}
		if r.left > 0 {
			return nil, io.EOF
		}
	}
}

// Close closes the cursor, so that the next table can be read.
func (r *Rows) Close(ctx context.Context) error {
	if r.result != nil {
		_ = r.result.Close() // CLOSE returns the same error
	}
	_, err := r.conn.Exec(ctx, "CLOSE postrider").ReadAll()
	return postgres.Wrap(err, "read table %s", r.table.Name)
}

// row copies one row out of the driver's buffer.
func (r *Rows) row(raw [][]byte) *Row {
	size := 0
	for _, v := range raw {
		size += len(v)
	}
	buffer := make([]byte, 0, size)
	values := make([][]byte, len(raw))
	for i, v := range raw {
		if v != nil {
			at := len(buffer)
			buffer = append(buffer, v...)
			values[i] = buffer[at:len(buffer):len(buffer)]
		}
	}
	n := len(r.table.Relation.Columns)
	row := &Row{Values: values[:n:n]}
	rest := values[n:]
	if r.table.order != nil {
		if rest[0] != nil {
			text := string(rest[0])
			row.Position.Order = &text
		}
		rest = rest[1:]
	}
	for _, v := range rest {
		row.Position.Key = append(row.Position.Key, string(v))
	}
	row.id = newRowID(r.table.Relation.OID, rest)
	return row
}

func newRowID(table uint32, unique [][]byte) rowID {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, table) // a hash returns no error
	for _, v := range unique {
		_ = binary.Write(h, binary.BigEndian, uint64(len(v)))
		h.Write(v)
	}
	return rowID(h.Sum(nil)[:16])
}
