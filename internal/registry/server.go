package registry

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

// server is a schema registry. Its methods block for registry.timeout for each request and URL,
// and not at all for what it has answered before. Errors are connect.ErrRegistry or its siblings,
// or *connect.ValueError for a schema that the registry refuses.
type server interface {
	// header is what stands before each value of a schema, which is registered under a subject if
	// usage says so.
	header(subject string, s sr.Schema, u Usage) ([]byte, error)
	// latest is the latest schema of a subject when it was first requested.
	latest(subject string) (*latest, error)
	// References are the texts of schemas that a schema refers to, and of those that these refer to,
	// by their names.
	References(of []sr.SchemaReference) (map[string]string, error)
	// checkFramed looks whether bytes begin with the id of a schema of a subject; of any one where
	// subject is empty.
	checkFramed(b []byte, subject string) error
	ping(ctx context.Context) error
	// requested is when a request last ran: now while one does, zero before the first.
	requested() time.Time
}

// latest is the latest version of a subject.
type latest struct {
	schema sr.Schema
	header []byte
	number int
}

func newServer(cfg Config) (server, error) {
	if cfg.Framing == Glue {
		return newGlue(cfg), nil
	}
	return New(cfg)
}

// Ping returns an error unless the registry answers.
func Ping(ctx context.Context, cfg Config) error {
	s, err := newServer(cfg)
	if err != nil {
		return err
	}
	return s.ping(ctx)
}
