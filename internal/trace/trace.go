// Package trace finds an event: in its outbox table, in the order of commits, in the topics, among
// the dead letters. It says whether it is published, and if not, why. It changes nothing.
//
//	trace.go   Run: one search, in which order it looks
//	request.go what to look for, and how much may be read
//	tables.go  the tables: columns, conditions, and whether an index finds the rows
//	rows.go    the rows, and how the router routes them
//	slot.go    whether the slot has passed a row
//	topics.go  the records in the topics, within limits
//	records.go what a record says: id, position, commit time
//	letters.go dead letters and parked keys
//	relay.go   what the running relay reports
//	explain.go the state of an event, and why
//	commit.go  what is known of the commit of an event, and the steps on its way
//	order.go   the events of a key in the order of their commits
//	result.go  the result, as JSON
//	text.go    the result, for people
package trace

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// search is one run.
type search struct {
	Request
	cfg    config.Config
	conn   *pgx.Conn // nil: no table is looked at
	tables []*table
	system string // identifier of the server; empty: not known
	slot   slot.Status
	noSlot bool
	end    endLSN // after the rows were read
	events []*event
	topics *topics
	index  *deadletter.Index // nil: there are no dead letters
	relay  *Relay            // nil: it does not answer
	result Result
}

// Run looks for an event, or for those of a key. It blocks for as long as the limits of the
// Request allow, or until ctx ends. relay queries the running relay; it may be nil.
//
// A result with an error has what was found without what failed: a topic that cannot be read
// leaves the rows. Errors are those of the database and the broker, *exit.Error for what the
// request has wrong.
func Run(ctx context.Context, cfg config.Config, r Request,
	relay func(context.Context) *Relay) (*Result, error) {
	cfg.Sink.Kafka.Topics.Create = false
	s := &search{Request: r, cfg: cfg}
	if relay != nil {
		s.relay = relay(ctx)
	}
	if r.Topic == "" {
		if err := s.findRows(ctx); err != nil {
			if s.acknowledged(); len(s.events) == 0 {
				return nil, err
			}
			s.note(err.Error())
		}
	}
	s.acknowledged()
	// What the slot had passed before is in the topics by now: they are read after it.
	failed := s.findRecords(ctx)
	s.explain(failed)
	return &s.result, failed
}

// findRows reads the rows, and after them the slot.
func (s *search) findRows(ctx context.Context) (err error) {
	if s.conn, err = postgres.ConnectRows(ctx, s.cfg.Postgres); err != nil {
		return err
	}
	defer postgres.Close(s.conn)
	if deadline, limited := ctx.Deadline(); limited {
		// The end of ctx closes the connection, which a server that computes does not notice.
		if err := setTimeout(ctx, s.conn, deadline); err != nil {
			return err
		}
	}
	if s.system, err = postgres.SystemIdentifier(ctx, s.conn); err != nil {
		return err
	}
	if err := s.describeTables(ctx); err != nil {
		return err
	}
	if err := s.readRows(ctx); err != nil {
		return err
	}
	return s.readSlot(ctx)
}

// findRecords reads dead letters and topics. Without rows, and without a topic that is named, only
// the dead letters: any topic could have the record.
func (s *search) findRecords(ctx context.Context) error {
	if s.cfg.Sink.Kind != config.SinkKafka {
		return nil
	}
	t, err := openTopics(ctx, s.cfg, s.MaxRead)
	if err != nil {
		return err
	}
	defer t.reader.Close()
	s.topics = t
	err = errors.Join(s.readLetters(ctx), s.readTopics(ctx))
	s.result.Searched.Topics = t.searched
	return err
}

// kafkaFailure adds the right that is missing to an error of reading a topic.
func (s *search) kafkaFailure(topic string, err error) error {
	if !errors.Is(err, sink.ErrPermission) {
		return err
	}
	f := exit.Explain(err)
	f.Next = readCommand(s.cfg.Sink.Kafka, topic)
	return f
}
