package postgres

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// statements receives every statement that is sent. Only tests set it.
var statements atomic.Pointer[func(statement string)]

// ObserveStatements calls f with every statement of every connection that is configured from now
// on, in the goroutine that sends it.
func ObserveStatements(f func(statement string)) { statements.Store(&f) }

// observed makes build's frontend report its statements, if ObserveStatements was called.
func observed(build pgconn.BuildFrontendFunc) pgconn.BuildFrontendFunc {
	f := statements.Load()
	if f == nil {
		return build
	}
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return build(r, &observer{Writer: w, report: *f})
	}
}

// observer decodes what a client writes. Each Write holds whole messages.
type observer struct {
	io.Writer
	report func(statement string)
	began  bool // the first message has no type
}

func (o *observer) Write(messages []byte) (int, error) {
	for rest := messages; o.began && len(rest) >= 5; {
		end := min(1+int(binary.BigEndian.Uint32(rest[1:])), len(rest))
		text, after, _ := bytes.Cut(rest[5:end], []byte{0})
		switch rest[0] {
		case 'Q': // Query: the statement
			o.report(string(text))
		case 'P': // Parse: a name, then the statement
			text, _, _ = bytes.Cut(after, []byte{0})
			o.report(string(text))
		}
		rest = rest[end:]
	}
	o.began = true
	return o.Writer.Write(messages)
}
