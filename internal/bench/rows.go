package bench

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

const (
	// keyCount is how many keys the rows are spread over. It is a multiple of writerCount, so that
	// each key has one writer and the order of its numbers is that of its commits.
	keyCount = 10_000

	// padCount is how many texts fill the payloads. They are digits of md5, which compress to
	// about half, as JSON of business data does.
	padCount = 64

	// MinSize and MaxSize bound the size of a payload in bytes: room for its frame and its number,
	// and the default limit of a broker.
	MinSize = 64
	MaxSize = 900_000
)

// aggregates are the kinds of things that have events; each has a topic.
var aggregates = []string{"order", "payment", "customer", "shipment"}

// rows makes the rows of a run: n is the number of a row among all, n/keyCount+1 its number among
// those of its key. The payload is exactly size bytes of jsonb text, the same from SQL and from
// Go.
type rows struct {
	size int
	keys []string
	pads []string // as long as size, and cut
}

func newRows(size int) *rows {
	r := &rows{size: size}
	for k := range keyCount {
		r.keys = append(r.keys, "key-"+strconv.Itoa(k))
	}
	for p := range padCount {
		sum := md5.Sum([]byte(strconv.Itoa(p)))
		digits := hex.EncodeToString(sum[:])
		r.pads = append(r.pads, strings.Repeat(digits, 1+size/len(digits)))
	}
	return r
}

func (r *rows) key(n int64) string { return r.keys[n%keyCount] }

// number is that of row n among those of its key, from 1.
func (r *rows) number(n int64) uint64 {
	return uint64(n/keyCount) + 1 //nolint:gosec // not negative
}

func aggregateOf(n int64) string { return aggregates[n%int64(len(aggregates))] }

// frame is what a payload has beside its number and its padding.
const frame = `{"n": , "pad": ""}`

func (r *rows) appendPayload(b []byte, n int64) []byte {
	start := len(b)
	b = append(b, `{"n": `...)
	b = strconv.AppendInt(b, n, 10)
	b = append(b, `, "pad": "`...)
	pad := max(1, r.size-(len(b)-start)-len(`"}`))
	b = append(b, r.pads[n%padCount][:pad]...)
	return append(b, `"}`...)
}

func (r *rows) appendID(b []byte, n int64) []byte { return fmt.Appendf(b, "%032x", n) }

// params are those of insertOne for row n.
func (r *rows) params(n int64) [][]byte {
	return [][]byte{r.appendID(nil, n), []byte(aggregateOf(n)), []byte(r.key(n)),
		r.appendPayload(nil, n)}
}

// find returns the number of a record's row, if the record is exactly as it was written. scratch
// is reused from call to call.
func (r *rows) find(key, value []byte, scratch *[]byte) (n int64, ok bool) {
	digits, found := bytes.CutPrefix(value, []byte(`{"n": `))
	if !found {
		return 0, false
	}
	end := bytes.IndexByte(digits, ',')
	if end < 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(digits[:end]), 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	*scratch = r.appendPayload((*scratch)[:0], n)
	return n, bytes.Equal(value, *scratch) && string(key) == r.key(n)
}

// insertRange writes rows $1 to $2 with payloads of $3 bytes in one statement, which is one
// transaction.
func insertRange(table string) string {
	return fmt.Sprintf(`INSERT INTO %s (id, aggregate_type, aggregate_id, event_type, payload)
SELECT pg_catalog.lpad(pg_catalog.to_hex(n), 32, '0')::pg_catalog.uuid,
	(ARRAY['%s'])[1 + n %% %d::bigint], 'key-' || (n %% %d::bigint)::text, 'created',
	pg_catalog.format('{"n": %%s, "pad": "%%s"}', n,
		pg_catalog.substr(pg_catalog.repeat(pg_catalog.md5((n %% %d::bigint)::text),
			1 + $3::int / 32), 1,
		greatest(1, $3::int - %d - pg_catalog.length(n::text))))::pg_catalog.jsonb
FROM pg_catalog.generate_series($1::bigint, $2::bigint) n`,
		table, strings.Join(aggregates, "','"), len(aggregates), keyCount, padCount, len(frame))
}

// insertOne writes one row: id, aggregate type, key, payload.
func insertOne(table string) string {
	return `INSERT INTO ` + table + ` (id, aggregate_type, aggregate_id, event_type, payload)
VALUES ($1::text::uuid, $2, $3, 'created', $4::text::jsonb)`
}
