package postgres

import (
	"encoding/binary"
	"io"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// statements gets every statement that is sent. It is nil in the program: tests set it.
var statements atomic.Pointer[func(statement string)]

// ObserveStatements has f called with every statement of every connection that is configured from now on, in the goroutine that sends it.
func ObserveStatements(f func(statement string)) { statements.Store(&f) }

// observed builds a frontend whose statements are observed, if anybody wants them.
func observed(build pgconn.BuildFrontendFunc) pgconn.BuildFrontendFunc {
	f := statements.Load()
	if f == nil {
		return build
	}
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend { return build(r, &observer{Writer: w, tell: *f}) }
}

// observer reads along what a client writes, which is whole messages.
type observer struct {
	io.Writer
	tell  func(statement string)
	began bool // the first message has no type
}

func (o *observer) Write(messages []byte) (int, error) {
	for rest := messages; o.began && len(rest) >= 5; {
		end := min(1+int(binary.BigEndian.Uint32(rest[1:])), len(rest))
		switch body := rest[5:end]; rest[0] {
		case 'Q':
			o.tell(text(body))
		case 'P': // name, then the statement
			o.tell(text(body[len(text(body))+1:]))
		}
		rest = rest[end:]
	}
	o.began = true
	return o.Writer.Write(messages)
}

// text is what stands before the first zero.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
