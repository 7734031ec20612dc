package replication

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Kind is what an Event is, and which of its fields are set.
type Kind uint8

// The kinds. Within one connection they arrive in WAL order: Begin, any number of Insert, Update
// and Message, Commit. An Idle comes between transactions.
const (
	// Begin opens a transaction: LSN is the commit LSN, Time the commit time.
	Begin Kind = iota + 1
	// Insert is one new row: Relation and Values.
	Insert
	// Update is one changed row: Relation, Values and Old. Values may be Unchanged.
	Update
	// Message is one logical decoding message: Prefix and Content. One that is not transactional
	// has a transaction to itself: LSN is the end of its WAL record, Time when it was sent.
	Message
	// Commit closes the transaction: LSN is its end, the only position that is acknowledged.
	Commit
	// Idle is a transaction with no rows: everything before LSN that concerns us has been sent.
	Idle
)

// Event is one step of the stream. Byte slices are valid until the Batch is released, and then
// while Chunk is retained. They must not be modified.
type Event struct {
	Kind Kind
	XID  uint32 // of the transaction; zero: none
	// of an Insert, Update or Message in its transaction, from 0; with LSN the event position
	Index    uint32
	LSN      pglogrepl.LSN // what it is the position of depends on Kind
	Time     time.Time     // commit time, by the server's clock; zero for Idle
	Relation *Relation     // Insert, Update
	// one per Relation.Columns in text format; nil is NULL, empty is the empty string
	Values [][]byte
	// Old has one per Relation.Columns too: the row before an Update, with a replica identity that
	// is not FULL only its key columns. nil: the server sent none, since the key did not change.
	Old     [][]byte
	Prefix  string // Message
	Content []byte // Message
	// Oversize is the length in bytes of a row or message that was longer than Config.MaxRowBytes
	// and was not kept; else zero. Values has the leading columns of an Insert that were read
	// whole, and nil for the others; a Message has its Prefix. The table may be no outbox table.
	Oversize int64
	// Bytes is what was read since the event before it, counted up to about ChunkBytes, the size of
	// a buffer: a reader that retains Chunk for one value keeps all of that in memory.
	Bytes int
	Chunk *Chunk // of the bytes of Values, Old and Content; nil if there is none to retain
}

// isRow reports whether the event is one that a router makes a message of.
func (e *Event) isRow() bool { return e.Kind == Insert || e.Kind == Update || e.Kind == Message }

// Unchanged is in the place of a value that the server left out of an Update: one that is stored
// out of line and did not change. Compare with IsUnchanged.
var Unchanged = []byte("__debezium_unavailable_value")

// IsUnchanged reports whether a value is Unchanged itself, not an equal text.
func IsUnchanged(value []byte) bool { return len(value) > 0 && &value[0] == &Unchanged[0] }

// Relation is a table as the server described it before the first row of that shape. A new one is
// made when the shape changes: compare pointers. It is immutable.
type Relation struct {
	OID       uint32
	Namespace string
	Name      string
	Columns   []Column
}

// String is the schema-qualified name, unquoted.
func (r *Relation) String() string { return r.Namespace + "." + r.Name }

// Column is a column of a Relation, in the table's order, without generated and dropped ones.
type Column struct {
	Name    string
	TypeOID uint32
	TypeMod int32 // as in pg_attribute.atttypmod, -1 if none
	Key     bool  // part of the replica identity
}
