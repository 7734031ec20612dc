package replication

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Kind says which of its fields an Event carries.
type Kind uint8

// The six things that leave this package. Within one connection they arrive in WAL order: Begin,
// any number of Insert, Update and Message, Commit; an Idle stands between transactions, never
// inside one.
const (
	// Begin opens a transaction: LSN is the commit LSN, Time the commit time, XID the transaction
	// id.
	Begin Kind = iota + 1
	// Insert is one new row: Relation and Values. LSN, Index, Time and XID repeat those of its
	// transaction.
	Insert
	// Update is one changed row, of a publication that has updates in it: Relation, Values and
	// Old. A column that the server left out holds Unchanged.
	Update
	// Message is one logical decoding message: Prefix and Content. LSN, Index, Time and XID repeat
	// those of its transaction. One that is not transactional has a transaction to itself: its
	// position, the end of its WAL record, stands for commit LSN and end, and when it was sent for
	// the commit time.
	Message
	// Commit closes the transaction: LSN is the commit end, the only position that is ever
	// acknowledged.
	Commit
	// Idle is a transaction with no rows: everything before LSN that concerns us has been sent.
	Idle
)

// Event is one step of the stream. Byte slices point into Chunk: they stay as they are until the
// Batch is released, and then while the chunk is retained. They must not be modified.
type Event struct {
	Kind Kind
	XID  uint32
	// of an Insert or Message in its transaction, from 0; with LSN the event position
	Index    uint32
	LSN      pglogrepl.LSN // what it is the position of depends on Kind
	Time     time.Time     // commit time, by the server's clock
	Relation *Relation     // Insert, Update
	// Insert, Update: one per Relation.Columns in text format; nil is NULL, empty is the empty
	// string
	Values [][]byte
	// Update: the row before, of which nothing but its replica identity may be known; nil: that
	// did not change
	Old     [][]byte
	Prefix  string // Message
	Content []byte // Message
	// Oversize is the length in bytes of an Insert, Update or Message that was longer than
	// Config.MaxRowBytes and was not kept. Of an Insert, Values holds the leading columns that
	// were read whole, and nil for the others; of an Update none; of a Message the Prefix is
	// known. Zero for every other event. It may be of a table, or have a prefix, that is none of
	// ours.
	Oversize int64
	// Bytes is what was read for the event, and since the one before it, as far as that may lie in
	// the same buffer, which is about ChunkBytes: a reader that keeps a value of the row keeps all
	// of that in memory.
	Bytes int
	Chunk *Chunk // that Values, Old and Content lie in; nil for who makes an Event himself
}

// ChunkBytes is how much is read into one buffer, if no message is longer.
const ChunkBytes = chunkSize

// Unchanged stands for a value that the server left out of an update, as it was not changed and is
// stored out of line. Compare with IsUnchanged.
var Unchanged = []byte("__debezium_unavailable_value")

// IsUnchanged reports whether a value is Unchanged itself, not a text that is equal.
func IsUnchanged(value []byte) bool { return len(value) > 0 && &value[0] == &Unchanged[0] }

// Relation is a table as the server described it before the first row of that shape. The server
// sends it again, and a new *Relation is made, when the shape changes: compare pointers. It is
// immutable.
type Relation struct {
	OID       uint32
	Namespace string
	Name      string
	Columns   []Column
}

// String is the schema-qualified name, unquoted.
func (r *Relation) String() string { return r.Namespace + "." + r.Name }

// Column is a column of a Relation, in the table's order. Generated and dropped columns are not
// among them.
type Column struct {
	Name    string
	TypeOID uint32
	TypeMod int32 // as in pg_attribute.atttypmod, -1 if none
	Key     bool  // part of the replica identity
}
